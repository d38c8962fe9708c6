"""Temperature scaling: the best temperature, and a stored head that has it, for every task with classes."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.optimize import minimize_scalar
from tiny_runs import TASKS, make

import heedful
from heedful.errors import DamagedError, RequestError
from heedful.tasks import calibration
from heedful.tasks.calibration import Calibration, fit_temperature
from heedful.tasks.registry import TASKS as ALL_TASKS

HEADS = {"classification": "class", "multilabel-classification": "class", "tagging": "tag"}
HEADS["image-classification"] = "class"
FIXED = Calibration(temperature=2.5, items=97, loss=0.1, unscaled_loss=0.2)


def sampled(n, temperature, seed=0, classes=7):
    """Logits, and classes drawn from their softmax at a temperature."""
    generator = torch.Generator().manual_seed(seed)
    logits = min(3, 3 * temperature) * torch.randn(n, classes, generator=generator)
    logits = logits * max(1, temperature / 6)
    return logits, torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]


@pytest.mark.parametrize("temperature", [0.03, 0.3, 1.7, 6.0, 30.0])
def test_the_temperature_is_the_one_with_the_lowest_loss(temperature):
    logits, targets = sampled(4001, temperature)

    def loss(log_t):
        scaled = logits.double() / np.exp(log_t)
        return float(torch.nn.functional.cross_entropy(scaled, targets))

    found = fit_temperature([(logits[:1000], targets[:1000]), (logits[1000:], targets[1000:])])
    best = minimize_scalar(loss, bounds=(-4.6, 4.6), method="bounded", options={"xatol": 1e-10})
    assert found.temperature == pytest.approx(np.exp(best.x), rel=1e-4)
    assert found.temperature == pytest.approx(temperature, rel=0.15)
    assert (found.loss, found.unscaled_loss) == pytest.approx((best.fun, loss(0.0)), rel=1e-9)
    assert found.items == 4001


def test_padding_has_no_effect():
    logits, targets = sampled(400, 2.0)
    padded = torch.cat([logits, torch.full((400, 3), float("-inf"))], dim=1)
    assert fit_temperature([(padded, targets)]) == fit_temperature([(logits, targets)])


def test_what_cannot_be_fitted_is_said():
    logits, targets = sampled(400, 1.0)
    assert "too few; 50 are needed" in fit_temperature([(logits[:49], targets[:49])])
    assert "no more often" in fit_temperature([(logits, logits.argmin(1))])
    assert "nearly equal; train for longer" in fit_temperature([(1e-6 * logits, targets)])


@pytest.mark.parametrize("scale", [0.3, 1.0, 30.0])
@pytest.mark.parametrize("n_wrong", range(7))
def test_a_temperature_below_1_needs_wrong_items(scale, n_wrong):
    logits = scale * torch.randn(400, 7, generator=torch.Generator().manual_seed(1))
    targets = logits.argmax(1)
    targets[:n_wrong] = logits[:n_wrong].argmin(1)
    found = fit_temperature([(logits[:99], targets[:99]), (logits[99:], targets[99:])])
    if isinstance(found, str):
        assert n_wrong < 5
        assert found == f"{400 - n_wrong} of 400 validation items are right, too many to choose a temperature"
    else:
        assert n_wrong >= 5 or found.temperature > 1


@pytest.fixture(scope="module", params=HEADS)
def scaled(request, tmp_path_factory):
    """The kind of a task, and the folder of runs whose temperature is 2.5."""
    folder = tmp_path_factory.mktemp("calibrated") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "fit_temperature", lambda items: FIXED)
        make(request.param, folder)
    return request.param, folder


def test_every_task_with_classes_is_calibrated():
    have = {kind for kind, task in ALL_TASKS.items() if task.calibrated_head}
    assert have == {*HEADS, "question-answering"}


def test_the_stored_head_is_divided_and_nothing_else(scaled):
    kind, folder = scaled
    stored = load_file(folder / "finished" / "weights.safetensors")
    newest = max((folder / "finished" / "checkpoints").iterdir())
    trained = heedful.load(folder / "unfinished", device="cpu").model.state_dict()
    assert newest.exists()
    for name, tensor in stored.items():
        factor = 2.5 if name.startswith(f"heads.{HEADS[kind]}.") else 1.0
        torch.testing.assert_close(tensor * factor, trained[name], rtol=1e-6, atol=0)
    assert json.loads((folder / "finished" / "calibration.json").read_text())["temperature"] == 2.5
    assert not (folder / "unfinished" / "calibration.json").exists()


def test_probabilities_are_those_of_divided_logits(scaled):
    kind, folder = scaled
    runs = {name: heedful.load(folder / name, device="cpu") for name in ("finished", "unfinished")}
    inputs = [folder / f"{n}.png" for n in range(3)] if kind.startswith("image") else ["a b c", "c c a", "b"]
    for task_input in inputs:
        answers = {name: run.predict([task_input])[0] for name, run in runs.items()}
        if kind == "tagging":
            assert answers["finished"].tags == answers["unfinished"].tags
            assert sum(answers["finished"].log_probs) < sum(answers["unfinished"].log_probs)
            continue
        p, q = (np.array([*answers[name].label_probabilities().values()]) for name in runs)
        if kind == "multilabel-classification":
            expected = 1 / (1 + (1 / q - 1) ** (1 / 2.5))
        else:
            expected = q ** (1 / 2.5) / (q ** (1 / 2.5)).sum()
        np.testing.assert_allclose(p, expected, rtol=1e-5)


def test_evaluation_reports_the_temperature(scaled):
    _, folder = scaled
    for name, temperature in (("finished", 2.5), ("unfinished", None)):
        found = heedful.load(folder / name, device="cpu").evaluate("valid")
        assert found["calibration error"].details["temperature"] == temperature
        assert 0 <= found["AURC"].value <= 1
        assert found.threshold_for(0.0).on_these_rows.coverage == 1


def test_a_damaged_or_missing_file_is_named(scaled, tmp_path):
    import shutil

    _, folder = scaled
    run = shutil.copytree(folder / "finished", tmp_path / "run")
    path = run / "calibration.json"
    content = path.read_text()
    path.write_text(content.replace("2.5", "3.5"))
    with pytest.raises(DamagedError, match=r"calibration\.json"):
        heedful.load(run)
    path.unlink()
    with pytest.raises(DamagedError, match=r"calibration\.json"):
        heedful.load(run)


@pytest.mark.slow
def test_a_real_training_is_calibrated_on_validation_rows_unless_it_is_switched_off(tmp_path):
    """Labels are right in 80 of 100 rows, which the model learns by heart."""
    draw = np.random.default_rng(1)

    def rows(n):
        for _ in range(n):
            words = draw.choice(["sun", "rain", "wind", "fog", "snow", "ice"], 3).tolist()
            label = "wet" if "rain" in words else "dry"
            yield {"text": " ".join(words), "label": label if draw.random() < 0.8 else "cold"}

    for name, n in (("train", 90), ("valid", 211)):
        text = "".join(json.dumps(row) + "\n" for row in rows(n))
        (tmp_path / f"{name}.jsonl").write_text(text)
    source = {"kind": "jsonl", "columns": {"text": "text", "label": "label"}}
    recipe = {
        "root": str(tmp_path),
        "data": {name: {**source, "paths": f"{name}.jsonl"} for name in ("train", "valid")},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {"kind": "encoder", "d_model": 24, "n_layers": 1, "max_length": 9, "dropout": 0.0},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {"max_updates": 200, "validate_every": 200, "tokens_per_update": 500, "processes": 1},
    }
    runs = {}
    for setting in ("temperature", "off"):
        task = {"kind": "classification", "calibration": setting}
        runs[setting] = heedful.train(
            {**recipe, "task": task}, tmp_path / setting, device="cpu", progress=False
        )
    found = {setting: run.evaluate("valid") for setting, run in runs.items()}
    assert found["off"]["calibration error"].details["temperature"] is None
    temperature = found["temperature"]["calibration error"].details["temperature"]
    assert temperature > 1.2
    assert float(found["temperature"]["accuracy"]) == float(found["off"]["accuracy"])
    assert float(found["temperature"]["calibration error"]) < float(found["off"]["calibration error"])
    assert float(found["temperature"]["Brier score"]) < float(found["off"]["Brier score"])
    record = json.loads((tmp_path / "temperature" / "calibration.json").read_text())
    assert record["loss"] < record["unscaled_loss"]
    assert record["items"] == 211


def test_a_task_without_probabilities_has_no_threshold(tmp_path):
    make("regression", tmp_path / "runs")
    found = heedful.load(tmp_path / "runs" / "finished", device="cpu").evaluate("valid")
    with pytest.raises(RequestError, match="accuracy: the answers of this task have no probability"):
        found.threshold_for(0.9)


def test_tiny_runs_have_all_these_tasks():
    assert HEADS.keys() <= TASKS.keys()
