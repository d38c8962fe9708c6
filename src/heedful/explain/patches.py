"""What lies over an image: numbers of its patches and pixels. And what the tables and filters look like that
a model of images learned once, for all inputs.

Plain functions on arrays, in double precision; what draws them is in `heedful.explain.drawings`.
"""

from typing import Any

import numpy as np

from heedful.explain.flow import Numbers
from heedful.explain.view import Axis


def on_grid(values: Any, side: Axis) -> Numbers:
    """What a query gives to the patches of an image, laid out over it, without what stands before them.

    Args:
        values: ``[K]``.
        side: the image's.

    Returns:
        ``[rows, columns]``; it sums to less than 1 by what the class token got.

    Raises:
        ValueError: the side is no image, or has another number of tokens.
    """
    numbers = np.asarray(values, dtype=float)
    if side.grid is None:
        raise ValueError("the side has no grid: it is no image")
    rows, columns = side.grid
    if numbers.shape != (side.before + rows * columns,):
        raise ValueError(f"{numbers.shape} values for {side.before} tokens and {rows} x {columns} patches")
    return numbers[side.before :].reshape(rows, columns)


def block_sums(values: Numbers, grid: tuple[int, int]) -> Numbers:
    """Pixels ``[H, W]`` summed over the patches of a grid, ``[rows, columns]``.

    Patch i of n reaches from pixel ``floor(i H / n)`` to ``floor((i + 1) H / n)``: all are alike where n
    divides H.

    Raises:
        ValueError: the grid has more rows or columns than there are pixels.
    """
    if any(n > size for n, size in zip(grid, values.shape, strict=True)):
        raise ValueError(f"{grid} patches in {values.shape} pixels")
    down, across = (np.arange(n) * size // n for n, size in zip(grid, values.shape, strict=True))
    return np.add.reduceat(np.add.reduceat(values, down, axis=0), across, axis=1)


def class_map(weights: Any, side: Axis) -> Numbers:
    """`on_grid` of the class token of an image that looks at itself; of the mean of queries without one.

    Args:
        weights: ``[T, T]`` of a head, of a mean of heads, or a rollout.
        side: the image's; its class token is the first.
    """
    w = np.asarray(weights, dtype=float)
    return on_grid(w[0] if side.before else w.mean(axis=0), side)


# Weights that are learned once, not for each input


def position_similarity(table: Any) -> Numbers:
    """Cosines ``<p_i, p_j> / (|p_i| |p_j|)`` of every two rows of a table of positions ``[N, d]``.

    A row of zeros is like no other: its cosines are 0.
    """
    rows = np.asarray(table, dtype=float)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit @ unit.T


def similarity_grids(table: Any, grid: tuple[int, int]) -> Numbers:
    """`position_similarity` of the patches of an image (Dosovitskiy et al. 2021, figure 7, centre).

    Args:
        table: ``[N, d]``; rows before those of the grid (of a class token) are left out.
        grid: rows and columns.

    Returns:
        ``[rows, columns, rows, columns]``: for each patch a map of how like the others it is.

    Raises:
        ValueError: the table has fewer rows than the grid has patches.
    """
    before = len(table) - grid[0] * grid[1]
    if before < 0:
        raise ValueError(f"a table of {len(table)} positions for {grid[0]} x {grid[1]} patches")
    return position_similarity(np.asarray(table)[before:]).reshape(*grid, *grid)


def patch_filters(weight: Any, patch: int, count: int = 28) -> tuple[Numbers, Numbers]:
    """Principal components of the projection of patches, as tiles (Dosovitskiy et al. 2021, figure 7, left).

    The d filters, vectors of C P² pixels, less their mean, have the components v_1, v_2 … (right singular
    vectors). Signs of components mean nothing: the greatest number of each is made positive. Each is drawn
    as ``1/2 + v / (2 max |v|)``, so that 0 is grey.

    Args:
        weight: ``[d, C P²]``, each filter channel by channel and row by row, or ``[d, C, P, P]``.
        patch: P.
        count: how many components at most; there are no more than d - 1.

    Returns:
        The tiles ``[count, P, P, C]`` from 0 to 1, and the share of the variance that each explains.

    Raises:
        ValueError: the filters are not square or have another size.
    """
    filters = np.asarray(weight, dtype=float).reshape(len(weight), -1)
    if filters.shape[1] % patch**2:
        raise ValueError(f"filters of {filters.shape[1]} numbers are no channels of {patch} x {patch} pixels")
    _, strengths, components = np.linalg.svd(filters - filters.mean(axis=0), full_matrices=False)
    real = strengths > strengths.max(initial=0) * max(filters.shape) * np.finfo(float).eps
    components = components[real][:count]
    greatest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    channels = filters.shape[1] // patch**2
    patches = (0.5 + components / (2 * greatest)).reshape(len(components), channels, patch, patch)
    shares = strengths[real] ** 2 / (strengths**2).sum() if real.any() else strengths[real]
    return patches.transpose(0, 2, 3, 1), shares[:count]


def mosaic(maps: Numbers) -> Numbers:
    """Maps ``[rows, columns, h, w, ...]`` laid side by side with a line of NaN between them.

    Returns:
        ``[rows (h + 1) - 1, columns (w + 1) - 1, ...]``.
    """
    rows, columns, h, w = maps.shape[:4]
    framed = np.full((rows, columns, h + 1, w + 1, *maps.shape[4:]), np.nan)
    framed[:, :, :h, :w] = maps
    joined = framed.swapaxes(1, 2).reshape(rows * (h + 1), columns * (w + 1), *maps.shape[4:])
    return joined[:-1, :-1]


def tiled(tiles: Any, columns: int) -> Numbers:
    """Tiles ``[n, P, P, C]`` left to right and downwards, with NaN between them and where there is none.

    Args:
        tiles: as `patch_filters` makes them.
        columns: how many stand beside each other, where there are so many.

    Raises:
        ValueError: another shape, or no tiles.
    """
    given = np.asarray(tiles, dtype=float)
    if given.ndim != 4 or not len(given):
        raise ValueError(f"tiles are [n, P, P, channels], not of shape {given.shape}")
    columns = min(columns, len(given))
    rows = -(-len(given) // columns)
    places = np.full((rows * columns, *given.shape[1:]), np.nan)
    places[: len(given)] = given
    return mosaic(places.reshape(rows, columns, *given.shape[1:]))
