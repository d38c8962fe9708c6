"""Statistics of the rows of a data set, from which a score is computed again on other selections of rows.

Most metrics are functions of sums over rows: counts of n-grams, of right answers, of squared errors. Tests of
significance (`heedful.tasks.metrics.significance`) need nothing else. Correlations of ranks need the rows
themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RowStatistics:
    """Numbers of each row, and how a score follows from them.

    Args:
        values: ``[n, …]``, of each row.
        score: of sums over rows, ``[m, …]`` to ``[m]``; if not ``is_summed``, of rows ``[n, …]`` to a number.
        is_summed: whether the score depends on the sums over rows alone.
        classes: names of the second axis of the values, if it stands for classes.
    """

    values: Numbers
    score: Callable[[Numbers], Any]
    is_summed: bool = True
    classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    @property
    def value(self) -> float:
        """The score of all rows."""
        if self.is_summed:
            return float(self.score(self.values.sum(0, keepdims=True))[0])
        return float(self.score(self.values))

    def of_rows(self, rows: Sequence[int]) -> Self:
        """Return the statistics of some of the rows."""
        return replace(self, values=self.values[np.asarray(rows, dtype=np.int64)])

    def over(self, classes: Sequence[str]) -> Self:
        """Return the statistics over these classes, in this order; those that have no numbers have zeros."""
        if self.classes is None or self.classes == (*classes,):
            return self
        values = np.zeros((len(self.values), len(classes), *self.values.shape[2:]))
        values[:, [classes.index(name) for name in self.classes]] = self.values
        return replace(self, values=values, classes=(*classes,))

    def grouped(self, sizes: Sequence[int]) -> Self:
        """Return the statistics of groups of consecutive rows, such as the words of sentences."""
        ends = np.cumsum([0, *sizes])
        sums = np.concatenate([np.zeros_like(self.values[:1]), np.cumsum(self.values, 0)])
        return replace(self, values=sums[ends[1:]] - sums[ends[:-1]])


def ratio(numerators: ArrayLike, denominators: ArrayLike, scale: float = 1.0) -> RowStatistics:
    """Return the statistics of ``scale · Σ numerators / Σ denominators``; of 0 / 0 it is 0."""
    values = np.stack([np.asarray(part, dtype=np.float64) for part in (numerators, denominators)], axis=1)
    return RowStatistics(values, partial(_ratio, scale))


def mean(values: ArrayLike) -> RowStatistics:
    """Return the statistics of a mean over rows."""
    numbers = np.asarray(values, dtype=np.float64)
    return ratio(numbers, np.ones_like(numbers))


def exponential(statistics: RowStatistics) -> RowStatistics:
    """Return the statistics of e to the power of a score, such as perplexity; at most e^700."""
    return replace(statistics, score=partial(_exponential, statistics.score))


def by_rows(values: ArrayLike, score: Callable[[Numbers], float]) -> RowStatistics:
    """Return the statistics of a score that needs the rows themselves."""
    return RowStatistics(np.asarray(values, dtype=np.float64), score, is_summed=False)


def by_class(
    true_positives: ArrayLike,
    totals: ArrayLike,
    classes: Sequence[object],
    score: Callable[[Numbers, Numbers], Numbers],
) -> RowStatistics:
    """Return the statistics of a score of the counts of each class.

    Args:
        true_positives: ``[n, C]``: how often each class is predicted rightly.
        totals: ``[n, C]``: how often it is predicted and how often it occurs, together.
        classes: their names.
        score: of the sums of both, ``[m, C]`` each, to ``[m]``.
    """
    values = np.stack([np.asarray(part, dtype=np.float64) for part in (true_positives, totals)], axis=2)
    return RowStatistics(values, partial(_by_class, score), classes=tuple(map(str, classes)))


def macro_f1_of(true_positives: Numbers, totals: Numbers) -> Numbers:
    """Return the mean of ``2 tp / totals`` over the classes that occur in targets or predictions."""
    return _mean_of_present(2 * true_positives, totals, totals > 0)


def mean_iou_of(true_positives: Numbers, totals: Numbers) -> Numbers:
    """Return the mean of ``tp / (totals - tp)`` over the classes that occur in targets or predictions."""
    return _mean_of_present(true_positives, totals - true_positives, totals > 0)


def one_by_one(score: Callable[[Any], float], sums: Numbers) -> Numbers:
    """Apply a function of the sums of one selection of rows to several."""
    return np.array([score(row) for row in sums], dtype=np.float64)


def _mean_of_present(numerators: Numbers, denominators: Numbers, present: NDArray[np.bool_]) -> Numbers:
    rates = np.divide(numerators, denominators, out=np.zeros_like(numerators), where=denominators > 0)
    n_present = present.sum(-1)
    return np.divide(
        rates.sum(-1, where=present), n_present, out=np.full(n_present.shape, np.nan), where=n_present > 0
    )


def _ratio(scale: float, sums: Numbers) -> Numbers:
    numerators, denominators = sums[..., 0], sums[..., 1]
    return scale * np.divide(numerators, denominators, out=np.zeros_like(numerators), where=denominators != 0)


def _exponential(score: Callable[[Numbers], Numbers], sums: Numbers) -> Numbers:
    return np.exp(np.minimum(score(sums), 700.0))


def _by_class(score: Callable[[Numbers, Numbers], Numbers], sums: Numbers) -> Numbers:
    return score(sums[..., 0], sums[..., 1])
