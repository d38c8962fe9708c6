"""Labels: which there are, their numbers, and the answer that is made of their probabilities."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from heedful.config import Config
from heedful.data.sources import LocatedRow, Location, Row
from heedful.errors import DataError, nearest
from heedful.tasks.metrics.classification import classification_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.prediction import Prediction
from heedful.typing import JsonMapping

LABEL = "label"
"""The column of the label."""

FEWEST_LABELS = 2

Labels = tuple[str, ...]
"""All there are, in the order of their numbers."""

LocatedLabels = Iterable[tuple[str, Location]]
"""Labels, each with the location of its row."""

_SHOWN = 10


class LabelsConfig(Config):
    """A task that predicts labels.

    Args:
        labels: all labels in their order; by default those of the training data, sorted.
    """

    labels: list[str] | None = Field(default=None, min_length=2)

    @model_validator(mode="after")
    def _different(self) -> "LabelsConfig":
        if self.labels and len(set(self.labels)) < len(self.labels):
            twice = next(label for label in self.labels if self.labels.count(label) > 1)
            raise ValueError(f"labels: {twice!r} is listed twice; remove one")
        return self


def located_label(row: LocatedRow[Row]) -> tuple[str, Location]:
    """Return the label of a row, and the location of the row."""
    return row.row[LABEL], row.where


def collect_labels(labels: LocatedLabels, given: Sequence[str] | None) -> Labels:
    """All labels: those that are given, in their order; or those that occur, sorted.

    Raises:
        DataError: a label that is empty or not among those given, one given that does not occur, fewer than
            two, or two that differ only in blanks at their ends.
    """
    counts: Counter[str] = Counter()
    first: dict[str, tuple[str, Location]] = {}
    for label, where in labels:
        if not label.strip():
            raise DataError(f"{where}: the label is empty")
        if given is not None and label not in given:
            raise DataError(
                f"{where}: the label {label!r} is not in task.labels{nearest(label, given)}; "
                f"they are {first_labels(given)}"
            )
        if given is None and not counts[label]:
            other, place = first.setdefault(label.strip(), (label, where))
            if other != label:
                raise DataError(
                    f"{where}: the label {label!r} differs from {other!r} ({place}) only in white space "
                    "at its ends; make them identical"
                )
        counts[label] += 1
    if given is None:
        if len(counts) < FEWEST_LABELS:
            raise DataError(f"at least two different labels are needed, got {len(counts)}: {sorted(counts)}")
        return tuple(sorted(counts))
    if missing := [label for label in given if not counts[label]]:
        raise DataError(
            f"no example has the label {missing[0]!r} of task.labels: nothing could be learned of it; "
            "add an example, or remove it from task.labels"
        )
    return tuple(given)


@lru_cache(maxsize=8)
def _numbers(labels: Labels) -> dict[str, int]:
    return {label: number for number, label in enumerate(labels)}


def label_index(label: str, labels: Labels, where: Location, name: str = LABEL) -> int:
    """The number of a label, which messages call ``name``.

    Raises:
        DataError: it is not among those that the run knows.
    """
    numbers = _numbers(labels)
    if label not in numbers:
        raise DataError(
            f"{where}: the {name} {label!r} is not among those of the training data"
            f"{nearest(label, labels)}; they are {first_labels(labels)}"
        )
    return numbers[label]


@dataclass(frozen=True)
class UnknownLabels:
    """Labels of a data set that are none of the run's: whatever it answers there is wrong.

    Args:
        counts: how often each occurs, in the order in which they come.
        first: where each comes first.
        known: the run's own.
    """

    counts: Counter[str]
    first: dict[str, Location]
    known: Labels

    @classmethod
    def among(cls, given: LocatedLabels, known: Labels, name: str = LABEL) -> "UnknownLabels":
        """Those among the labels of a data set, each with its place.

        Raises:
            DataError: there is no other: the data set is none of the run's task.
        """
        every = list(given)
        first: dict[str, Location] = {}
        for label, where in every:
            if label not in _numbers(known):
                first.setdefault(label, where)
        counts = Counter(label for label, _ in every if label in first)
        if every and counts.total() == len(every):
            label, where = every[0]
            label_index(label, known, where, name)
        return cls(counts, first, known)

    @property
    def labels(self) -> Labels:
        """All of them."""
        return tuple(self.first)

    def counted_in(self, scores: Iterable[Score]) -> list[Score]:
        """Return scores whose counts include how many labels are unknown, if any."""
        own = {"unseen": self.counts.total()} if self.first else {}
        return [replace(score, counts={**score.counts, **own}) for score in scores]

    def notes(self, name: str = LABEL) -> list[str]:
        """Notes about them; messages call them ``name``."""
        if not self.first:
            return []
        each = [
            f"{label!r} ({self.counts[label]:,}, first at {where}){nearest(label, self.known)}"
            for label, where in list(self.first.items())[:_SHOWN]
        ]
        more = ", ..." if len(self.first) > _SHOWN else ""
        n = self.counts.total()
        return [f"{n:,} with a {name} that training has not seen count as wrong: {', '.join(each)}{more}"]


def first_labels(labels: Sequence[str]) -> str:
    """The first of them, for messages."""
    return ", ".join(labels[:_SHOWN]) + (", ..." if len(labels) > _SHOWN else "")


def label_prediction(log_probs: Float[Tensor, " C"], labels: Labels, n_best: int = 1) -> Prediction:
    """The most probable label, with its log-probability as the score; the next ones are alternatives."""
    values, numbers = log_probs.sort(descending=True, stable=True)
    best = [
        Prediction(labels[number], score=value)
        for value, number in list(zip(values.tolist(), numbers.tolist(), strict=True))[:n_best]
    ]
    return Prediction(best[0].text, best[0].score, alternatives=best[1:])


def label_scores(
    rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction], known: Labels
) -> tuple[list[Score], list[str]]:
    """Accuracy and F1 of predicted labels, and notes about labels that training has not seen."""
    unknown = UnknownLabels.among(map(located_label, rows), known)
    right = [row.row[LABEL] for row in rows]
    scores = classification_scores([p.text for p in predictions], right, (*known, *unknown.labels)).values()
    return unknown.counted_in(scores), unknown.notes()


def label_records(
    rows: Sequence[LocatedRow[Row]], columns: Sequence[str], predictions: Sequence[Prediction]
) -> Iterator[JsonMapping]:
    """A record for each row: its input, the right label, the prediction and whether it is right."""
    for row, prediction in zip(rows, predictions, strict=True):
        plain, label = prediction.to_dict(), row.row[LABEL]
        yield {
            **{column: str(row.row[column]) for column in columns},
            "label": label,
            "prediction": plain.pop("text"),
            **plain,
            "correct": prediction.text == label,
        }
