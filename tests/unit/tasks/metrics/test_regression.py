"""Correlations, beside scipy's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heedful.errors import RequestError
from heedful.tasks.metrics.regression import ranks, regression_scores

numbers = st.integers(-5, 5).map(float) | st.floats(-100, 100).map(lambda x: round(x, 3))


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=23))
def test_scores_are_those_of_scipy(pairs):
    x, y = map(list, zip(*pairs, strict=True))
    pearson, spearman, mse = (score.value for score in regression_scores(x, y))
    assert mse == pytest.approx(np.mean([(a - b) ** 2 for a, b in pairs]))
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(pearson)
        assert math.isnan(spearman)
    else:
        assert pearson == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)
        assert spearman == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


@given(st.lists(numbers, min_size=1, max_size=23))
def test_equal_numbers_share_the_mean_of_their_ranks(values):
    assert ranks(np.array(values)).tolist() == stats.rankdata(values).tolist()


def test_a_constant_whose_mean_is_rounded_has_no_correlation():
    constant, other = [0.1] * 3, [0.1, 0.7, 0.3]
    assert np.mean(constant) != 0.1
    for x, y in [(constant, other), (other, constant), (constant, constant)]:
        assert math.isnan(regression_scores(x, y)[0].value)


def test_a_constant_is_null_in_json():
    first = regression_scores([1.0, 1.0], [1.0, 2.0])[0]
    assert first.to_dict()["value"] is None
    assert first.counts == {"examples": 2}


@pytest.mark.parametrize(
    "x, y, message", [([], [], "nothing to score"), ([1.0], [1.0, 2.0], "1 predictions")]
)
def test_wrong_requests(x, y, message):
    with pytest.raises(RequestError, match=message):
        regression_scores(x, y)
