"""Check, rescale and arrange matrices of weights, and replace unprintable characters, for all drawings."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heedful.text.scripts import JOINERS

if TYPE_CHECKING:
    from heedful.tasks.model_input import Axis

Numbers = NDArray[np.float64]

# Tolerance for sums of fp32 weights.
ROUNDING = 1e-4

THUMBNAIL = 48
"""Maximum rows and columns of a thumbnail."""

N_STRONGEST = 3
"""Maximum number of weights shown per row."""

MIN_WEIGHT = 0.005
"""Smallest weight shown; smaller ones would be rounded to 0.00."""

SMALL = 1e-2
"""Below this maximum, numbers are shown in scientific notation."""

Links = list[tuple[str, list[tuple[str, float]]]]
"""For each row its name, and the names and weights of columns."""


def check_weights(source: Sequence[str], target: Sequence[str], weights: ArrayLike) -> Numbers:
    """Return the weights ``[target, source]`` in fp64, clipped to 0 to 1.

    Raises:
        ValueError: the shape does not match the words, or a weight is not between 0 and 1.
    """
    matrix = np.asarray(weights, dtype=float)
    if matrix.shape != (len(target), len(source)):
        raise ValueError(f"weights must be of shape ({len(target)}, {len(source)}), got {matrix.shape}")
    # NaN fails both comparisons.
    if not bool(((matrix >= -ROUNDING) & (matrix <= 1 + ROUNDING)).all()):
        raise ValueError("weights must be between 0 and 1")
    return matrix.clip(0.0, 1.0)


def marked(word: str) -> str:
    """Return a word that the model reads as ``<unk>``, marked."""
    return f"{word} [unknown]"


def printable(word: str) -> str:
    """Replace characters that are not printable, such as terminal control characters, by U+FFFD.

    Joiners, which change the shape of their neighbours (in Persian, and in emoji of several), are kept.
    """
    return "".join(
        character if character.isprintable() or character in JOINERS else "\N{REPLACEMENT CHARACTER}"
        for character in word
    )


def strongest_links(
    rows: Sequence[str], columns: Sequence[str], weights: Numbers, n: int = N_STRONGEST
) -> Links:
    """Return, for each row, its name and the names of the columns with the largest weights."""
    links = []
    for name, row in zip(rows, weights, strict=True):
        top = np.argsort(-row, kind="stable")[:n]
        links.append((name, [(columns[i], float(row[i])) for i in top if row[i] >= MIN_WEIGHT]))
    return links


def number_format(values: Iterable[float]) -> str:
    """Return the format of numbers: 4 decimal places, or scientific notation if all are small.

    Numbers have a sign if one of them is negative.
    """
    numbers = [*values]
    sign = "+" if min(numbers, default=0) < 0 else ""
    return sign + (".3e" if 0 < max(map(abs, numbers), default=0) < SMALL else ".4f")


def on_grid(values: ArrayLike, axis: "Axis") -> Numbers:
    """Arrange values of image tokens on the patch grid; values of tokens before the patches are dropped.

    Args:
        values: ``[K]``, for example the attention of one query.
        axis: the axis of the image.

    Returns:
        ``[rows, columns]``. Attention sums to 1 minus the weight of the class token.

    Raises:
        ValueError: the axis is not an image, or has a different number of tokens.
    """
    array = np.asarray(values, dtype=float)
    if axis.grid is None:
        raise ValueError("axis must be an image, got one without a patch grid")
    rows, columns = axis.grid
    if array.shape != (axis.before + rows * columns,):
        raise ValueError(f"values must be of shape ({axis.before + rows * columns},), got {array.shape}")
    return array[axis.before :].reshape(rows, columns)


def unit_rows(w: Numbers) -> Numbers:
    """Rescale rows along the last axis to sum 1; rows of zeros are unchanged."""
    sums = w.sum(axis=-1, keepdims=True)
    return np.divide(w, sums, out=np.zeros_like(w), where=sums > 0)


def mosaic(maps: Numbers) -> Numbers:
    """Join maps ``[rows, columns, h, w, ...]`` into one, separated by lines of NaN.

    Returns:
        ``[rows (h + 1) - 1, columns (w + 1) - 1, ...]``.
    """
    rows, columns, h, w = maps.shape[:4]
    padded = np.full((rows, columns, h + 1, w + 1, *maps.shape[4:]), np.nan)
    padded[:, :, :h, :w] = maps
    joined = padded.swapaxes(1, 2).reshape(rows * (h + 1), columns * (w + 1), *maps.shape[4:])
    return joined[:-1, :-1]


def thumbnail(weights: Numbers, side: int = THUMBNAIL) -> Numbers:
    """Downsample to at most ``side x side`` cells, each the mean of a block of nearly equal size."""
    for axis, n in enumerate(weights.shape):
        cells = min(n, side)
        starts = np.arange(cells) * n // cells
        counts = np.expand_dims(np.diff([*starts, n]), 1 - axis)
        weights = np.add.reduceat(weights, starts, axis=axis) / counts
    return weights
