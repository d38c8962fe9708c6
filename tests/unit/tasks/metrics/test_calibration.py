"""Metrics of probabilities, against loops written independently."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss

from heedful.errors import RequestError
from heedful.tasks.metrics.calibration import brier_score, calibration_scores
from heedful.tasks.metrics.intervals import wilson_interval

answers = st.lists(
    st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.2, 0.5, 1 / 3, 1.0])), st.booleans()),
    min_size=1,
    max_size=41,
)


def scores_of(pairs, **options):
    p, c = zip(*pairs, strict=True)
    error, aurc = calibration_scores(p, c, unit="rows", **options)
    return error, aurc


@given(answers)
def test_the_calibration_error_is_that_of_a_loop_over_bins(pairs):
    error, _ = scores_of(pairs)
    total = 0.0
    for i in range(15):
        inside = [(p, c) for p, c in pairs if (i / 15 < p <= (i + 1) / 15) or (i == 0 and p == 0)]
        if inside:
            gap = sum(c for _, c in inside) / len(inside) - sum(p for p, _ in inside) / len(inside)
            total += len(inside) / len(pairs) * abs(gap)
    # A probability on the border of two bins may be in either by rounding: then the loop is not an oracle.
    if all(abs(p * 15 - round(p * 15)) > 1e-9 or p in (0, 1) for p, _ in pairs):
        assert error.value == pytest.approx(total, abs=1e-12)
    assert sum(entry["count"] for entry in error.details["bins"]) == len(pairs)
    means = sum(entry["count"] * entry["confidence"] for entry in error.details["bins"])
    assert means == pytest.approx(sum(p for p, _ in pairs), abs=1e-9)


@given(answers)
def test_aurc_is_the_mean_over_orders_of_equal_probabilities(pairs):
    _, aurc = scores_of(pairs)
    draw, found = random.Random(1), []
    for _ in range(60):
        shuffled = draw.sample(pairs, len(pairs))
        ordered = sorted(shuffled, key=lambda pair: -pair[0])
        risks = [sum(not c for _, c in ordered[:k]) / k for k in range(1, len(ordered) + 1)]
        found.append(sum(risks) / len(risks))
    spread = np.std(found) / math.sqrt(len(found))
    assert aurc.value == pytest.approx(np.mean(found), abs=6 * spread + 1e-9)


@given(answers)
def test_scores_do_not_depend_on_the_order_of_rows(pairs):
    first, second = scores_of(pairs), scores_of(pairs[::-1])
    for a, b in zip(first, second, strict=True):
        assert a.value == pytest.approx(b.value, abs=1e-12)
    for a, b in zip(first[1].details["coverage"], second[1].details["coverage"], strict=True):
        assert a == pytest.approx(b)


@given(answers)
def test_a_point_of_the_curve_is_what_its_threshold_gives(pairs):
    _, aurc = scores_of(pairs)
    curve = aurc.details["coverage"]
    for point in curve:
        kept = [c for p, c in pairs if p >= point["threshold"]]
        assert point["coverage"] == pytest.approx(len(kept) / len(pairs))
        assert point["accuracy"] == pytest.approx(sum(kept) / len(kept))
    assert curve[-1]["coverage"] == 1


def best_by_trying_all(pairs, accuracy):
    """Return the largest share of answers that a threshold keeps with this accuracy, and its accuracy."""
    found = None
    for threshold in {p for p, _ in pairs}:
        kept = [c for p, c in pairs if p >= threshold]
        point = len(kept) / len(pairs), sum(kept) / len(kept)
        if point[1] >= accuracy and (found is None or point > found):
            found = point
    return found


@given(answers, st.one_of(st.floats(0, 1), st.fractions(0, 1, max_denominator=20).map(float)))
def test_the_threshold_for_an_accuracy_is_the_best_of_all(pairs, accuracy):
    """Also of more answers than the curve has points, with ties, and if the threshold is written short."""
    for rows in (pairs, [(p / 2 + i / 1024, c) for i, (p, c) in enumerate(pairs * 5)]):
        _, aurc = scores_of(rows)
        point, expected = aurc.threshold_for(accuracy).on_these_rows, best_by_trying_all(rows, accuracy)
        assert (point and (point.coverage, point.accuracy)) == expected
        if point:
            for threshold in (point.threshold, float(f"{point.threshold:.15g}")):
                kept = [c for p, c in rows if p >= threshold]
                assert (len(kept) / len(rows), sum(kept) / len(kept)) == expected


def test_a_threshold_has_few_decimals_if_these_keep_the_same_answers():
    rows = [(0.98765432, True), (0.7512345, True), (0.7498765, False), (0.1, False)]
    assert scores_of(rows)[1].threshold_for(1.0).on_these_rows.threshold == 0.75


@pytest.mark.parametrize("n", [1, 4, 29, 300])
def test_the_interval_of_a_share_solves_the_equation_of_wilson(n):
    """Its ends are the shares from which the observed one is 1.96 standard errors away."""
    for right in range(n + 1):
        share = right / n
        low, high = wilson_interval(share, n)
        assert 0 <= low <= share <= high <= 1
        for end in (low, high):
            distance = abs(share - end)
            assert distance == pytest.approx(1.96 * math.sqrt(end * (1 - end) / n), abs=1e-9) or end in (0, 1)


def test_the_limit_of_a_perfect_model_holds_for_95_of_100():
    draw = np.random.default_rng(3)
    p = draw.uniform(0.3, 1, 211)
    limit = scores_of([(x, True) for x in p])[0].details["perfect"]
    errors = [scores_of(zip(p, draw.random(211) < p, strict=True))[0].value for _ in range(300)]
    assert 0.9 < np.mean(np.array(errors) <= limit) < 0.985


def test_the_brier_score_is_that_of_scikit_learn_and_counts_unknown_classes():
    draw = np.random.default_rng(4)
    p, targets = draw.dirichlet(np.ones(5), 37), draw.integers(0, 5, 37).tolist()
    score = brier_score(p, targets, unit="rows")
    expected = brier_score_loss(targets, p, labels=list(range(5)), scale_by_half=False)
    assert score.value == pytest.approx(expected)
    unknown = brier_score([[0.25, 0.75]], [None], unit="rows")
    assert unknown.value == pytest.approx(0.25**2 + 0.75**2 + 1)


def test_nothing_to_score_is_refused():
    with pytest.raises(RequestError):
        calibration_scores([], [], unit="rows")
