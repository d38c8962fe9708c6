"""Mean attention distances equal loops."""

import numpy as np
import pytest

from heedful.explain.views.distances import image_distance, mean_distance, patch_distances, token_distance

H, T, S = 3, 7, 5


def attention(shape, seed=0):
    """Random weights whose rows sum to 1."""
    weights = np.random.default_rng(seed).random(shape) ** 3
    return weights / weights.sum(axis=-1, keepdims=True)


def test_distances_in_tokens_equal_loops():
    weights = attention((H, T, T))
    wanted = [sum(weights[h, i, j] * abs(i - j) for i in range(T) for j in range(T)) / T for h in range(H)]
    np.testing.assert_allclose(token_distance(weights), wanted, rtol=1e-12)
    np.testing.assert_allclose(token_distance(np.eye(T)[None]), [0])
    np.testing.assert_allclose(token_distance(np.eye(T)[None, ::-1]), [24 / 7])


GRID, PATCH = (3, 5), 7


@pytest.mark.parametrize("before", [0, 1, 2])
def test_distances_in_pixels_equal_loops(before):
    rows, columns = GRID
    n = before + rows * columns
    weights = attention((H, n, n), 5)
    wanted = []
    for h in range(H):
        total = 0.0
        for i in range(rows * columns):
            given_ = sum(weights[h, before + i, before + j] for j in range(rows * columns))
            for j in range(rows * columns):
                down, across = (i // columns - j // columns) * PATCH, (i % columns - j % columns) * PATCH
                total += weights[h, before + i, before + j] / given_ * (down**2 + across**2) ** 0.5
        wanted.append(total / (rows * columns))
    np.testing.assert_allclose(image_distance(weights, GRID, PATCH, before), wanted, rtol=1e-12)


def test_a_patch_knows_its_neighbours():
    far = patch_distances(GRID, PATCH)
    assert far.shape == (15, 15)
    assert (far[0, 1], far[0, 5], far[0, 6]) == (7, 7, pytest.approx(7 * 2**0.5))
    assert far[4, 5] == pytest.approx(7 * 17**0.5)  # the end of a row is far from the beginning of the next
    np.testing.assert_array_equal(far, far.T)


def test_what_the_class_token_gets_changes_no_distance():
    weights = attention((H, 16, 16), 3)
    more = weights * 0.25
    more[:, :, 0] += 0.75
    np.testing.assert_allclose(
        image_distance(more, GRID, PATCH, 1), image_distance(weights, GRID, PATCH, 1), rtol=1e-12
    )
    # A patch that looks at the class token alone says nothing.
    weights[:, 3] = 0
    weights[:, 3, 0] = 1
    kept = [i for i in range(1, 16) if i != 3]
    inner = weights[:, kept, 1:]
    far = patch_distances(GRID, PATCH)[[i - 1 for i in kept]]
    np.testing.assert_allclose(image_distance(weights, GRID, PATCH, 1), mean_distance(inner, far), rtol=1e-12)


def test_a_head_that_only_looks_at_the_class_token_has_no_distance():
    weights = np.zeros((2, 16, 16))
    weights[0, :, 0] = 1
    weights[1] = np.eye(16)
    np.testing.assert_array_equal(image_distance(weights, GRID, PATCH, 1), [np.nan, 0])


def test_distances_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="distances of shape"):
        mean_distance(attention((H, T, S)), patch_distances(GRID, PATCH))
    with pytest.raises(ValueError):
        token_distance(attention((H, T, S)))
    with pytest.raises(ValueError):
        image_distance(attention((H, 16, 16)), GRID, PATCH)
