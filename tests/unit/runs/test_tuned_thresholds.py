"""Tuned thresholds of a multi-label classification: better scores, stored in the run, resumed."""

import json

import numpy as np
import pytest
import torch

import heedful
from heedful.api.run import Run, load
from heedful.artifacts.run_folder import RunFolder, write_card
from heedful.errors import DamagedError, RequestError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate, with_evaluation
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.tasks.classification import LabelProcessor
from heedful.tasks.registry import task_for

SHARES = {"rain": ("wet", 0.35), "sun": ("warm", 0.9), "wind": ("cold", 0.4)}
"""Each word, and how often its label is with it: two are never more probable than 0.5."""
LABELS = ("cold", "never", "warm", "wet")


def rows(n, seed):
    draw = np.random.default_rng(seed)
    for i in range(n):
        words = [str(word) for word in draw.choice([*SHARES, "fog", "snow"], 3)]
        labels = {SHARES[word][0] for word in words if word in SHARES and draw.random() < SHARES[word][1]}
        # "never" occurs in the training data alone.
        yield {
            "text": " ".join(words),
            "label": sorted(labels | ({"never"} if seed == 0 and i < 2 else set())),
        }


DATA = {
    name: list(rows(n, seed))
    for seed, (name, n) in enumerate({"train": 600, "valid": 211, "test": 307}.items())
}


def settings(folder, threshold="tuned", **training):
    source = {"kind": "jsonl", "columns": {"text": "text"}, "lists": {"label": "label"}}
    paths = {name: {**source, "paths": f"{name}.jsonl"} for name in DATA}
    return {
        "root": str(folder),
        "task": {"kind": "multilabel-classification", "threshold": threshold},
        "data": {"train": paths["train"], "valid": paths["valid"], "test": {"test": paths["test"]}},
        "tokenizer": {"subwords": {"kind": "word"}},
        "schedule": {"kind": "constant", "peak": 1e-2},
        "model": {
            "kind": "encoder",
            "d_model": 14,
            "n_layers": 1,
            "layer": {"mixer": {"n_heads": 2, "dropout": 0.0}, "channels": {"d_ff": 19}},
            "max_length": 13,
            "dropout": 0.1,
            "pooling": "mean",
            "pooler": False,
        },
        "training": {
            "max_updates": 40,
            "tokens_per_update": 400,
            "validate_every": 20,
            "save_every": 20,
            "precision": "fp32",
            "compile": "off",
            "processes": 1,
            "metric": "loss",
            "direction": "lower",
            **training,
        },
    }


def recipe(*args, **training):
    return recipe_from(Tree.of(settings(*args, **training), Mark("r")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the data and a trained run."""
    folder = tmp_path_factory.mktemp("tuned")
    for name, part in DATA.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in part))
    lines = []
    train_run(recipe(folder), folder / "run", device="cpu", log=lines.append)
    (folder / "log").write_text("\n".join(lines))
    return folder


def stored(run):
    """The thresholds in the file of a run."""
    content = json.loads((run / "thresholds.json").read_text())
    assert content["version"] == 1
    return content["thresholds"]


def macro_f1(run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    return found["macro F1"].value, found


def best_by_brute_force(probabilities, targets):
    """The best F1 over a cut below each probability."""
    return max(f1(probabilities, targets, cut - 1e-6) for cut in probabilities)


def f1(probabilities, targets, threshold):
    predicted = np.array(probabilities) > threshold
    return 2 * (predicted & targets).sum() / max(1, predicted.sum() + targets.sum())


@pytest.mark.slow
def test_each_threshold_has_the_best_f1_on_the_validation_data(folder):
    predictions = load(folder / "run", device="cpu").predict([row["text"] for row in DATA["valid"]])
    thresholds = stored(folder / "run")
    assert tuple(thresholds) == LABELS
    assert thresholds["never"] == 0.5
    for label in set(LABELS) - {"never"}:
        targets = np.array([label in row["label"] for row in DATA["valid"]])
        probabilities = [prediction.probabilities[label] for prediction in predictions]
        best = best_by_brute_force(probabilities, targets)
        assert f1(probabilities, targets, thresholds[label]) == pytest.approx(best)
    for prediction in predictions:
        expected = [label for label, p in prediction.probabilities.items() if p > thresholds[label]]
        assert prediction.labels == expected
    assert any(not row["label"] for row in DATA["valid"])  # rows without labels took part


@pytest.mark.slow
def test_they_improve_macro_f1_on_the_test_data_and_are_shown(folder, tmp_path):
    train_run(recipe(folder, 0.5), tmp_path / "plain", device="cpu")
    plain, plain_scores = macro_f1(load(tmp_path / "plain", device="cpu"))
    tuned, scores = macro_f1(load(folder / "run", device="cpu"))
    assert tuned > plain + 0.2
    thresholds = stored(folder / "run")
    assert scores["micro F1"].details["threshold"] == list(thresholds.values())
    assert not scores.notes
    assert "threshold" not in plain_scores["micro F1"].details
    assert not (tmp_path / "plain" / "thresholds.json").exists()
    log = (folder / "log").read_text()
    assert f"on the validation data: cold {thresholds['cold']:.3g}, never 0.5, " in log
    assert "no validation row has these labels, whose threshold is 0.5: never" in log
    # The given thresholds of another run are those that it uses.
    given = {"cold": thresholds["cold"], "wet": thresholds["wet"], "warm": thresholds["warm"]}
    train_run(recipe(folder, given), tmp_path / "given", device="cpu")
    same, same_scores = macro_f1(load(tmp_path / "given", device="cpu"))
    assert same == tuned
    assert same_scores["micro F1"].details == scores["micro F1"].details


@pytest.mark.slow
def test_a_resumed_run_has_the_same_thresholds_and_an_unfinished_one_a_half(folder, tmp_path):
    out = tmp_path / "run"
    train_run(recipe(folder, max_updates=20), out, device="cpu")
    assert stored(out) != stored(folder / "run")
    train_run(recipe(folder), out, resume=True, device="cpu")
    assert (out / "thresholds.json").read_bytes() == (folder / "run" / "thresholds.json").read_bytes()
    # A finished run repairs its file.
    (out / "thresholds.json").write_text("{}")
    with pytest.raises(DamagedError, match=r"thresholds\.json: damaged: .* train with --resume to write it"):
        load(out, device="cpu")
    train_run(recipe(folder), out, resume=True, device="cpu")
    assert stored(out) == stored(folder / "run")

    # As if it were killed while its thresholds are written.
    started = {"version": 1, "files": load(out, device="cpu").folder.read_card()["files"]}
    for name in ("weights.safetensors", "thresholds.json"):
        started["files"].pop(name)
    write_card(out / "started.json", started)
    (out / "run.json").unlink()
    unfinished = load(out, device="cpu")
    assert set(unfinished.task.thresholds.values()) == {0.5}
    _, scores = macro_f1(unfinished)
    assert "task.threshold=tuned: training has not ended, so all thresholds are 0.5" in scores.notes


@pytest.mark.slow
def test_a_loop_of_ones_own_tunes_them_too(folder, tmp_path):
    setup = heedful.prepare(settings(folder), tmp_path / "own", device="cpu", progress=False)
    optimizer = torch.optim.Adam(setup.model.parameters(), lr=1e-2)
    for batch in setup.batches(epochs=3):
        setup.loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    run = setup.finish()
    assert setup.model.training
    assert run.task.thresholds == stored(tmp_path / "own")
    assert "thresholds.json" in run.folder.read_card()["files"]
    assert run.task.thresholds["cold"] < 0.5


@pytest.mark.slow
def test_a_threshold_of_an_unknown_label_is_an_error(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.runs.train.build_module", lambda *args: pytest.fail("a model is built"))
    with pytest.raises(RequestError, match=r"unknown label 'colt' \(did you mean 'cold'\?\)"):
        train_run(recipe(folder, {"colt": 0.3}), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_other_settings_of_an_evaluation_keep_the_thresholds(tmp_path):
    task = task_for(recipe(tmp_path), LabelProcessor(None, LABELS))
    task.tuned = dict.fromkeys(LABELS, 0.3)
    run = Run(RunFolder(tmp_path), task, torch.nn.Identity())
    changed = with_evaluation(run, ["metrics=[heedful.tasks.metrics.error_rates:CharacterErrorRate]"])
    assert changed.task.thresholds == task.tuned
    assert len(changed.recipe.evaluation.metrics) == 1
    assert not run.recipe.evaluation.metrics


@pytest.mark.parametrize("threshold", ["tunned", 0, 1.0, {"cold": 1}, None])
def test_other_values_are_refused(tmp_path, threshold):
    with pytest.raises(RequestError, match=r"task\.threshold"):
        recipe(tmp_path, threshold)
