"""Formulas that do not fit as printed, and do as corrected."""

import pytest
from sweep import Laws, measured

from heedful.lab import shapes


class TestExperiments(Laws):
    family = "shapes"


@pytest.mark.parametrize("shape", shapes.SHAPES, ids=lambda shape: f"{shape.lecture} {shape.printed}")
def test_shapes_do_not_fit_as_printed_and_do_corrected(shape):
    assert shapes.shape_of(shape.as_printed) != shape.wanted
    assert shapes.shape_of(shape.corrected) == shape.wanted


def test_all_formulas_are_counted():
    assert measured("printed-shapes", "formulas that give").expected == len(shapes.SHAPES)
    control = measured("printed-shapes", "formulas that give", control=True)
    assert control.value == control.expected
