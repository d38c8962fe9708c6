"""Whether decoding may generate texts that are as long as those of the training data."""

import math

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.protocol import MaxLength
from heedful.tasks.generation.sequence_formats import Lengths

NOTICEABLE = 0.01
"""Share of targets beyond the maximum length from which there is a note."""


def long_targets_note(sources: Lengths, targets: Lengths, max_length: MaxLength) -> str | None:
    """Note that many targets are longer than what decoding generates for their sources; None if not.

    Args:
        sources: ``[N]``, number of tokens of each source.
        targets: ``[N]``, of each target, without the end token.
        max_length: of decoding; the end token counts.
    """
    different, indices = np.unique(sources, return_inverse=True)
    limits = np.array([max_length.of(n) for n in different.tolist()])[indices]
    share = float(np.mean(targets + 1 > limits)) if len(targets) else 0.0
    if share < NOTICEABLE:
        return None
    return (
        f"{share:.1%} of the training targets have more tokens than decoding.max_length allows for their "
        f"sources, so outputs would be cut; set {_remedy(sources, targets + 1, max_length)} (for 99% of them)"
    )


def _remedy(sources: Lengths, lengths: Lengths, max_length: MaxLength) -> str:
    """Return the settings with which 99% of the lengths are allowed."""
    cap = "" if max_length.cap is None else "decoding.max_length.cap=null and "
    if max_length.ratio == 0:
        return f"{cap}decoding.max_length.extra={_percentile(lengths):.0f}"
    ratios = np.maximum(lengths - max_length.extra, 0) / np.maximum(sources, 1)
    ratio = max(max_length.ratio, math.ceil(10 * _percentile(ratios)) / 10)
    return f"{cap}decoding.max_length.ratio={ratio:g}"


def _percentile(values: NDArray[np.float64] | Lengths) -> float:
    """Return the smallest value that 99% do not exceed, and fewer than 1% thus do."""
    return float(np.quantile(values, 1 - NOTICEABLE / 2, method="higher"))
