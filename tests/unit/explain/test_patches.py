"""What lies over an image: cosines by torch, components rebuilt, sums by loops."""

import numpy as np
import pytest
import torch

from heedful.explain.patches import (
    block_sums,
    class_map,
    on_grid,
    patch_filters,
    position_similarity,
    similarity_grids,
)
from heedful.explain.view import Axis

GRID = (3, 5)


def test_patches_lie_row_by_row_and_what_stands_before_them_is_left_out():
    image = Axis(("<cls>", *["x"] * 15), grid=GRID, before=1)
    values = np.arange(16.0)
    found = on_grid(values, image)
    assert found.shape == GRID
    assert (found[0, 0], found[0, 4], found[1, 0], found[2, 4]) == (1, 5, 6, 15)


def test_a_class_map_is_of_the_class_token_or_of_the_mean():
    weights = np.random.default_rng(4).dirichlet(np.ones(16), 16)
    image = Axis(("<cls>", *["x"] * 15), grid=GRID, before=1)
    np.testing.assert_array_equal(class_map(weights, image).ravel(), weights[0, 1:])
    plain = Axis(("x",) * 15, grid=GRID)
    inner = weights[1:, 1:]
    np.testing.assert_allclose(class_map(inner, plain).ravel(), inner.mean(axis=0))


def test_what_is_no_image_is_refused():
    with pytest.raises(ValueError, match="must be an image"):
        on_grid(np.ones(3), Axis(("a", "b", "c")))
    with pytest.raises(ValueError, match=r"must be of shape \(16,\), got \(15,\)"):
        on_grid(np.ones(15), Axis(("<cls>", *["x"] * 15), grid=GRID, before=1))


# Positions and filters


def test_similarities_are_torchs():
    table = np.random.default_rng(1).normal(size=(16, 11))
    table[5] = 0
    given_ = torch.from_numpy(table)
    wanted = torch.nn.functional.cosine_similarity(given_[:, None], given_[None], dim=-1).numpy()
    np.testing.assert_allclose(position_similarity(table), wanted, atol=1e-12)
    grids = similarity_grids(table, GRID)
    assert grids.shape == (*GRID, *GRID)
    for row, column in np.ndindex(GRID):
        np.testing.assert_allclose(grids[row, column].ravel(), wanted[1 + 5 * row + column, 1:], atol=1e-12)


def test_a_table_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match=r"at least 15 rows \(patches\), got 14"):
        similarity_grids(np.ones((14, 3)), GRID)


def filters(d=23, channels=3, patch=5, rank=4, seed=0):
    """Filters around a mean that vary in ``rank`` directions, each weaker than the one before."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(channels * patch**2, rank)))[0].T
    strengths = rng.normal(size=(d, rank)) * 10.0 ** -np.arange(rank)
    return strengths @ directions + rng.normal(size=channels * patch**2)


def test_filters_are_the_components_of_the_covariance():
    weight = filters()
    tiles, shares = patch_filters(weight, 5)
    values, vectors = np.linalg.eigh(np.cov(weight.T))
    assert tiles.shape == (4, 5, 5, 3)
    np.testing.assert_allclose(shares, values[::-1][:4] / values.sum(), rtol=1e-6)
    for number, tile in enumerate(tiles):
        component = tile.transpose(2, 0, 1).ravel() - 0.5
        component /= np.linalg.norm(component)
        assert abs(component @ vectors[:, -1 - number]) == pytest.approx(1, abs=1e-6)
        assert tile.max() == 1
        assert tile.min() >= 0


def test_filters_may_be_those_of_a_convolution():
    weight = filters()
    linear, shares = patch_filters(weight, 5, count=2)
    convolution, _ = patch_filters(weight.reshape(23, 3, 5, 5), 5, count=2)
    np.testing.assert_array_equal(convolution, linear)
    assert linear.shape == (2, 5, 5, 3)
    assert len(shares) == 2


def test_the_sign_of_the_filters_does_not_matter():
    weight = filters()
    np.testing.assert_allclose(patch_filters(-weight, 5)[0], patch_filters(weight, 5)[0], atol=1e-9)


def test_a_channel_stays_with_its_colour():
    """Filters that only vary in one pixel of one channel have one component, with that pixel."""
    weight = np.ones((7, 3, 5, 5))
    weight[:, 2, 1, 4] = range(7)
    tiles, shares = patch_filters(weight, 5)
    wanted = np.full((1, 5, 5, 3), 0.5)
    wanted[0, 1, 4, 2] = 1
    np.testing.assert_allclose(tiles, wanted, atol=1e-12)
    np.testing.assert_allclose(shares, [1])


def test_filters_that_do_not_vary_have_no_components():
    tiles, shares = patch_filters(np.ones((7, 2, 5, 5)), 5)
    assert (tiles.shape, shares.shape) == ((0, 5, 5, 2), (0,))


def test_filters_of_another_size_are_refused():
    with pytest.raises(ValueError, match="multiple of 5 x 5, got 76"):
        patch_filters(np.ones((7, 76)), 5)


@pytest.mark.parametrize(("size", "grid"), [((6, 6), (2, 3)), ((7, 11), (3, 5)), ((5, 2), (5, 1))])
def test_sums_over_patches_are_those_of_a_loop(size, grid):
    values = np.random.default_rng(3).normal(size=size)
    wanted = np.zeros(grid)
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            # The last patch that begins no later than the pixel.
            r, c = (
                max(n for n in range(g) if n * s // g <= at)
                for at, g, s in zip((i, j), grid, size, strict=True)
            )
            wanted[r, c] += value
    np.testing.assert_allclose(block_sums(values, grid), wanted)


def test_more_patches_than_pixels_are_refused():
    with pytest.raises(ValueError, match="patches"):
        block_sums(np.ones((2, 3)), (3, 3))
