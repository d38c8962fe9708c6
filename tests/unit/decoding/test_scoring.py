import math

import pytest
import torch

from heedful.decoding.beam import BeamConfig
from heedful.decoding.scoring import AverageLength, GnmtLength, NoPenalty, coverage_penalty, score

LOG_PROBS = [-0.5, -1.25, -0.25]


def test_scores_by_hand():
    assert score(LOG_PROBS, NoPenalty()) == -2.0
    assert score(LOG_PROBS, AverageLength()) == pytest.approx(-2 / 3, rel=1e-15)
    assert score(LOG_PROBS, AverageLength(alpha=0.5)) == pytest.approx(-2 / math.sqrt(3), rel=1e-15)
    assert score(LOG_PROBS, GnmtLength(alpha=1.0)) == pytest.approx(-2 / (8 / 6), rel=1e-15)
    assert score(LOG_PROBS, GnmtLength(alpha=2.0), -0.75) == pytest.approx(-2 / (16 / 9) - 0.75, rel=1e-15)


@pytest.mark.parametrize("penalty", [AverageLength(alpha=0.0), GnmtLength(alpha=0.0)])
def test_without_weight_a_length_penalty_is_none(penalty):
    assert score(LOG_PROBS, penalty) == score(LOG_PROBS, NoPenalty())


def test_gnmt_leaves_a_single_token_as_it_is():
    assert GnmtLength(alpha=0.6).divisor(1) == 1.0


@pytest.mark.parametrize(
    "penalty", [NoPenalty(), AverageLength(alpha=0.7), AverageLength(alpha=2.0), GnmtLength(alpha=0.6)]
)
def test_divisors_never_fall_and_no_tokens_score_zero(penalty):
    divisors = [penalty.divisor(n) for n in range(1, 300)]
    assert divisors == sorted(divisors)
    assert score([], penalty) == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda value: AverageLength(alpha=value),
        lambda value: GnmtLength(alpha=value),
        lambda value: BeamConfig(coverage=value),
    ],
)
@pytest.mark.parametrize(
    "value, why",
    [(-0.1, "greater than or equal to 0"), (math.nan, "finite number"), (math.inf, "finite number")],
)
def test_a_weight_that_breaks_the_bound_is_refused(make, value, why):
    with pytest.raises(ValueError, match=why):
        make(value)


def test_coverage_by_hand():
    attended = torch.tensor([0.5, 1.75, 1.0, 0.1])
    expected = 0.3 * (math.log(0.5) + 0 + 0 + math.log(0.1))
    assert coverage_penalty(0.3, attended) == pytest.approx(expected, rel=1e-6)
    assert coverage_penalty(0.3, torch.zeros(0)) == 0.0


def test_a_source_position_without_any_weight_leaves_a_number():
    penalty = coverage_penalty(1.0, torch.tensor([0.0, 1.0]))
    assert -100 < penalty < -80
