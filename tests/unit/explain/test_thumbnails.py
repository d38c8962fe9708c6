"""Thumbnails are means over areas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from heedful.explain.thumbnails import thumbnail

matrices = npst.arrays(
    np.float64, npst.array_shapes(min_dims=2, max_dims=2, max_side=19), elements=st.floats(0, 1)
)


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
