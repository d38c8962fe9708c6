"""Intervals of predicted numbers contain the target as often as they say."""

import json
import math

import numpy as np
import pytest

import heedful
from heedful.errors import DamagedError
from heedful.tasks.intervals import MOST, fewest_rows, half_width, interval_scores, residuals_of


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("skew", [np.random.Generator.standard_normal, np.random.Generator.standard_cauchy])
def test_the_mean_coverage_of_100_random_splits_is_what_it_claims(coverage, skew):
    """Errors of any distribution, of 401 rows: the guarantee has no assumption but exchangeable rows."""
    draw = np.random.default_rng(1)
    predictions, targets = draw.normal(size=401), np.zeros(401)
    targets += predictions + skew(draw, 401)
    found = []
    for _ in range(100):
        order = draw.permutation(401)
        held, other = order[:199], order[199:]
        q = half_width(residuals_of(predictions[held], targets[held]).residuals, coverage)
        found.append(np.mean(np.abs(targets[other] - predictions[other]) <= q))
    assert abs(np.mean(found) - coverage) < 0.01


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_an_interval_exists_as_soon_as_there_are_enough_rows(coverage):
    fewest = fewest_rows(coverage)
    assert half_width([1.0] * fewest, coverage) == 1.0
    assert half_width([1.0] * (fewest - 1), coverage) is None


def test_the_rank_is_exact_where_binary_fractions_are_not():
    for n in range(9, 400):
        expected = math.ceil((n + 1) * 9 / 10) if (n + 1) % 10 else (n + 1) // 10 * 9
        assert half_width([float(i) for i in range(1, n + 1)], 0.9) == expected


def test_of_many_rows_evenly_spaced_ones_are_kept():
    found = residuals_of(np.arange(5 * MOST + 3), np.zeros(5 * MOST + 3)).residuals
    assert found == [6.0 * i for i in range(len(found))]
    assert len(found) <= MOST


def test_scores_of_intervals():
    intervals = np.array([[0.0, 1.0], [2.0, 4.0], [-1.0, 0.0]])
    inside, width = interval_scores(intervals, [1.0, 1.9, -0.5], coverage=0.9, rows=31)
    assert inside.value == pytest.approx(2 / 3)
    assert width.value == pytest.approx(4 / 3)
    assert inside.counts == {"examples": 3, "residuals": 31}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A regression on noisy numbers of words."""
    folder = tmp_path_factory.mktemp("numbers")
    draw = np.random.default_rng(2)
    for name, n in (("train", 120), ("valid", 97), ("test", 307)):
        rows = []
        for _ in range(n):
            words = draw.choice(["a", "b", "c"], int(draw.integers(1, 9))).tolist()
            rows.append({"text": " ".join(words), "label": words.count("a") + float(draw.normal())})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"kind": "jsonl", "columns": {"text": "text", "label": "label"}}
    data = {name: {**source, "paths": f"{name}.jsonl"} for name in ("train", "valid")}
    recipe = {
        "root": str(folder),
        "task": {"kind": "regression", "coverage": 0.8},
        "data": {**data, "test": {"test": {**source, "paths": "test.jsonl"}}},
        "tokenizer": {"subwords": {"kind": "word"}},
        "model": {
            "kind": "encoder",
            "d_model": 12,
            "n_layers": 1,
            "max_length": 11,
            "layer": {"mixer": {"n_heads": 2}, "channels": {"d_ff": 24}},
        },
        "schedule": {"kind": "constant", "peak": 1e-2},
        "training": {"max_updates": 60, "validate_every": 60, "tokens_per_update": 300, "processes": 1},
    }
    return heedful.train(recipe, folder / "run", device="cpu", progress=False)


def test_predictions_have_intervals_and_evaluation_says_how_often_they_hold(run):
    answer = run.predict(["a b a"])[0]
    low, high = answer.interval
    assert (low + high) / 2 == pytest.approx(answer.value)
    assert answer.to_dict()["interval"] == [low, high]
    found = run.evaluate("test")
    # The standard error of 307 rows and of the quantile of 97: about 0.045.
    assert float(found["interval coverage"]) == pytest.approx(0.8, abs=0.12)
    assert float(found["interval width"]) == pytest.approx(high - low)
    residuals = json.loads((run.folder.path / "residuals.json").read_text())["residuals"]
    assert (high - low) / 2 == pytest.approx(sorted(residuals)[math.ceil(98 * 0.8) - 1])


def test_a_changed_file_of_residuals_is_damaged(run, tmp_path):
    import shutil

    copy = shutil.copytree(run.folder.path, tmp_path / "run")
    (copy / "residuals.json").write_text('{"version": 1, "residuals": [0.5]}')
    with pytest.raises(DamagedError, match=r"residuals\.json"):
        heedful.load(copy)
