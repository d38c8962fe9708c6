"""Thresholds for an accuracy: the one that holds does so on other rows, in simulated draws."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from scipy.stats import beta, binom

from heedful.errors import RequestError
from heedful.tasks.metrics.accuracy_thresholds import (
    CANDIDATES,
    LEVEL,
    Thresholds,
    fewest_answers,
    next_short,
    right_tail,
)

WANTED, DRAWS, POPULATION = 0.9, 200, 20_000


def found_in(p, c, wanted=WANTED, **options):
    order = np.argsort(-p, kind="stable")
    return Thresholds.of(p[order], c[order].astype(float), **options)(wanted)


def population_of(model):
    """Return the probabilities that a model gives to its answers, and whether they are right."""
    draw = np.random.default_rng(5)
    truth = draw.beta(4, 1, POPULATION)
    right = draw.random(POPULATION) < truth
    if model == "flat":  # the probability says nothing, and every threshold keeps a bit too few right answers
        flat = np.arange(POPULATION) < (WANTED - 0.002) * POPULATION
        return draw.random(POPULATION), draw.permutation(flat)
    return {
        "calibrated": truth,
        "too sure": truth**0.2,
        "too unsure": truth**4 / 2,
        "ties": np.round(truth, 1),
        "most probable are worse": np.where(truth > 0.97, truth, 1 - truth),
    }[model], right


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 1100])
@pytest.mark.parametrize(
    "model", ["calibrated", "too sure", "too unsure", "ties", "most probable are worse", "flat"]
)
def test_the_accuracy_from_a_threshold_that_holds_is_missed_in_one_of_twenty_draws(model, n):
    """By chance more often: at most the 99.9 % quantile of such a count."""
    p, right = population_of(model)
    draw, found, missed, optimistic = np.random.default_rng(n), 0, 0, 0
    for _ in range(DRAWS):
        rows = draw.integers(0, POPULATION, n)
        result = found_in(p[rows], right[rows])
        if result.holds is not None:
            found += 1
            missed += right[p >= result.holds.threshold].mean() < WANTED
        if result.on_these_rows is not None:
            optimistic += right[p >= result.on_these_rows.threshold].mean() < WANTED
    assert missed <= binom.ppf(0.999, DRAWS, 0.05)
    # The test has power: the threshold that was chosen on the rows themselves misses often.
    assert optimistic > 0.15 * DRAWS
    if n == 1100 and model in ("calibrated", "too sure", "too unsure"):
        assert found > 0.9 * DRAWS


@given(n=st.integers(1, 3000), right=st.floats(0, 1), share=st.floats(0.01, 0.999))
def test_the_tail_of_the_binomial_is_that_of_scipy(n, right, share):
    k = round(right * n)
    assert right_tail(n, k, share) == pytest.approx(binom.sf(k - 1, n, share), rel=1e-6, abs=1e-12)


@given(n=st.integers(20, 2000), right=st.floats(0.8, 1))
def test_a_threshold_passes_if_the_bound_of_clopper_and_pearson_is_high_enough(n, right):
    k = round(n * right)
    bound = beta.ppf(LEVEL, k, n - k + 1)
    assert (right_tail(n, k, WANTED) <= LEVEL) == (bound >= WANTED)


def test_fewer_answers_cannot_pass():
    n = fewest_answers(0.95)
    assert right_tail(n, n, 0.95) <= LEVEL < right_tail(n - 1, n - 1, 0.95)


@given(st.floats(0, 1, exclude_max=True))
def test_the_next_short_number_is_greater_and_near(p):
    short = next_short(p)
    assert p < short <= 1
    assert short - p <= 0.1 * (1 - p) + 1e-15


def test_of_no_errors_all_answers_are_kept():
    p = np.linspace(0.5, 1, 500)
    result = found_in(p, np.ones(500))
    assert (result.holds.threshold, result.holds.answers, result.holds.right) == (0.0, 500, 500)
    assert float(result) == 0


def test_equal_probabilities_are_kept_together():
    p = np.repeat([0.9, 0.6], [400, 600])
    result = found_in(p, np.repeat([1, 0], [400, 600]))
    assert 0.6 < result.holds.threshold <= 0.9
    assert result.holds.answers == 400
    assert found_in(np.ones(1000), np.repeat([1, 0], [400, 600])).holds is None


def test_few_rows_have_the_number_that_may_be_needed():
    draw = np.random.default_rng(1)
    p = draw.beta(4, 1, POPULATION)
    right = draw.random(POPULATION) < p
    few = found_in(p[:60], right[:60])
    assert few.holds is None
    with pytest.raises(RequestError, match=r"accuracy of 0.9 on other rows; about [\d,]+ rows may show one"):
        float(few)
    needed = few.rows_needed
    found = [found_in(p[i : i + needed], right[i : i + needed]) for i in range(0, POPULATION // 2, 500)]
    assert np.mean([result.holds is not None for result in found]) > 0.5


def test_where_no_rows_help_none_are_asked_for():
    p = np.linspace(0.4, 0.6, 1000)
    never = found_in(p, np.arange(1000) % 2)
    assert never.holds is never.rows_needed is None
    with pytest.raises(RequestError, match="improve the model"):
        float(never)


def test_answers_that_depend_on_each_other_are_not_tested():
    p = np.linspace(0.5, 1, 500)
    result = found_in(p, p > 0.7, is_independent=False)
    assert result.holds is result.rows_needed is None
    assert float(result) == result.on_these_rows.threshold > 0
    assert result.to_dict()["confidence"] is None


@pytest.mark.parametrize("options", [{}, {"is_independent": False}])
@pytest.mark.parametrize("wanted", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("n", [1, 2, CANDIDATES, 40, 400])
def test_every_result_is_what_the_schema_says(n, wanted, options):
    schema = json.loads(
        (Path(__file__).parents[4] / "docs/schemas/evaluation.schema.json").read_text("utf-8")
    )
    entry = schema["properties"]["splits"]["items"]["properties"]["accuracy_threshold"]
    checker = Draft202012Validator({**entry, "$defs": schema["$defs"]})
    draw = np.random.default_rng(n)
    p = draw.random(n)
    for right in (draw.random(n) < p, np.ones(n), np.zeros(n)):
        result = found_in(p, right, wanted, **options)
        checker.validate(json.loads(json.dumps(result.to_dict())))
        if result.holds:
            kept = p >= result.holds.threshold
            assert (kept.sum(), right[kept].sum()) == (result.holds.answers, result.holds.right)


@pytest.mark.parametrize(
    ("wrong", "message"), [(95, "got 95; write 0.95"), ("0.95", "got a text|got str"), (float("nan"), "nan")]
)
def test_an_accuracy_is_a_number_from_0_to_1(wrong, message):
    with pytest.raises(RequestError, match=f"accuracy: expected a number from 0 to 1, .*({message})"):
        found_in(np.array([0.5]), np.ones(1), wrong)
