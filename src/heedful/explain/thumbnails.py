"""Downsample attention matrices to thumbnails, for overviews of all heads."""

import numpy as np
from numpy.typing import NDArray

THUMBNAIL = 48
"""Maximum rows and columns of a thumbnail."""


def thumbnail(weights: NDArray[np.float64], side: int = THUMBNAIL) -> NDArray[np.float64]:
    """Downsample to at most ``side x side`` cells, each the mean of a block of nearly equal size."""
    for axis, n in enumerate(weights.shape):
        cells = min(n, side)
        starts = np.arange(cells) * n // cells
        counts = np.expand_dims(np.diff([*starts, n]), 1 - axis)
        weights = np.add.reduceat(weights, starts, axis=axis) / counts
    return weights
