"""Experiments on other positions than sinusoids: figures by formula."""

import pytest
from sweep import Laws, curve, hold_what_is_expected

from heedful.lab import positions
from heedful.nn.positions import LearnedPositions


class TestExperiments(Laws):
    family = "positions"


def test_what_is_expected_is_measured():
    hold_what_is_expected("one-hot-distances", abs=1e-9)
    hold_what_is_expected("constant-positions", abs=1e-4)
    for control in (False, True):
        hold_what_is_expected("learned-positions", control)


def test_a_table_ends():
    assert positions._refused(LearnedPositions(5, 2)) == 5


def test_what_was_never_trained_is_a_guess():
    places, right = curve("learned-positions", 0, "learned table")
    assert list(places) == list(range(1, 2 * positions.TRAINED))
    beyond = right[positions.TRAINED :]
    assert sum(beyond) / len(beyond) == pytest.approx(1 / positions.VOCABULARY, abs=0.2)
