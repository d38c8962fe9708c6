"""Experiments on learning rates: schedules by their formulas, Adam by hand."""

import math

import numpy as np
import pytest
from sweep import Laws, curve, value

from heedful.lab import learning_rates
from heedful.training.optimizers import AdamConfig


class TestExperiments(Laws):
    family = "learning_rates"


def test_the_peak_of_the_schedule():
    assert value("schedule-without-width", "peak", control=True) == pytest.approx(6.99e-4, rel=1e-3)
    assert value("schedule-without-width", "peak") == pytest.approx(0.0158, rel=1e-3)
    assert value("schedule-without-width", "update of the peak") == 4000
    assert value("schedule-without-width", "largest ratio") == pytest.approx(math.sqrt(512))
    assert value("schedule-without-width", "largest ratio", control=True) == pytest.approx(1)


@pytest.mark.parametrize("s", [1, 399, 4000, 4001, 9999])
def test_the_attempts_are_the_lectures(s):
    assert learning_rates.first_attempt(s) == pytest.approx(1 / math.sqrt(s))
    assert learning_rates.second_attempt(s) == pytest.approx(s / 4000 / math.sqrt(4000))
    assert learning_rates.pieces(s) == pytest.approx(min(1 / math.sqrt(s), s / 4000 / math.sqrt(4000)))


def test_the_pieces_meet_at_4000_alone():
    name = "schedule-as-minimum"
    assert value(name, "updates at which") == 0
    assert value(name, "updates at which", control=True) == 4000 - 2000 - 1
    for control in (False, True):
        assert value(name, "how often", control) == 1
        assert value(name, "the first time", control) == 4000


def test_a_schedule_that_takes_no_minimum_is_found(monkeypatch):
    monkeypatch.setattr(learning_rates.Warmup, "rate", lambda self, s: max(s**-0.5, s * 4000**-1.5))
    assert learning_rates._is_the_minimum(4000, "short").verdict == "is wrong"


def test_both_attempts_are_drawn():
    steps, rates = curve("schedule-without-width", 0, "attempt 2: s 4000^-1.5")
    np.testing.assert_allclose(rates, np.asarray(steps) / 4000**1.5)
    steps, rates = map(np.asarray, curve("schedule-without-width", 1, "with d_model^-0.5"))
    np.testing.assert_allclose(rates, 512**-0.5 * np.minimum(steps**-0.5, steps / 4000**1.5))


@pytest.mark.parametrize("beta2, expected", [(0.98, 0.1 / math.sqrt(0.02)), (0.999, 0.1 / math.sqrt(0.001))])
def test_adams_first_steps(beta2, expected):
    config = AdamConfig(beta2=beta2)
    assert learning_rates._uncorrected(config, 1.0, 1)[0] == pytest.approx(expected)
    for gradient in (1e-4, -3.0):
        lengths = learning_rates._adam(config, gradient, 20)
        assert lengths == pytest.approx([math.copysign(1, gradient)] * 20, rel=1e-4)


def test_adams_steps_by_hand_for_a_tenth_step():
    m, v = 1 - 0.9**10, 1 - 0.98**10
    assert learning_rates._uncorrected(AdamConfig(), 1.0, 10)[9] == pytest.approx(m / math.sqrt(v))
    assert value("adam-first-steps", "step 10", control=True) == pytest.approx(m / math.sqrt(v))
    assert value("adam-first-steps", "first step, gradient 1", control=True) == pytest.approx(
        0.1 / math.sqrt(0.02)
    )
