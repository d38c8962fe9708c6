"""Thresholds of labels: the best F1 against brute force over all cut points, and what is refused."""

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from heedful.errors import DamagedError, RequestError
from heedful.tasks.thresholds import best_threshold, given_thresholds, read_thresholds


def f1(probabilities, targets, threshold):
    """F1 of one label, exactly; 0 if it is not predicted correctly once."""
    predicted = [p > threshold for p in probabilities]
    true = sum(p and t for p, t in zip(predicted, targets, strict=True))
    return Fraction(2 * true, max(1, sum(predicted) + sum(targets)))


def by_brute_force(probabilities, targets):
    """Try the middle between each two neighbours, 0 included."""
    distinct = [0.0, *sorted({*probabilities} - {0.0})]
    cuts = [(low + high) / 2 for low, high in pairwise(distinct)]
    return min(cuts, key=lambda cut: (-f1(probabilities, targets, cut), abs(cut - 0.5)))


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_best_of_all_cut_points(seed):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 40))
    # Few decimals: many equal probabilities, 0 and 1 among them.
    probabilities = draw.random(n).round(int(draw.integers(1, 5)))
    targets = draw.random(n) < draw.random()
    targets[draw.integers(n)] = True
    if not probabilities.any():
        probabilities[0] = 0.5
    found = best_threshold(probabilities, targets)
    assert 0 < found < 1
    assert found == by_brute_force(probabilities.tolist(), targets.tolist())
    finest = [f1(probabilities, targets, t) for t in np.linspace(0.005, 0.995, 199)]
    assert f1(probabilities, targets, found) >= max(finest)


@pytest.mark.parametrize(
    ("probabilities", "targets", "expected"),
    [
        ([0.2, 0.4, 0.1], [False, True, False], (0.2 + 0.4) / 2),
        ([0.9, 0.8], [True, True], 0.4),  # all rows have the label: below the least probable one
        ([0.9, 0.8], [False, False], 0.5),  # no row has it
        ([0.0, 0.0], [True, False], 0.5),  # no threshold is below
        ([0.0, 1.0], [True, True], 0.5),
        ([], [], 0.5),
        ([0.3, 0.7, 0.7], [True, True, False], 0.15),
        # F1 is 2/3 above 0.95 and above 0.55: the second is nearer to 0.5.
        ([0.99, 0.91, 0.57, 0.53], [True, False, True, False], (0.53 + 0.57) / 2),
    ],
)
def test_cases_by_hand(probabilities, targets, expected):
    assert best_threshold(np.array(probabilities), np.array(targets, dtype=bool)) == expected


def test_of_equally_good_thresholds_the_one_nearest_a_half_is_taken():
    # 2 / 3 above 0.8 (one of two found) and above 0.3 (both found, two too many).
    probabilities, targets = np.array([0.9, 0.7, 0.5, 0.4, 0.2]), np.array([1, 0, 0, 1, 0]) > 0
    assert f1(probabilities, targets, 0.8) == f1(probabilities, targets, 0.3) == Fraction(2, 3)
    assert best_threshold(probabilities, targets) == pytest.approx(0.3)


def test_labels_without_a_threshold_have_a_half():
    assert given_thresholds(0.3, ("a", "b")) == {"a": 0.3, "b": 0.3}
    assert given_thresholds({"b": 0.2}, ("a", "b")) == {"a": 0.5, "b": 0.2}
    message = r"task\.threshold: unknown label 'sprot' \(did you mean 'sport'\?\); expected one of sport, war"
    with pytest.raises(RequestError, match=message):
        given_thresholds({"sprot": 0.2}, ("sport", "war"))


@pytest.mark.parametrize(
    "thresholds", [{"a": 0.5}, {"a": 0.5, "b": 1.0}, {"a": 0.5, "b": "0.5"}, {"a": 0.0, "b": 0.5}, [0.5]]
)
def test_a_file_without_a_threshold_for_each_label_is_damaged(tmp_path, thresholds):
    path = tmp_path / "thresholds.json"
    path.write_text(json.dumps({"version": 1, "thresholds": thresholds}))
    with pytest.raises(DamagedError, match=r"thresholds\.json: damaged"):
        read_thresholds(path, ("a", "b"))
