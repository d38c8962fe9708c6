import math

import pytest
import torch

from heedful.decoding.scoring import AverageLength, CoveragePenalty, GnmtLength, NoPenalty, score

LOG_PROBS = [-0.5, -1.25, -0.25]


def test_scores_by_hand():
    assert score(LOG_PROBS, NoPenalty()) == -2.0
    assert score(LOG_PROBS, AverageLength()) == pytest.approx(-2 / 3, rel=1e-15)
    assert score(LOG_PROBS, AverageLength(0.5)) == pytest.approx(-2 / math.sqrt(3), rel=1e-15)
    assert score(LOG_PROBS, GnmtLength(1.0)) == pytest.approx(-2 / (8 / 6), rel=1e-15)
    assert score(LOG_PROBS, GnmtLength(2.0), -0.75) == pytest.approx(-2 / (16 / 9) - 0.75, rel=1e-15)


@pytest.mark.parametrize("penalty", [AverageLength(0.0), GnmtLength(0.0)])
def test_without_weight_a_length_penalty_is_none(penalty):
    assert score(LOG_PROBS, penalty) == score(LOG_PROBS, NoPenalty())


def test_gnmt_leaves_a_single_token_as_it_is():
    assert GnmtLength(0.6).divisor(1) == 1.0


@pytest.mark.parametrize("penalty", [NoPenalty(), AverageLength(0.7), AverageLength(2.0), GnmtLength(0.6)])
def test_divisors_never_fall_and_no_tokens_score_zero(penalty):
    divisors = [penalty.divisor(n) for n in range(1, 300)]
    assert divisors == sorted(divisors)
    assert score([], penalty) == 0.0


@pytest.mark.parametrize("part", [AverageLength, GnmtLength, CoveragePenalty])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_a_weight_that_breaks_the_bound_is_refused(part, value):
    with pytest.raises(ValueError, match="at least 0"):
        part(value)


def test_coverage_by_hand():
    attended = torch.tensor([0.5, 1.75, 1.0, 0.1])
    expected = 0.3 * (math.log(0.5) + 0 + 0 + math.log(0.1))
    assert CoveragePenalty(0.3).of(attended) == pytest.approx(expected, rel=1e-6)
    assert CoveragePenalty(0.3).of(torch.zeros(0)) == 0.0


def test_a_source_position_without_any_weight_leaves_a_number():
    penalty = CoveragePenalty(1.0).of(torch.tensor([0.0, 1.0]))
    assert -100 < penalty < -80
