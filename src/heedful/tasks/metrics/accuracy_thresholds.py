"""Thresholds of the probability from which on answers have a wanted accuracy.

Of answers with probabilities p_i, of which some are right, two thresholds are found for a wanted accuracy a:

- *on these rows*: the lowest from which on a share of at least a of the answers is right. It fits the rows on
  which it is chosen, so that about half of such thresholds have a lower accuracy on others.
- the one that *holds*: with a confidence of 95 %, the accuracy from it on is at least a on other rows of the
  same kind. It is the lowest of ``CANDIDATES`` thresholds that passes an exact test of "the accuracy from it
  on is less than a": with n answers from it on, k of them right, it passes if

      P(X >= k) <= 0.05 / CANDIDATES,    X ~ Binomial(n, a)

  which says that the one-sided Clopper-Pearson bound of the accuracy is at least a. The correction is
  Bonferroni's.

Why this holds: candidate j is a fixed function of the k_j-th largest probability T_j, greater than it, and
k_j depends on the number of rows and on a alone. Given T_j, the answers from the candidate on are independent
draws of those that are as probable, so a test of level 0.05 / CANDIDATES errs with at most that probability.
It needs rows that are drawn independently, as texts are; the words of a sentence are not.

Sources: Clopper and Pearson 1934; Angelopoulos et al. 2021, "Learn then Test: calibrating predictive
algorithms to achieve risk control"; Geifman and El-Yaniv 2017, "Selective classification for deep neural
networks", who search a threshold by tests in the same way.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.checks import check_probability
from heedful.errors import RequestError
from heedful.tasks.metrics.intervals import wilson_interval
from heedful.typing import JsonObject

CONFIDENCE = 0.95
"""Probability with which the accuracy is kept on other rows."""

CANDIDATES = 8
"""Number of thresholds that are tested."""

LEVEL = (1 - CONFIDENCE) / CANDIDATES
"""Probability with which a test may err."""

MARGIN = 1.1
"""The smallest candidate keeps this many times the answers that pass if all are right."""

POWER = 0.84
"""Standard deviations by which few answers may be right so that ``rows_needed`` rows suffice (80 %)."""

MOST_ROWS = 100_000
"""Maximum number of rows that are said to be needed; of more, nothing is said."""

SHARES = np.arange(0.1, 1.01, 0.1)
"""Shares of the answers, the most probable ones, whose accuracy says how many rows are needed."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Kept:
    """The answers from a threshold on.

    Args:
        threshold: their least probability.
        answers: their number.
        right: how many of them are right.
        total: number of all answers.
    """

    threshold: float
    answers: int
    right: int
    total: int

    @property
    def coverage(self) -> float:
        """Their share of all answers."""
        return self.answers / self.total

    @property
    def accuracy(self) -> float:
        """The share of them that is right."""
        return self.right / self.answers

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy (Wilson), if the threshold was not chosen on the same rows."""
        return wilson_interval(self.accuracy, self.answers)

    def to_dict(self) -> JsonObject:
        """Return JSON values (``docs/schemas/evaluation.schema.json``)."""
        return {
            "threshold": self.threshold,
            "coverage": self.coverage,
            "accuracy": self.accuracy,
            "answers": self.answers,
            "right": self.right,
            "interval": list(self.interval),
        }


@dataclass(frozen=True)
class AccuracyThreshold:
    """The thresholds for a wanted accuracy (`heedful.tasks.metrics.accuracy_thresholds`).

    It can be given to ``Run.predict(threshold=…)``.

    Args:
        wanted: the accuracy.
        holds: the answers from the threshold on that keeps it on other rows; None: no threshold is known to.
        on_these_rows: the answers from the lowest threshold on that has it on these rows; None: none has it.
        rows_needed: if none holds, about how many rows may show one; None: it cannot be estimated.
        is_tested: whether a threshold that holds was searched; the answers must be independent for it.
    """

    wanted: float
    holds: Kept | None
    on_these_rows: Kept | None
    rows_needed: int | None = None
    is_tested: bool = True

    @property
    def threshold(self) -> float | None:
        """The one that holds; of answers that are not independent, the one on these rows."""
        kept = self.holds if self.is_tested else self.on_these_rows
        return None if kept is None else kept.threshold

    @property
    def advice(self) -> str:
        """What helps if none holds."""
        if self.on_these_rows is None:
            return "no threshold has this accuracy on these rows; ask for less, or improve the model"
        if self.rows_needed is None:
            return "ask for less, improve the model, or evaluate on more rows"
        return f"about {self.rows_needed:,} rows may show one; or ask for less"

    def __float__(self) -> float:
        """Return the threshold.

        Raises:
            RequestError: there is none.
        """
        if self.threshold is None:
            raise RequestError(
                f"threshold: none is known to keep an accuracy of {self.wanted:g} on other rows; "
                f"{self.advice}"
            )
        return self.threshold

    def to_dict(self) -> JsonObject:
        """Return JSON values (``docs/schemas/evaluation.schema.json``)."""
        return {
            "wanted": self.wanted,
            "confidence": CONFIDENCE if self.is_tested else None,
            "threshold": self.threshold,
            "holds": None if self.holds is None else self.holds.to_dict(),
            "on_these_rows": None if self.on_these_rows is None else self.on_these_rows.to_dict(),
            "rows_needed": self.rows_needed,
        }


@dataclass(frozen=True)
class Thresholds:
    """Finds the thresholds for accuracies, of answers by decreasing probability.

    The lowest threshold of an accuracy on these rows is one of those at which a lower one would also lower
    the accuracy. They are computed in O(n log n), and looked up in O(log n).

    Args:
        p: ``[n]``, the probabilities, decreasing.
        right: ``[n]``, how many of the first answers are right.
        kept: ``[k]``, number of answers at each threshold of these rows, decreasing.
        accuracies: ``[k]``, of these answers, increasing.
        thresholds: ``[k]``.
        is_independent: whether the answers are independent of each other.
    """

    p: Numbers
    right: NDArray[np.int64]
    kept: NDArray[np.int64]
    accuracies: Numbers
    thresholds: Sequence[float]
    is_independent: bool

    @classmethod
    def of(cls, p: Numbers, c: Numbers, *, is_independent: bool = True) -> "Thresholds":
        """Return those of probabilities in descending order; equal ones stay together."""
        right = np.cumsum(c).astype(np.int64)
        ends = np.append(np.flatnonzero(np.diff(p)), len(p) - 1)
        accuracies = right[ends] / (ends + 1)
        # From all answers to fewer: the points that are more accurate than all before.
        backwards = accuracies[::-1]
        best_before = np.append(-1.0, np.maximum.accumulate(backwards)[:-1])
        chosen = np.flatnonzero(backwards > best_before)
        last = len(ends) - 1 - chosen
        lower = np.append(p[ends], -1.0)
        thresholds = [_short(p[ends[i]].item(), lower[i + 1].item()) for i in last.tolist()]
        return cls(p, right, ends[last] + 1, accuracies[last], thresholds, is_independent)

    def __call__(self, accuracy: float) -> AccuracyThreshold:
        """Return the thresholds for an accuracy, see `heedful.tasks.evaluation.Evaluation.threshold_for`."""
        accuracy = check_probability("accuracy", accuracy)
        i = int(np.searchsorted(self.accuracies, accuracy))
        on_these_rows = None if i == len(self.accuracies) else self._kept(self.thresholds[i])
        if not self.is_independent:
            return AccuracyThreshold(accuracy, None, on_these_rows, is_tested=False)
        passed = [
            kept
            for kept in self._candidates(accuracy)
            if right_tail(kept.answers, kept.right, accuracy) <= LEVEL
        ]
        holds = max(passed, key=lambda kept: kept.answers, default=None)
        needed = None if holds else self._rows_needed(accuracy)
        return AccuracyThreshold(accuracy, holds, on_these_rows, needed)

    def _kept(self, threshold: float) -> Kept:
        answers = int(np.searchsorted(-self.p, -threshold, side="right"))
        return Kept(threshold, answers, int(self.right[answers - 1]) if answers else 0, len(self.p))

    def _candidates(self, accuracy: float) -> Iterator[Kept]:
        """Yield the answers from each threshold on that is tested: all, and fewer and fewer."""
        n = len(self.p)
        fewest = min(n, math.ceil(MARGIN * fewest_answers(accuracy)))
        for size in np.unique(np.geomspace(fewest, n, CANDIDATES).round().astype(np.int64)).tolist():
            threshold = 0.0 if size == n else next_short(self.p[size].item())
            if (kept := self._kept(threshold)).answers:
                yield kept

    def _rows_needed(self, accuracy: float) -> int | None:
        """Return about how many rows show a threshold that holds, in four of five cases; None: unknown.

        Of n answers of which k are right, (k + 1) / (n + 2) estimates the accuracy on other rows.
        """
        least = math.inf
        for n in np.unique(np.ceil(SHARES * len(self.p)).astype(np.int64)).tolist():
            estimate = (int(self.right[n - 1]) + 1) / (n + 2)
            if accuracy < estimate:
                least = min(least, _answers_needed(estimate, accuracy) / n * len(self.p))
        if least > MOST_ROWS:
            return None
        digits = 10 ** max(0, math.floor(math.log10(least)) - 1)
        return math.ceil(least / digits) * digits


def next_short(p: float) -> float:
    """Return a number greater than ``p``, if it is less than 1: 1 minus a number of two digits."""
    if p >= 1:
        return math.inf
    digits = 1 - math.floor(math.log10(1 - p))
    gap = math.floor((1 - p) * 10**digits) / 10**digits
    for short in (round(1 - gap, digits), round(1 - gap + 10**-digits, digits)):
        if p < short <= 1:
            return short
    return math.nextafter(p, 2.0)


def fewest_answers(accuracy: float) -> int:
    """Return how many answers pass the test if all are right."""
    if accuracy <= 0:
        return 1
    return MOST_ROWS if accuracy >= 1 else math.ceil(math.log(LEVEL) / math.log(accuracy))


def right_tail(n: int, k: int, share: float) -> float:
    """Return the probability that at least k of n independent answers are right, each with ``share``."""
    if k <= 0 or share >= 1:
        return 1.0
    if k > n or share <= 0:
        return 0.0
    i = np.arange(k, n, dtype=np.float64)
    first = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    first += k * math.log(share) + (n - k) * math.log1p(-share)
    steps = np.log((n - i) / (i + 1)) + math.log(share) - math.log1p(-share)
    logs = first + np.append(0.0, np.cumsum(steps))
    return min(1.0, float(np.exp(logs).sum()))


def _answers_needed(share: float, accuracy: float) -> float:
    """Return how many answers pass the test, if ``share`` of all are right."""

    def passes(n: int) -> bool:
        right = math.floor(n * share - POWER * math.sqrt(n * share * (1 - share)))
        return right_tail(n, right, accuracy) <= LEVEL

    low, high = 0, fewest_answers(accuracy)
    while not passes(high):
        low, high = high, 2 * high
        if high > MOST_ROWS:
            return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def _short(p: float, lower: float) -> float:
    """Return a number of few decimals that is at most ``p`` and greater than ``lower``."""
    for digits in range(2, 16):
        short = math.floor(p * 10**digits) / 10**digits
        if lower < short <= p:
            return short
    return p
