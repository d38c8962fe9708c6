"""Compress attention weights for the HTML page: whole matrices, the largest weights of each row, thumbnails.

| what | bits | maximum error |
|---|---|---|
| a whole matrix | 16 per weight | `ERROR`, 0.0000077 |
| the largest weights of each row | 16 for the column, 16 for the weight | `ERROR` |
| a thumbnail | 8 per cell | half of 1/255 of the largest cell |

The page shows four decimal places; 16 bits are enough for them. All data are little-endian, in row-major
order, encoded in base64.
"""

import base64

import numpy as np
from numpy.typing import NDArray

from heedful.typing import JsonObject

LEVELS = 2**16 - 1
"""Integer that stands for weight 1."""

ERROR = 0.5 / LEVELS
"""Maximum difference between a stored weight and the exact one."""

SHADES = 2**8 - 1
"""Integer that stands for the largest cell of a thumbnail."""

LINKS = 8
"""Number of weights stored per row if the matrix is not stored whole."""

Levels = NDArray[np.uint16]


def quantise(weights: NDArray[np.float64]) -> Levels:
    """Quantise weights from 0 to 1 to integers from 0 to `LEVELS`, rounded."""
    return np.rint(weights * LEVELS).astype(np.uint16)


def strongest(levels: Levels, n: int = LINKS) -> tuple[Levels, Levels]:
    """Return the largest weights of each row, in descending order.

    Args:
        levels: ``[rows, columns]``.
        n: number of weights per row.

    Returns:
        Their columns ``[rows, k]`` and levels ``[rows, k]``, with ``k = min(n, columns)``. Of equal levels
        the leftmost come first.

    Raises:
        ValueError: there are more than `LEVELS` columns.
    """
    columns = levels.shape[1]
    if columns > LEVELS:
        raise ValueError(f"number of columns must be at most {LEVELS}, got {columns}")
    # Level and column in one integer: all differ, so the result does not depend on how ties are sorted.
    sort_keys = (levels.astype(np.uint32) << 16) | (LEVELS - np.arange(columns, dtype=np.uint32))
    n_dropped = columns - min(n, columns)
    if n_dropped:
        sort_keys = np.partition(sort_keys, n_dropped, axis=1)[:, n_dropped:]
    largest = np.sort(sort_keys, axis=1)[:, ::-1]
    return (LEVELS - (largest & LEVELS)).astype(np.uint16), (largest >> 16).astype(np.uint16)


def quantise_shades(cells: NDArray[np.float64]) -> tuple[NDArray[np.uint8], float]:
    """Return cells quantised to integers from 0 to `SHADES` (the largest cell), and the largest value."""
    largest = float(cells.max())
    return np.rint(cells / (largest or 1.0) * SHADES).astype(np.uint8), largest


def encode_base64(integers: NDArray[np.integer]) -> str:
    """Encode integers in base64, little-endian."""
    return base64.b64encode(integers.astype(integers.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def pack_signed(values: NDArray[np.float64]) -> JsonObject:
    """Return a matrix of numbers from -1 to 1 for the page: ``size``, and ``levels`` of 16 bits.

    Level 0 stands for NaN, which the page leaves empty; levels 1 to `LEVELS` stand for -1 to 1.
    """
    levels = 1 + np.rint((np.nan_to_num(values).clip(-1.0, 1.0) + 1) / 2 * (LEVELS - 1))
    return {
        "size": [*values.shape],
        "levels": encode_base64(np.where(np.isnan(values), 0, levels).astype(np.uint16)),
    }
