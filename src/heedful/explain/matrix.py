"""Check matrices of weights and replace unprintable characters, for all drawings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Tolerance for sums of fp32 weights.
ROUNDING = 1e-4


def checked(source: Sequence[str], target: Sequence[str], weights: Any) -> NDArray[np.float64]:
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


def printable(word: str) -> str:
    """Replace characters that are not printable, such as terminal control characters, by U+FFFD."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in word)
