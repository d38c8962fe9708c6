"""Tests whether two systems differ on the same rows: paired bootstrap and approximate randomisation.

With the scores s(A) and s(B) of two systems on n rows, and d = s(B) - s(A):

- *Paired bootstrap resampling* (Koehn 2004): n rows are drawn with replacement, the same for both systems,
  and d is computed on them. The 2.5th and 97.5th percentiles of many such d are the 95 % interval.
- *Approximate randomisation* (Noreen 1989; Riezler and Maxwell 2005): for each row, the outputs of A and B
  are exchanged with probability 1/2. The p-value is the share of such shuffles whose abs(d) is at least the
  observed one, counting the observed one among them: ``(c + 1) / (samples + 1)``.

The interval and the p-value are about the rows: they say nothing about other seeds of a training.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.tasks.metrics.statistics import Numbers, RowStatistics

SAMPLES, SEED = 2000, 1
LEVEL = 0.05
"""The p-value below which a difference is called significant."""

AT_ONCE = 1 << 24
"""Number of row numbers and weights that exist at one time."""

TIES = 1e-12
"""Differences that are closer than this, relative to the scores, are equal: their sums have another order."""


@dataclass(frozen=True)
class PairedTest:
    """The comparison of two systems by one score.

    Args:
        first, second: their scores.
        low, high: the 95 % interval of ``difference``, by paired bootstrap resampling.
        p: p-value of the difference, by approximate randomisation.
        rows: number of rows.
        samples: number of resamples and of shuffles.
        seed: of the random generator.
    """

    first: float
    second: float
    low: float
    high: float
    p: float
    rows: int
    samples: int
    seed: int

    @property
    def difference(self) -> float:
        """The second score minus the first."""
        return self.second - self.first

    @property
    def is_significant(self) -> bool:
        """Whether the p-value is below 0.05."""
        return self.p < LEVEL


def paired_test(
    first: RowStatistics, second: RowStatistics, *, samples: int = SAMPLES, seed: int = SEED
) -> PairedTest:
    """Compare two systems on the same rows.

    Args:
        first: statistics of a score.
        second: those of the other system, for the same rows in the same order.
        samples: number of resamples and of shuffles.
        seed: of the random generator.

    Raises:
        RequestError: they have different numbers of rows, or fewer than two.
    """
    if len(first) != len(second):
        raise RequestError(f"expected the same rows of both systems, got {len(first)} and {len(second)}")
    if len(first) < 2:
        raise RequestError(f"a test of significance needs at least two rows, got {len(first)}")
    if first.classes is not None and second.classes is not None:
        classes = sorted({*first.classes, *second.classes})
        first, second = first.over(classes), second.over(classes)
    random = np.random.default_rng(seed)
    differences = _differences(first, second, samples, random, _resamples)
    shuffled = _differences(first, second, samples, random, _shuffles)
    low, high = np.nanpercentile(differences, [2.5, 97.5])
    a, b = first.value, second.value
    tolerance = TIES * max(abs(a), abs(b), 1.0)
    n_as_large = np.count_nonzero(np.abs(shuffled) >= abs(b - a) - tolerance)
    return PairedTest(
        a, b, float(low), float(high), float((n_as_large + 1) / (samples + 1)), len(first), samples, seed
    )


Draw = Callable[[np.random.Generator, RowStatistics, RowStatistics, int], tuple[Numbers, Numbers]]
"""Draws selections of the rows, and returns the scores of both systems on each."""


def _differences(
    first: RowStatistics, second: RowStatistics, samples: int, random: np.random.Generator, draw: Draw
) -> Numbers:
    """Return the differences of ``samples`` selections of rows, drawn in parts that fit in memory."""
    size = max(1, AT_ONCE // len(first))
    parts = [draw(random, first, second, min(size, samples - i)) for i in range(0, samples, size)]
    return np.concatenate([b - a for a, b in parts])


def _resamples(
    random: np.random.Generator, first: RowStatistics, second: RowStatistics, m: int
) -> tuple[Numbers, Numbers]:
    n = len(first)
    drawn = random.integers(0, n, size=(m, n))
    if not (first.is_summed and second.is_summed):
        return _each(first, drawn), _each(second, drawn)
    weights = np.stack([np.bincount(rows, minlength=n) for rows in drawn]).astype(np.float64)
    return first.score(_sums(weights, first.values)), second.score(_sums(weights, second.values))


def _shuffles(
    random: np.random.Generator, first: RowStatistics, second: RowStatistics, m: int
) -> tuple[Numbers, Numbers]:
    exchanged = random.random((m, len(first))) < 0.5
    a, b = first.values, second.values
    if first.is_summed and second.is_summed:
        moved = _sums(exchanged.astype(np.float64), b - a)
        return first.score(a.sum(0) + moved), second.score(b.sum(0) - moved)
    shape = (-1, *[1] * (a.ndim - 1))
    pairs = [(np.where(rows, b, a), np.where(rows, a, b)) for rows in (e.reshape(shape) for e in exchanged)]
    return np.array([first.score(x) for x, _ in pairs]), np.array([second.score(y) for _, y in pairs])


def _each(statistics: RowStatistics, drawn: NDArray[np.int64]) -> Numbers:
    return np.array([statistics.score(statistics.values[rows]) for rows in drawn], dtype=np.float64)


def _sums(weights: Numbers, values: Numbers) -> Numbers:
    """Return the weighted sums over rows, ``[m, …]``."""
    flat = values.reshape(len(values), -1)
    return (weights @ flat).reshape(len(weights), *values.shape[1:])
