"""Compare the scores of runs on the same rows, with the tests of `heedful.tasks.metrics.significance`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from heedful.errors import RequestError
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.significance import LEVEL, SAMPLES, SEED, PairedTest, paired_test
from heedful.typing import JsonObject


@dataclass(frozen=True)
class MetricComparison:
    """A metric of two runs on one data set.

    Args:
        split: the data set.
        first, second: names of the runs.
        metric: name of the score.
        values: the scores of both.
        test: of their difference; None: there is none for this metric.
    """

    split: str
    first: str
    second: str
    metric: str
    values: tuple[float, float]
    test: PairedTest | None

    def to_dict(self) -> JsonObject:
        """Return an entry of ``significance`` in ``docs/schemas/comparison.schema.json``."""
        values = [value if math.isfinite(value) else None for value in self.values]
        entry = {
            "split": self.split,
            "first": self.first,
            "second": self.second,
            "metric": self.metric,
            "values": values,
        }
        test = self.test
        if test is None:
            return {**entry, "test": None}
        numbers = {
            "difference": test.difference,
            "low": test.low,
            "high": test.high,
            "p": test.p,
            "significant": test.is_significant,
            "rows": test.rows,
            "samples": test.samples,
            "seed": test.seed,
        }
        return {**entry, "test": numbers}


def compare_scores(
    evaluations: Mapping[str, Evaluation], *, seed: int = SEED, samples: int = SAMPLES
) -> tuple[list[MetricComparison], list[str]]:
    """Compare the first evaluation of a data set with each other one, and return notes.

    Scores whose signatures differ are not compared; the notes name them.

    Args:
        evaluations: by the names of the runs.
        seed: of the random generator.
        samples: number of resamples and of shuffles.

    Raises:
        RequestError: two runs scored no rows in common.
    """
    (first, reference), *others = evaluations.items()
    found: list[MetricComparison] = []
    notes: list[str] = []
    for second, evaluation in others:
        rows = _common_rows(reference, evaluation, f"{first} and {second}")
        if rows is not None:
            n_left_out = len({*reference.locations} ^ {*evaluation.locations})
            notes.append(
                f"{reference.split}: {n_left_out:,} rows are left out, which {first} and {second} did not "
                "both score"
            )
        for score in reference.scores:
            if score.name not in evaluation.keys():  # noqa: SIM118 (names alone, not those of metrics)
                continue
            other = next(s for s in evaluation.scores if s.name == score.name and _same(s, score, evaluation))
            if other.signature != score.signature:
                notes.append(
                    f"{reference.split}: {score.name} of {first} and {second} is not comparable: the "
                    f"signatures differ ({score.signature}; {other.signature})"
                )
                continue
            test = _test(score, other, rows, seed, samples)
            values = (score.value, other.value) if test is None else (test.first, test.second)
            found.append(MetricComparison(reference.split, first, second, score.name, values, test))
    return found, list(dict.fromkeys(notes))


def _same(score: Score, wanted: Score, evaluation: Evaluation) -> bool:
    """Whether a score has the signature of another, or no score of that name has it."""
    signatures = {s.signature for s in evaluation.scores if s.name == wanted.name}
    return score.signature == wanted.signature or wanted.signature not in signatures


def _common_rows(
    first: Evaluation, second: Evaluation, names: str
) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return the indices of the rows that both scored; None: both scored the same rows."""
    if [*first.locations] == [*second.locations]:
        return None
    places = [{location: i for i, location in enumerate(e.locations)} for e in (first, second)]
    common = [location for location in places[0] if location in places[1]]
    if not common:
        raise RequestError(f"{first.split}: {names} scored no row in common")
    return [places[0][location] for location in common], [places[1][location] for location in common]


def _test(
    first: Score,
    second: Score,
    rows: tuple[Sequence[int], Sequence[int]] | None,
    seed: int,
    samples: int,
) -> PairedTest | None:
    """Return the test of two scores; None if they have no statistics of the same rows."""
    if first.statistics is None or second.statistics is None:
        return None
    a, b = first.statistics(), second.statistics()
    if rows is not None:
        if max(rows[0]) >= len(a) or max(rows[1]) >= len(b):  # scores of a part of the rows
            return None
        a, b = a.of_rows(rows[0]), b.of_rows(rows[1])
    if len(a) != len(b) or len(a) < 2:
        return None
    return paired_test(a, b, samples=samples, seed=seed)


def tables(comparisons: Sequence[MetricComparison]) -> Iterator[tuple[str, list[Sequence[str]]]]:
    """Yield a heading and the rows of a table for each data set and pair of runs."""
    pairs = dict.fromkeys((c.split, c.first, c.second) for c in comparisons)
    for split, first, second in pairs:
        chosen = [c for c in comparisons if (c.split, c.first, c.second) == (split, first, second)]
        n_rows = {c.test.rows for c in chosen if c.test}
        counted = f" ({min(n_rows):,} rows)" if len(n_rows) == 1 else ""
        head = ("metric", first, second, "difference", "95 % interval", "p", "")
        yield f"{split}{counted}: {second} compared with {first}", [head, *map(_row, chosen)]


def _row(comparison: MetricComparison) -> Sequence[str]:
    first, second = comparison.values
    digits = 2 if max(abs(first), abs(second)) >= 10 else 4
    cells = comparison.metric, f"{first:.{digits}f}", f"{second:.{digits}f}", f"{second - first:+.{digits}f}"
    test = comparison.test
    if test is None:
        return [*cells, "-", "-", "no test"]
    verdict = "significant" if test.is_significant else f"not significant at {LEVEL}"
    return [*cells, f"{test.low:+.{digits}f} to {test.high:+.{digits}f}", f"{test.p:.4f}", verdict]


def method(comparisons: Sequence[MetricComparison]) -> str | None:
    """Return a line about how the intervals and p-values were computed; None if there are none."""
    test = next((c.test for c in comparisons if c.test), None)
    if test is None:
        return None
    return (
        "95 % intervals of the difference by paired bootstrap resampling, p-values by approximate "
        f"randomisation; {test.samples:,} samples each, seed {test.seed}"
    )
