"""A matrix made small, for all heads at a glance: on the page, and in images."""

import numpy as np
from numpy.typing import NDArray

THUMBNAIL = 48
"""Cells along the side of a thumbnail, at most."""


def thumbnail(weights: NDArray[np.float64], side: int = THUMBNAIL) -> NDArray[np.float64]:
    """Means over areas, ``side x side`` of them at most, as equal as whole rows and columns can be."""
    for axis, n in enumerate(weights.shape):
        cells = min(n, side)
        starts = np.arange(cells) * n // cells
        counts = np.expand_dims(np.diff([*starts, n]), 1 - axis)
        weights = np.add.reduceat(weights, starts, axis=axis) / counts
    return weights
