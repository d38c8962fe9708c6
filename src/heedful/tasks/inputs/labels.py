"""Labels: collect them from rows, number them, and predict and score them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

import numpy as np
from jaxtyping import Float
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from heedful.config import Config
from heedful.data.lines import with_cells
from heedful.data.report import Tally
from heedful.data.sources import LocatedRow, Location, Row
from heedful.errors import DataError, RequestError, nearest, quoted
from heedful.identifiers import identifier, in_order, value_of
from heedful.tasks.evaluation import PredictedRows
from heedful.tasks.metrics.calibration import brier_score, calibration_scores
from heedful.tasks.metrics.classification import classification_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.prediction import GIVEN, Prediction
from heedful.typing import JsonMapping

LABEL = "label"
"""The column of the label."""

EMPTY_LABEL = f"empty {LABEL}"
"""The reason for which a row without a label is dropped, as `heedful.data.report.keep` calls it."""

FEWEST_LABELS = 2

LONGEST_LABEL = 1000
"""Characters of a label; a longer one is a text in the wrong column."""

MOST_LABELS = 100_000
"""Number of different labels; more are numbers, or texts in the wrong column."""

UNKNOWN_REMEDY = "correct it, remove the row, or add training rows with it"
"""What to do about a label in validation data of which there is no training row."""

Labels = tuple[str, ...]
"""All labels, in the order of their numbers."""

LocatedLabels = Iterable[tuple[str, Location]]
"""Labels, each with the location of its row."""

_SHOWN = 10


class LabelsConfig(Config):
    """A task that predicts labels.

    Args:
        labels: all labels in their order; by default those of the training data, sorted, as numbers if all
            are numbers.
    """

    labels: list[str] | None = Field(default=None, min_length=2)

    @field_validator("labels")
    @classmethod
    def _compared(cls, labels: list[str] | None) -> list[str] | None:
        return None if labels is None else [*map(identifier, labels)]

    @model_validator(mode="after")
    def _different(self) -> "LabelsConfig":
        if self.labels and len(set(self.labels)) < len(self.labels):
            duplicate = next(label for label in self.labels if self.labels.count(label) > 1)
            raise ValueError(f"labels: {duplicate!r} is listed twice; remove one")
        return self


def located_label(row: LocatedRow[Row]) -> tuple[str, Location]:
    """Return the label of a row, and the location of the row."""
    return row.row[LABEL], row.location


def check_new(label: str, where: Location, n_labels: int) -> None:
    """Check that a label, which occurs for the first time, is not a text, and that there are not too many.

    Args:
        label: the label, or tag.
        where: its location.
        n_labels: the number of other labels.

    Raises:
        DataError: it is longer than `LONGEST_LABEL`, or there are more than `MOST_LABELS`.
    """
    if len(label) > LONGEST_LABEL:
        raise DataError(
            f"{where}: a label must have at most {LONGEST_LABEL:,} characters, got {len(label):,} "
            f"({quoted(label)}); check that the column has labels"
        )
    if n_labels >= MOST_LABELS:
        raise DataError(
            f"{where}: more than {MOST_LABELS:,} different labels, such as {quoted(label)}; check that the "
            "column has labels"
        )


def collect_labels(labels: LocatedLabels, allowed: Sequence[str] | None, *, is_split: bool = False) -> Labels:
    """Return all labels: those of the recipe, in their order; or those that occur, sorted.

    Rows without a label are left out.

    Args:
        labels: of all rows.
        allowed: the labels of the recipe, if it names them.
        is_split: whether other data sets take some of the rows.

    Raises:
        DataError: if a label is too long or not allowed, an allowed one does not occur, or there are fewer
            than two, or too many.
    """
    counts: Counter[str] = Counter()
    for label, where in labels:
        if not label:
            continue
        if allowed is not None:
            label = known_label(label, tuple(allowed))
        if not counts[label]:
            check_new(label, where, len(counts))
        if allowed is not None and label not in allowed:
            raise DataError(
                f"{where}: the label {label!r} is not in task.labels{nearest(label, allowed)}; "
                f"they are {first_labels(allowed)}"
            )
        counts[label] += 1
    if allowed is None:
        if len(counts) < FEWEST_LABELS:
            raise DataError(f"at least two different labels are needed, got {len(counts)}: {sorted(counts)}")
        return tuple(in_order(counts))
    if missing := [label for label in allowed if not counts[label]]:
        end = "" if not is_split else ", or change data.split, which takes rows out of the training data"
        raise DataError(
            f"no training row has the label {missing[0]!r} of task.labels: it cannot be learned; remove it "
            f"from task.labels, or add rows with it{end}"
        )
    return tuple(allowed)


@lru_cache(maxsize=8)
def index_of_label(labels: Labels) -> dict[str, int]:
    """Return the number of each label, from 0."""
    return {label: index for index, label in enumerate(labels)}


@lru_cache(maxsize=8)
def _label_of_value(labels: Labels) -> dict[float | str, str]:
    """Return the label that is each number or truth value; several may be one number, such as 7 and 007."""
    values = {label: value for label in labels if (value := value_of(label)) is not None}
    counts = Counter(values.values())
    return {value: label for label, value in values.items() if counts[value] == 1}


def known_label(label: str, known: Labels) -> str:
    """Return a label as training knows it: so written, or the only label of the same number or truth value.

    Without such a label, it is returned as it is compared (`heedful.identifiers.identifier`).
    """
    compared, index = identifier(label), index_of_label(known)
    if label in index or compared in index or (value := value_of(compared)) is None:
        return label if label in index else compared
    return _label_of_value(known).get(value, compared)


def labelled_rows(
    rows: Iterator[LocatedRow[Row]], limit: int | None, known: Labels = ()
) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
    """Return the rows to score, their labels as training knows them, and those without a label.

    Args:
        rows: the rows.
        limit: the number of rows that are read at most.
        known: the labels of the run, if its labels are texts.
    """
    kept, empty = [], Tally()
    for row in islice(rows, limit):
        if not (label := row.row[LABEL]):
            empty.add(row.location)
        else:
            kept.append(with_cells(row, {LABEL: known_label(label, known)}) if known else row)
    return kept, {EMPTY_LABEL: empty}


def label_index(
    label: str, labels: Labels, where: Location, name: str = LABEL, remedy: str = UNKNOWN_REMEDY
) -> int:
    """Return the number of a label, from 0.

    Args:
        label: the label.
        labels: all labels.
        where: the location of its row.
        name: what the message calls a label.
        remedy: the end of the message.

    Raises:
        DataError: it is not one of the labels.
    """
    indices = index_of_label(labels)
    if label not in indices:
        unseen = "" if placeholder_note(labels) else ", which does not occur in the training data"
        known = _known_labels(label, labels)
        end = f"; {remedy}" if unseen and remedy else ""
        raise DataError(f"{where}: unknown {name} {quoted(label)}{unseen}{known}{end}")
    return indices[label]


def unseen_labels(labels: Iterable[str], known: Labels) -> list[str]:
    """Return the labels that training does not know, in any form (`known_label`); empty ones are none."""
    return [label for label in labels if label and known_label(label, known) not in index_of_label(known)]


def check_known(labels: Iterable[str], known: Sequence[str], key: str = "") -> list[str]:
    """Return labels given by a user as the training data have them.

    Args:
        labels: those given.
        known: the labels of the training data.
        key: the setting that has them, for the message; empty if it is none.

    Raises:
        RequestError: one is unknown.
    """
    written = {label: known_label(label, tuple(known)) for label in labels}
    for label, known_one in written.items():
        if known_one not in known:
            raise RequestError(
                f"{key}{': ' if key else ''}unknown label {quoted(label)}{_known_labels(label, known)}"
            )
    return [*written.values()]


@dataclass(frozen=True)
class UnknownLabels:
    """Labels of a data set that the run has not learned: its predictions for them are wrong.

    Args:
        counts: how often each occurs, in the order of first occurrences.
        first: the location of the first occurrence of each.
        known: the labels of the run.
    """

    counts: Counter[str]
    first: dict[str, Location]
    known: Labels

    @classmethod
    def among(
        cls,
        labels: LocatedLabels,
        known: Labels,
        name: str = LABEL,
        remedy: Callable[[], str] = lambda: "",
    ) -> "UnknownLabels":
        """Return the unknown labels among those of a data set.

        Args:
            labels: of all rows.
            known: the labels of the run.
            name: what the message calls a label.
            remedy: returns the end of the message.

        Raises:
            DataError: all are unknown: the data set belongs to another task.
        """
        located = list(labels)
        first: dict[str, Location] = {}
        for label, where in located:
            if label not in index_of_label(known):
                first.setdefault(label, where)
        counts = Counter(label for label, _ in located if label in first)
        if located and counts.total() == len(located):
            label, where = located[0]
            label_index(label, known, where, name, remedy())
        return cls(counts, first, known)

    @property
    def labels(self) -> Labels:
        """The unknown labels."""
        return tuple(self.first)

    def counted_in(self, scores: Iterable[Score]) -> list[Score]:
        """Return scores whose counts include how many labels are unknown, if any."""
        unseen = {"unseen": self.counts.total()} if self.first else {}
        return [replace(score, counts={**score.counts, **unseen}) for score in scores]

    def notes(self, name: str = LABEL, *, has_hints: bool = True) -> list[str]:
        """Return a note about them, which calls them ``name``, with similar known ones as hints."""
        if not self.first:
            return []
        entries = [
            f"{label!r} ({self.counts[label]:,}, first at {where})"
            f"{nearest(label, self.known) if has_hints else ''}"
            for label, where in list(self.first.items())[:_SHOWN]
        ]
        ellipsis = ", ..." if len(self.first) > _SHOWN else ""
        n_unseen = self.counts.total()
        return [
            f"{n_unseen:,} with a {name} that training has not seen count as wrong: "
            f"{', '.join(entries)}{ellipsis}"
        ]


def placeholder_note(labels: Sequence[str]) -> str:
    """Return what to do about labels that transformers named ``LABEL_0``, ``LABEL_1`` …; empty for others.

    Args:
        labels: the labels; none, if the task has no labels.
    """
    if not labels or [*labels] != [f"LABEL_{number}" for number in range(len(labels))]:
        return ""
    return (
        "the labels have no names, only numbers (LABEL_0 …); write their names under id2label in its "
        "config.json, and import it again"
    )


def _known_labels(label: str, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown label: the known ones, and the remedy."""
    if note := placeholder_note(known):
        return f"; expected one of {first_labels(known)}; {note}"
    return f"{nearest(label, known)}; expected one of {first_labels(known)}"


def first_labels(labels: Sequence[str]) -> str:
    """Return the first labels, for messages."""
    return ", ".join(labels[:_SHOWN]) + (", ..." if len(labels) > _SHOWN else "")


def label_prediction(log_probs: Float[Tensor, " C"], labels: Labels, n_best: int = 1) -> Prediction:
    """Return the most probable label, with its log-probability as the score, and the next as alternatives.

    It also has the log-probabilities of all labels.
    """
    values, indices = log_probs.sort(descending=True, stable=True)
    best = [
        Prediction(labels[index], score=log_prob)
        for log_prob, index in list(zip(values.tolist(), indices.tolist(), strict=True))[:n_best]
    ]
    distribution = (labels, log_probs.float().cpu().numpy())
    return replace(best[0], alternatives=best[1:], distribution=distribution)


def given_label(answer: Prediction, label: str, labels: Labels) -> Prediction:
    """Return a label that was given, with its own probability; its notes name the predicted one.

    Args:
        answer: the prediction; it is returned if it has this label.
        label: the given label.
        labels: all labels.

    Raises:
        RequestError: the label is unknown.
    """
    (label,) = check_known([label], labels)
    if label == answer.text:
        return answer
    assert answer.distribution is not None
    score = float(answer.distribution[1][labels.index(label)])
    notes = (GIVEN, answer.predicted_note(), *answer.notes)
    return replace(answer, text=label, score=score, alternatives=[], notes=notes)


def label_scores(
    predicted: PredictedRows[Prediction], known: Labels, temperature: float | None
) -> tuple[list[Score], list[str]]:
    """Return the scores of predicted labels and their probabilities, and notes about unknown labels.

    Args:
        predicted: rows and predictions.
        known: the labels of the run.
        temperature: of its probabilities; None: not calibrated.
    """
    unknown = UnknownLabels.among(map(located_label, predicted.rows), known)
    targets = [row.row[LABEL] for row in predicted.rows]
    scores = [*classification_scores(predicted.texts, targets, (*known, *unknown.labels)).values()]
    log_probs = np.array(
        [prediction.distribution[1] for prediction in predicted.predictions if prediction.distribution],
        dtype=np.float64,
    )
    index = index_of_label(known)
    correct = [text == target for text, target in zip(predicted.texts, targets, strict=True)]
    scores += calibration_scores(np.exp(log_probs.max(-1)), correct, unit="examples", temperature=temperature)
    scores.append(brier_score(np.exp(log_probs), [*map(index.get, targets)], unit="examples"))
    return unknown.counted_in(scores), unknown.notes()


def compared_labels(predicted: PredictedRows[Prediction]) -> Iterator[JsonMapping]:
    """Yield the right label of each row, and whether it was predicted."""
    for row, prediction in predicted:
        yield {"target": row.row[LABEL], "correct": prediction.text == row.row[LABEL]}
