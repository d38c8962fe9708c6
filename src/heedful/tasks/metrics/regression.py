"""Metrics of regression: Pearson and Spearman correlation, and mean squared error."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from heedful.tasks.metrics.score import Score, check_lengths
from heedful.tasks.metrics.statistics import by_rows, mean

Numbers = NDArray[np.float64]


def pearson(x: Numbers, y: Numbers) -> float:
    """``sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean y)^2)``; NaN for constants."""
    if x.min() == x.max() or y.min() == y.max():  # rounding may give constants a nonzero variance
        return math.nan
    a, b = x - x.mean(), y - y.mean()
    return float((a @ b) / np.sqrt((a @ a) * (b @ b)))


def ranks(x: Numbers) -> Numbers:
    """Return the rank of each number, from 1; ties get their mean rank."""
    _, group, sizes = np.unique(x, return_inverse=True, return_counts=True)
    mean_ranks: Numbers = np.cumsum(sizes) - (sizes - 1) / 2
    return mean_ranks[group.reshape(-1)]


def spearman(x: Numbers, y: Numbers) -> float:
    """Return the Pearson correlation of the ranks."""
    return pearson(ranks(x), ranks(y))


def regression_scores(predictions: Sequence[float], targets: Sequence[float]) -> list[Score]:
    """Compute Pearson and Spearman correlation and the mean squared error.

    A correlation with constant numbers is NaN.

    Raises:
        RequestError: there are no numbers, or unequal numbers of predictions and targets.
    """
    check_lengths(predictions, targets, "predictions", "labels")
    x, y = np.asarray(predictions, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    counts = {"examples": len(targets)}
    errors = (x - y) ** 2
    return [
        *correlation_scores(x, y, counts),
        Score("MSE", float(np.mean(errors)), "error:squared|average:mean", {}, counts, partial(mean, errors)),
    ]


def correlation_scores(x: Numbers, y: Numbers, counts: Mapping[str, int], settings: str = "") -> list[Score]:
    """Return the Pearson and Spearman correlation.

    Args:
        x: the numbers.
        y: those that they are compared with.
        counts: of the scores.
        settings: the end of their signatures.
    """
    pairs = np.stack([x, y], axis=1)
    return [
        Score(name, measure(x, y), f"{signature}{settings}", {}, counts, partial(by_rows, pairs, of_rows))
        for name, measure, signature, of_rows in (
            ("Pearson", pearson, "correlation:pearson", _pearson_of_rows),
            ("Spearman", spearman, "correlation:spearman|ties:mean", _spearman_of_rows),
        )
    ]


def _pearson_of_rows(rows: Numbers) -> float:
    return pearson(rows[:, 0], rows[:, 1])


def _spearman_of_rows(rows: Numbers) -> float:
    return spearman(rows[:, 0], rows[:, 1])
