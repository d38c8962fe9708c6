"""Scoring a classifier: the same answers as ``predict``, beside the right labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.runs.measuring import answered, cut_notes
from heedful.tasks.labels import LABEL, Unseen
from heedful.tasks.metrics.classification import classification_scores
from heedful.tasks.prediction import Prediction
from heedful.tasks.unknown import unknown_in


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """Accuracy and F1, with every row.

    Args:
        texts: the input of each row, by column; of an image its name.
        labels: the right ones.
        predictions: the run's.
    """

    texts: list[dict[str, str]]
    labels: list[str]
    predictions: list[Prediction]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a row: what was read, the right label, the prediction and whether it is right."""
        for texts, label, prediction in zip(self.texts, self.labels, self.predictions, strict=True):
            answer = prediction.to_dict()
            yield {
                "version": 1,
                **texts,
                "label": label,
                "prediction": answer.pop("text"),
                **answer,
                "correct": prediction.text == label,
            }


def scored(
    run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring, *, drop: bool = False
) -> Evaluation:
    """Label a data set and compare.

    Args:
        run: a classifier's.
        split: the name of the data set.
        rows: inputs and right labels.
        how: which of them.
        drop: leave out what cannot be read; the scores' counts say how many were left out.

    Raises:
        DataError: there is nothing to score, or no label is one of the run's; or an input cannot be read.
    """
    kept = list(islice(rows, how.limit))
    if not kept:
        raise DataError(f"{split}: there is nothing to score")
    _unseen(run, kept)  # before the work: labels of another task altogether are refused
    columns = run.kind.inputs(run.recipe)
    inputs = [run.kind.input_of(run.recipe, row.row) for row in kept]
    found = run.predict(inputs, progress=how.progress, precision=how.precision)
    read = answered(split, kept, found, drop=drop)
    labels = [row.row[LABEL] for row in read.rows]
    texts = [{column: str(row.row[column]) for column in columns} for row in read.rows]
    unseen = _unseen(run, read.rows)
    classes = (*run.processor.labels, *unseen.labels)
    plain = classification_scores([p.text for p in read.predictions], labels, classes)
    more = {**read.counted, **unseen.counted}
    scores = [replace(score, counts={**score.counts, **more}) for score in plain.values()]
    notes = [*read.notes, *cut_notes(read.rows, read.predictions), *unseen.notes()]
    if not run.kind.images(run.recipe):
        notes += unknown_in(run.processor.tokenizer, texts)
    return Evaluation(split, scores, texts, labels, read.predictions, notes=notes)


def _unseen(run: Trained, rows: Sequence[LocatedRow[Row]]) -> Unseen:
    return Unseen.among(((row.row[LABEL], row.where) for row in rows), run.processor.labels)
