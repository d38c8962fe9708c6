"""Regressions as runs: trained, scored; what their data refuse."""

import json

import numpy as np
import pytest
from scipy import stats

from heedful.api.run import load
from heedful.config import merged
from heedful.errors import DataError
from heedful.recipes.trees import Mark, Tree
from heedful.runs.evaluate import chosen_splits, evaluate
from heedful.runs.reading import recipe_from
from heedful.runs.train import train_run
from heedful.training.callbacks import JsonLines, read_metrics

VALUES = {"one": 1000.0, "two": 1002.0, "five": 1005.0}


def rows(n, seed):
    """The mean of what the words stand for, far from 0."""
    draw = np.random.default_rng(seed)
    for _ in range(n):
        words = [str(word) for word in draw.choice(list(VALUES), draw.integers(1, 6))]
        yield f"{np.mean([VALUES[word] for word in words]):.4f}", " ".join(words)


def recipe(pairs=False, **sections):
    columns = {"label": 0, "text": 1} | ({"pair": 1} if pairs else {})
    source = {"kind": "tsv", "columns": columns}
    training = {"max_updates": 6, "tokens_per_update": 80, "validate_every": 3, "save_every": 2}
    model = {
        "kind": "encoder",
        "d_model": 12,
        "n_layers": 1,
        "max_length": 13,
        "layer": {
            "mixer": {"kind": "attention", "n_heads": 3},
            "channels": {"kind": "feed-forward", "d_ff": 17},
        },
    }
    tree = {
        "task": {"kind": "regression", "pairs": pairs},
        "data": {
            "train": {**source, "paths": "train.tsv"},
            "valid": {**source, "paths": "valid.tsv"},
            "test": {"test": {**source, "paths": "test.tsv"}},
            **sections.pop("data", {}),
        },
        "tokenizer": {"subwords": {"kind": "word"}},
        "schedule": sections.pop("schedule", {"kind": "constant", "peak": 1e-2}),
        "objective": sections.pop("objective", {}),
        "model": merged({**model, "pooling": "mean", "pooler": False}, sections.pop("model", {})),
        "training": {**training, "precision": "fp32", **sections.pop("training", {})},
    }
    return recipe_from(Tree.of(tree, Mark("r")))


def write(folder):
    for seed, (name, n) in enumerate({"train": 97, "valid": 23, "test": 31}.items()):
        (folder / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows(n, seed)))


def into(folder, **sections):
    if not (folder / "train.tsv").exists():
        write(folder)
    log = sections.pop("log", lambda line: None)
    settings = recipe(**sections).model_copy(update={"root": str(folder)})
    return train_run(
        settings, folder / "run", device="cpu", callbacks=lambda f: [JsonLines(f.metrics)], log=log
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    into(
        folder,
        model={"dropout": 0.0, "layer": {"mixer": {"dropout": 0.0}}},
        training={"max_updates": 120, "tokens_per_update": 160, "validate_every": 40, "save_every": 40},
    )
    return folder / "run"


@pytest.fixture(scope="module")
def run(trained):
    return load(trained, device="cpu")


@pytest.mark.slow
def test_a_run_holds_its_scale_and_learns(trained):
    card = json.loads((trained / "run.json").read_text())
    assert set(card["files"]) == {
        "recipe.yaml",
        "text.tokenizer.json",
        "scale.json",
        "residuals.json",
        "weights.safetensors",
    }
    numbers = [float(label) for label, _ in rows(97, 0)]
    scale = json.loads((trained / "scale.json").read_text())
    assert scale == {
        "version": 1,
        "mean": pytest.approx(np.mean(numbers)),
        "deviation": pytest.approx(np.std(numbers)),
    }
    validated = [x["metrics"] for x in read_metrics(trained / "metrics.jsonl") if x["event"] == "validated"]
    assert validated[-1]["loss"] < 0.1
    assert validated[-1]["loss"] < validated[0]["loss"]


def test_scores_are_those_of_the_predictions_in_their_unit(run):
    found = evaluate(run, "test", chosen_splits(run, "test", None)["test"])
    labels, texts = zip(*rows(31, 2), strict=True)
    predicted, right = [p.value for p in run.predict(list(texts))], [float(label) for label in labels]
    assert min(predicted) > 990
    pearson, spearman, mse, *_ = (score.value for score in found.scores)
    assert pearson == pytest.approx(stats.pearsonr(predicted, right).statistic, abs=1e-6)
    assert spearman == pytest.approx(stats.spearmanr(predicted, right).statistic, abs=1e-6)
    assert mse == pytest.approx(np.mean((np.array(predicted) - right) ** 2))
    records = list(found.rows())
    assert [r["output"] for r in records] == predicted
    assert [r["target"] for r in records] == right
    assert found.scores[0].counts == {"examples": 31}


@pytest.mark.slow
@pytest.mark.parametrize("loss, expected", [("squared-error", 3.0), ("absolute-error", 0.0)])
def test_the_loss_that_is_named_decides_between_mean_and_median(loss, expected, tmp_path):
    """Seven texts of ten have the number 0, and three that are not told from them have 10."""
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{10 * (i % 10 > 6)}\tone two\n" for i in range(40)))
    into(
        tmp_path,
        model={"dropout": 0.0, "layer": {"mixer": {"dropout": 0.0}}},
        objective={"loss": loss},
        schedule={"kind": "linear", "peak": 3e-2, "warmup": 1},
        training={"max_updates": 60, "validate_every": 60, "save_every": 60},
    )
    (prediction,) = load(tmp_path / "run", device="cpu").predict(["one two"])
    assert prediction.value == pytest.approx(expected, abs=0.5)


def test_pairs_and_a_limit_of_tokens_leave_the_numbers_whole(tmp_path):
    into(tmp_path, pairs=True, data={"filter": {"max_length": 3}})
    run = load(tmp_path / "run", device="cpu")
    assert run.task.columns.inputs == ("text", "pair")
    found = run.predict([("one two", "five"), ("two", "")])
    assert all(isinstance(p.value, float) for p in found)


@pytest.mark.parametrize(
    "part, label, message",
    [
        ("train", "high", r"train.tsv:2: expected a number as label, got 'high'"),
        ("train", "1_000", r"train.tsv:2: expected a number as label, got '1_000'"),
        ("train", "١٢", r"train.tsv:2: expected a number as label, got '١٢'"),
        ("train", "NaN", r"train.tsv:2: the label 'NaN' is not a finite number"),
        ("valid", "inf", r"valid.tsv:2: the label 'inf' is not a finite number"),
    ],
)
def test_what_is_no_number_is_named(tmp_path, part, label, message):
    write(tmp_path)
    (tmp_path / f"{part}.tsv").write_text(f"1.5\tone\n{label}\ttwo\n")
    with pytest.raises(DataError, match=message):
        into(tmp_path)


def test_a_label_of_a_test_set_that_is_no_number_is_named(run, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"text": "one", "label": 1}\n{"text": "two", "label": "NaN"}\n')
    ((name, source),) = chosen_splits(run, "test", [path]).items()
    with pytest.raises(DataError, match=r"own.jsonl:2: the label 'NaN' is not a finite number"):
        evaluate(run, name, source)


def test_numbers_that_are_all_alike_are_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "train.tsv").write_text("2\tone\n2.0\ttwo\n")
    with pytest.raises(DataError, match=r"^data\.train: all labels are 2; at least two"):
        into(tmp_path)


def test_points_between_thousands_are_noted_in_training_and_in_evaluation(run, tmp_path):
    write(tmp_path)
    labels = ("1.234", "734", "12.000", "3.500")
    table = "".join(f"{label}\t{text}\n" for label, (_, text) in zip(labels, rows(4, 1), strict=True))
    for name in ("train.tsv", "own.tsv"):
        (tmp_path / name).write_text(table)
    logged: list[str] = []
    into(tmp_path, log=logged.append, training={"max_updates": 1, "validate_every": 1, "save_every": 1})
    note = "3 of 4 (75.0%) numbers in label have three digits after the point, such as '1.234'"
    assert sum(line.startswith(f"data.train: {note}") for line in logged) == 1
    ((name, source),) = chosen_splits(run, "test", [tmp_path / "own.tsv"]).items()
    assert sum(line.startswith(note) for line in evaluate(run, name, source).notes) == 1
