"""Arrays over patches and their joining; thumbnails are means over areas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from heedful.explain.drawing.matrix import mosaic, on_grid, thumbnail
from heedful.tasks.model_input import Axis

GRID = (3, 5)
IMAGE = Axis(("<cls>", *["x"] * 15), grid=GRID, before=1)

matrices = npst.arrays(
    np.float64, npst.array_shapes(min_dims=2, max_dims=2, max_side=19), elements=st.floats(0, 1)
)


def test_patches_lie_row_by_row_and_what_stands_before_them_is_left_out():
    values = np.arange(16.0)
    found = on_grid(values, IMAGE)
    assert found.shape == GRID
    assert (found[0, 0], found[0, 4], found[1, 0], found[2, 4]) == (1, 5, 6, 15)


def test_what_is_no_image_is_refused():
    with pytest.raises(ValueError, match="must be an image"):
        on_grid(np.ones(3), Axis(("a", "b", "c")))
    with pytest.raises(ValueError, match=r"must be of shape \(16,\), got \(15,\)"):
        on_grid(np.ones(15), IMAGE)


def test_a_mosaic_of_one_is_the_map():
    values = np.arange(15.0).reshape(GRID)
    np.testing.assert_array_equal(mosaic(values[None, None]), values)


@given(matrices, st.integers(1, 13))
def test_a_thumbnail_has_the_means_of_its_areas(weights, side):
    found = thumbnail(weights, side)
    rows, columns = weights.shape
    assert found.shape == (min(rows, side), min(columns, side))
    i, j = (np.arange(min(n, side) + 1) * n // min(n, side) for n in (rows, columns))
    for y, x in np.ndindex(found.shape):
        area = weights[i[y] : i[y + 1], j[x] : j[x + 1]]
        assert area.size
        assert found[y, x] == pytest.approx(area.mean(), abs=1e-12)
