"""Compute numbers about image patches: attention over a grid, similarity of positions, patch filters.

Pure functions on arrays, in fp64; `heedful.explain.drawings` draws the results.
"""

from typing import Any

import numpy as np

from heedful.explain.flow import Numbers
from heedful.tasks.model_input import Axis


def on_grid(values: Any, side: Axis) -> Numbers:
    """Arrange values of image tokens on the patch grid; values of tokens before the patches are dropped.

    Args:
        values: ``[K]``, for example the attention of one query.
        side: the axis of the image.

    Returns:
        ``[rows, columns]``. Attention sums to 1 minus the weight of the class token.

    Raises:
        ValueError: the side is not an image, or has a different number of tokens.
    """
    numbers = np.asarray(values, dtype=float)
    if side.grid is None:
        raise ValueError("side must be an image, got one without a patch grid")
    rows, columns = side.grid
    if numbers.shape != (side.before + rows * columns,):
        raise ValueError(f"values must be of shape ({side.before + rows * columns},), got {numbers.shape}")
    return numbers[side.before :].reshape(rows, columns)


def block_sums(values: Numbers, grid: tuple[int, int]) -> Numbers:
    """Sum pixels ``[H, W]`` over the patches of a grid, ``[rows, columns]``.

    Patch i of n covers the pixels from ``floor(i H / n)`` up to ``floor((i + 1) H / n)``: all patches have
    the same size if n divides H.

    Raises:
        ValueError: the grid has more rows or columns than there are pixels.
    """
    if any(n > size for n, size in zip(grid, values.shape, strict=True)):
        raise ValueError(f"the grid must not exceed the image of {values.shape} pixels, got {grid} patches")
    down, across = (np.arange(n) * size // n for n, size in zip(grid, values.shape, strict=True))
    return np.add.reduceat(np.add.reduceat(values, down, axis=0), across, axis=1)


def class_map(weights: Any, side: Axis) -> Numbers:
    """Return the attention of the class token on the patch grid; without one, the mean of all queries.

    Args:
        weights: ``[T, T]`` of a head, of a mean of heads, or a rollout.
        side: the axis of the image; its class token is the first token.
    """
    w = np.asarray(weights, dtype=float)
    return on_grid(w[0] if side.before else w.mean(axis=0), side)


# Model parameters, independent of the input


def position_similarity(table: Any) -> Numbers:
    """Return the cosine similarity ``<p_i, p_j> / (|p_i| |p_j|)`` of each pair of rows of a table ``[N, d]``.

    The similarities of a zero vector are 0.
    """
    rows = np.asarray(table, dtype=float)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit @ unit.T


def similarity_grids(table: Any, grid: tuple[int, int]) -> Numbers:
    """Return the `position_similarity` of image patches (Dosovitskiy et al. 2021, figure 7, centre).

    Args:
        table: ``[N, d]``; rows before those of the grid (class token) are ignored.
        grid: rows and columns.

    Returns:
        ``[rows, columns, rows, columns]``: for each patch, its similarity to every patch.

    Raises:
        ValueError: the table has fewer rows than the grid has patches.
    """
    before = len(table) - grid[0] * grid[1]
    if before < 0:
        raise ValueError(f"table must have at least {grid[0] * grid[1]} rows (patches), got {len(table)}")
    return position_similarity(np.asarray(table)[before:]).reshape(*grid, *grid)


def patch_filters(weight: Any, patch: int, count: int = 28) -> tuple[Numbers, Numbers]:
    """Return the principal components of the patch projection (Dosovitskiy et al. 2021, figure 7, left).

    The components v_1, v_2, ... are the right singular vectors of the d filters (vectors of C P² values),
    after subtracting their mean. The sign of a component is arbitrary; it is chosen so that the entry with
    the largest magnitude is positive. The tile of a component is ``1/2 + v / (2 max |v|)``, so that 0 is
    grey.

    Args:
        weight: ``[d, C P²]``, each filter by channel, then by row; or ``[d, C, P, P]``.
        patch: P.
        count: maximum number of components; there are at most d - 1.

    Returns:
        Tiles ``[count, P, P, C]`` with values from 0 to 1, and the share of the variance that each explains.

    Raises:
        ValueError: the number of values per filter is not a multiple of P².
    """
    filters = np.asarray(weight, dtype=float).reshape(len(weight), -1)
    if filters.shape[1] % patch**2:
        raise ValueError(f"filter size must be a multiple of {patch} x {patch}, got {filters.shape[1]}")
    _, strengths, components = np.linalg.svd(filters - filters.mean(axis=0), full_matrices=False)
    real = strengths > strengths.max(initial=0) * max(filters.shape) * np.finfo(float).eps
    components = components[real][:count]
    greatest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    channels = filters.shape[1] // patch**2
    patches = (0.5 + components / (2 * greatest)).reshape(len(components), channels, patch, patch)
    shares = strengths[real] ** 2 / (strengths**2).sum() if real.any() else strengths[real]
    return patches.transpose(0, 2, 3, 1), shares[:count]


def mosaic(maps: Numbers) -> Numbers:
    """Join maps ``[rows, columns, h, w, ...]`` into one, separated by lines of NaN.

    Returns:
        ``[rows (h + 1) - 1, columns (w + 1) - 1, ...]``.
    """
    rows, columns, h, w = maps.shape[:4]
    framed = np.full((rows, columns, h + 1, w + 1, *maps.shape[4:]), np.nan)
    framed[:, :, :h, :w] = maps
    joined = framed.swapaxes(1, 2).reshape(rows * (h + 1), columns * (w + 1), *maps.shape[4:])
    return joined[:-1, :-1]


def tiled(tiles: Any, columns: int) -> Numbers:
    """Arrange tiles ``[n, P, P, C]`` in rows, from left to right, with NaN between them and in empty cells.

    Args:
        tiles: as returned by `patch_filters`.
        columns: maximum number of tiles per row.

    Raises:
        ValueError: the shape is different, or there are no tiles.
    """
    given = np.asarray(tiles, dtype=float)
    if given.ndim != 4 or not len(given):
        raise ValueError(f"tiles must be [n, P, P, channels] with n > 0, got {given.shape}")
    columns = min(columns, len(given))
    rows = -(-len(given) // columns)
    places = np.full((rows * columns, *given.shape[1:]), np.nan)
    places[: len(given)] = given
    return mosaic(places.reshape(rows, columns, *given.shape[1:]))
