"""What every drawing of a matrix needs first: the right shape, values from 0 to 1, words that print."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Sums of single-precision weights come as near to 1 as this.
ROUNDING = 1e-4


def checked(source: Sequence[str], target: Sequence[str], weights: Any) -> NDArray[np.float64]:
    """The weights as ``[target, source]`` floats from 0 to 1.

    Raises:
        ValueError: another shape than the words say, or a weight that is not from 0 to 1.
    """
    matrix = np.asarray(weights, dtype=float)
    if matrix.shape != (len(target), len(source)):
        raise ValueError(
            f"weights of shape {matrix.shape} for {len(target)} target and {len(source)} source words"
        )
    # Written so that NaN is refused too.
    if not bool(((matrix >= -ROUNDING) & (matrix <= 1 + ROUNDING)).all()):
        raise ValueError("a weight is not from 0 to 1")
    return matrix.clip(0.0, 1.0)


def printable(word: str) -> str:
    """The word with signs that do not print, such as those that steer a terminal, as U+FFFD."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in word)
