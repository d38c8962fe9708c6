"""Readers with positions that are learned or joined otherwise: figures by formula."""

import pytest
from sweep import Laws, curve, hold_what_is_expected, value

from heedful.lab.experiments import readers
from heedful.nn.positions import LearnedPositions


class TestExperiments(Laws):
    family = "readers"


def test_what_is_expected_is_measured():
    for control in (False, True):
        hold_what_is_expected("learned-positions", control)


def test_a_table_ends():
    assert readers._first_refused(LearnedPositions(5, 2)) == 5


def test_what_was_never_trained_is_a_guess():
    places, right = curve("learned-positions", 0, "learned table")
    assert list(places) == list(range(1, 2 * readers.TRAINED))
    beyond = right[readers.TRAINED :]
    assert sum(beyond) / len(beyond) == pytest.approx(1 / readers.VOCABULARY, abs=0.2)


def test_a_product_with_a_concatenation_is_a_sum_of_products():
    assert readers.sum_of_products() < 1e-12


def test_readers_that_differ_in_how_positions_are_joined_are_as_wide():
    for name, make in readers.COMBINATIONS.items():
        reader = readers._Reader(make())
        assert reader.positions.output_width(reader.embedding.embedding_dim) == readers.WIDTH, name


def test_what_stands_beside_must_tell_positions():
    assert value("concatenated-positions", "right, concatenated") > 95
    assert value("concatenated-positions", "right, added") > 95
    assert value("concatenated-positions", "right, concatenated zeros", control=True) < 60
    places, right = curve("concatenated-positions", 0, "concatenated zeros", control=True)
    assert list(places) == list(range(1, readers.TRAINED))
    # Without positions all that was read before is alike: the more there is, the less is known.
    assert right[0] > right[-1]
