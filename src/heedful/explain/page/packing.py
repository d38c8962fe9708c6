"""Weights made small enough for a page: whole matrices, the strongest links of each row, thumbnails
(`heedful.explain.thumbnails`).

| what | bits | away from the weight at most |
|---|---|---|
| a whole matrix | 16 a weight | `ERROR`, 0.0000077 |
| the strongest links of each row | 16 for the column, 16 for the weight | the same |
| a thumbnail | 8 a cell | half a 255th of the thumbnail's greatest cell |

Sixteen bits show four digits, and what does not matter to the fifth is not worth twice the bytes.
Everything is little-endian, row by row, in base64.
"""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVELS = 2**16 - 1
"""What weight 1 is stored as."""

ERROR = 0.5 / LEVELS
"""How far a stored weight is from the true one, at most."""

SHADES = 2**8 - 1
"""What a thumbnail's greatest cell is stored as."""

LINKS = 8
"""How many links of a row are kept where the matrix is not."""

Levels = NDArray[np.uint16]


def levels_of(weights: NDArray[np.float64]) -> Levels:
    """Weights from 0 to 1 as whole numbers from 0 to `LEVELS`, rounded."""
    return np.rint(weights * LEVELS).astype(np.uint16)


def strongest(levels: Levels, n: int = LINKS) -> tuple[Levels, Levels]:
    """The strongest links of each row: columns ``[rows, k]`` and levels ``[rows, k]``, strongest first.

    ``k = min(n, columns)``. Of equal levels the leftmost are taken.

    Raises:
        ValueError: more columns than 16 bits can number.
    """
    columns = levels.shape[1]
    if columns > LEVELS:
        raise ValueError(f"{columns} columns: a page has room for {LEVELS}")
    # Level and column in one number: no two are equal, so the choice does not hang on how ties are sorted.
    numbers = (levels.astype(np.uint32) << 16) | (LEVELS - np.arange(columns, dtype=np.uint32))
    rest = columns - min(n, columns)
    if rest:
        numbers = np.partition(numbers, rest, axis=1)[:, rest:]
    best = np.sort(numbers, axis=1)[:, ::-1]
    return (LEVELS - (best & LEVELS)).astype(np.uint16), (best >> 16).astype(np.uint16)


def shades_of(cells: NDArray[np.float64]) -> tuple[NDArray[np.uint8], float]:
    """Cells as whole numbers from 0 to `SHADES`, which is the greatest of them, and that one's value."""
    greatest = float(cells.max())
    return np.rint(cells / (greatest or 1.0) * SHADES).astype(np.uint8), greatest


def text_of(numbers: NDArray[Any]) -> str:
    """Base64 of whole numbers, the low byte first."""
    return base64.b64encode(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def signed(values: NDArray[np.float64]) -> dict[str, Any]:
    """A matrix of numbers from -1 to 1 for the page: ``size``, and ``levels`` of 16 bits.

    Level 0 is NaN, where nothing is drawn; -1 to 1 are 1 to `LEVELS`.
    """
    levels = 1 + np.rint((np.nan_to_num(values).clip(-1.0, 1.0) + 1) / 2 * (LEVELS - 1))
    return {
        "size": [*values.shape],
        "levels": text_of(np.where(np.isnan(values), 0, levels).astype(np.uint16)),
    }
