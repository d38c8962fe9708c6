"""How well numbers are foretold: correlations and the squared error."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.tasks.metrics.score import Score, check_lengths

Numbers = NDArray[np.float64]


def pearson(x: Numbers, y: Numbers) -> float:
    """``sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean y)^2)``; NaN of a constant."""
    if x.min() == x.max() or y.min() == y.max():  # whose mean may differ from them by a rounding
        return math.nan
    a, b = x - x.mean(), y - y.mean()
    return float((a @ b) / np.sqrt((a @ a) * (b @ b)))


def ranks(x: Numbers) -> Numbers:
    """Each number's place in their order, from 1; equal ones share the mean of their places."""
    _, group, sizes = np.unique(x, return_inverse=True, return_counts=True)
    places: Any = np.cumsum(sizes) - (sizes - 1) / 2
    return np.asarray(places[group.reshape(-1)], dtype=np.float64)


def spearman(x: Numbers, y: Numbers) -> float:
    """Pearson's correlation of the ranks."""
    return pearson(ranks(x), ranks(y))


def regression_scores(predictions: Sequence[float], truths: Sequence[float]) -> list[Score]:
    """Pearson's and Spearman's correlation and the mean squared error.

    A correlation with numbers that are all alike is NaN.

    Raises:
        RequestError: no numbers, or not as many on both sides.
    """
    check_lengths(predictions, truths, "predictions", "labels")
    x, y = np.asarray(predictions, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    counts = {"examples": len(truths)}
    return [
        Score("Pearson", pearson(x, y), "correlation:pearson", {}, counts),
        Score("Spearman", spearman(x, y), "correlation:spearman|ties:mean", {}, counts),
        Score("MSE", float(np.mean((x - y) ** 2)), "error:squared|average:mean", {}, counts),
    ]
