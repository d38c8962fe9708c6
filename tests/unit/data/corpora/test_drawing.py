"""Shapes have the areas and symmetries of geometry."""

import math

import numpy as np
import pytest

from heedful.data.corpora.drawing import SHAPES, draw, ground


def drawn(shape, side, colour=(0, 0, 0)):
    image = ground(side + 4, 255)
    draw(image, shape, colour, 3, 1, side)
    return image


def cover(shape, side):
    """The share of each pixel that is covered, from black on white."""
    return 1 - drawn(shape, side)[1 : 1 + side, 3 : 3 + side, 0] / 255


@pytest.mark.parametrize(
    "shape, area", [("circle", math.pi / 4), ("square", 1), ("triangle", 1 / 2), ("cross", 5 / 9)]
)
def test_a_shape_covers_its_area(shape, area):
    assert cover(shape, 60).mean() == pytest.approx(area, abs=0.01)


@pytest.mark.parametrize("side", [6, 7, 13])
def test_symmetries(side):
    for shape in SHAPES:
        share = cover(shape, side)
        assert np.array_equal(share, share[:, ::-1])
        upright = np.array_equal(share, share[::-1]), np.array_equal(share, share.T)
        assert upright == ((False, False) if shape == "triangle" else (True, True))
    rows = cover("triangle", side).sum(1)
    assert (np.diff(rows) >= 0).all()


def test_nothing_is_drawn_outside_of_the_square_and_all_channels_take_the_colour():
    image = drawn("square", 5, (10, 20, 30))
    assert image.shape == (9, 9, 3)
    assert [image[1:6, 3:8, c].tolist() for c in range(3)] == [[[v] * 5] * 5 for v in (10, 20, 30)]
    outside = np.ones((9, 9), bool)
    outside[1:6, 3:8] = False
    assert (image[outside] == 255).all()


def test_an_edge_is_mixed_by_what_is_covered():
    """The corner pixel of a circle of two pixels: 16 points, of which those nearer than 1 to the middle."""
    points = [(i + 0.5) / 4 - 1 for i in range(4)]
    inside = sum(u**2 + v**2 <= 1 for u in points for v in points)
    assert drawn("circle", 2, (55, 55, 55))[1, 3, 0] == math.floor(255 - 200 * inside / 16 + 0.5)
