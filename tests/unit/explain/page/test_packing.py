"""How weights are made small: the stated errors are kept, and which links are strongest."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from heedful.explain.page.packing import (
    ERROR,
    LEVELS,
    SHADES,
    encode_base64,
    pack_signed,
    quantise,
    quantise_shades,
    strongest,
)

matrices = npst.arrays(
    np.float64, npst.array_shapes(min_dims=2, max_dims=2, max_side=19), elements=st.floats(0, 1)
)


@given(matrices)
def test_a_stored_weight_is_as_near_as_promised(weights):
    assert np.abs(quantise(weights) / LEVELS - weights).max() <= ERROR * (1 + 1e-9)


def test_the_promise_cannot_be_made_smaller():
    weights = np.linspace(0, 1, 100_003)[None]
    assert np.abs(quantise(weights) / LEVELS - weights).max() > 0.99 * ERROR
    assert 0.00000762 < ERROR < 0.0000077


def test_no_weight_and_the_whole_weight_are_exact():
    np.testing.assert_array_equal(quantise(np.array([[0.0, 1.0]])), [[0, LEVELS]])


@given(
    npst.arrays(
        np.uint16, npst.array_shapes(min_dims=2, max_dims=2, max_side=40), elements=st.integers(0, 5)
    ),
    st.integers(1, 12),
)
def test_the_strongest_links_are_those_of_a_plain_sort(levels, n):
    places, kept = strongest(levels, n)
    for row, columns, values in zip(levels.tolist(), places.tolist(), kept.tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))[:n]
        assert columns == order
        assert values == [row[j] for j in order]


def test_more_columns_than_can_be_numbered_are_refused():
    with pytest.raises(ValueError, match="number of columns must be at most 65535, got 65536"):
        strongest(np.zeros((1, 65536), dtype=np.uint16))


@given(matrices)
def test_a_shade_is_as_near_as_promised(cells):
    shades, greatest = quantise_shades(cells)
    assert greatest == cells.max()
    assert np.abs(shades / SHADES * greatest - cells).max() <= greatest / SHADES / 2 * (1 + 1e-9)


def test_a_head_without_a_single_weight_has_no_shade():
    shades, greatest = quantise_shades(np.zeros((2, 3)))
    assert greatest == 0
    assert not shades.any()


@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_the_low_byte_comes_first_on_every_machine(order):
    assert base64.b64decode(encode_base64(np.array([[0x1234]], dtype=order))) == b"\x34\x12"


def test_signed_numbers_come_back_and_nothing_is_level_0():
    values = np.array([[-1.0, 0.0, 1.0], [0.3, np.nan, -0.7]])
    packed = pack_signed(values)
    levels = np.frombuffer(base64.b64decode(packed["levels"]), "<u2").reshape(packed["size"])
    assert packed["size"] == [2, 3]
    assert (levels == 0).tolist() == np.isnan(values).tolist()
    found = 2 * (levels.astype(float) - 1) / (LEVELS - 1) - 1
    np.testing.assert_allclose(found[~np.isnan(values)], values[~np.isnan(values)], atol=1 / (LEVELS - 1))
    assert [levels[0, 0], levels[0, 2]] == [1, LEVELS]
