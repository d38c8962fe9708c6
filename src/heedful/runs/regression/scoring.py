"""Scoring a regression: the same answers as ``predict``, beside the right numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.runs.measuring import cut_notes
from heedful.tasks.labels import LABEL
from heedful.tasks.metrics.regression import regression_scores
from heedful.tasks.regression import number
from heedful.tasks.unknown import unknown_in


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """Correlations and squared error, with every row.

    Args:
        texts: the input of each row, by column.
        labels: the right numbers.
        predictions: the run's.
    """

    texts: list[dict[str, str]]
    labels: list[float]
    predictions: list[float]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a row: what was read, the right number and the prediction."""
        for texts, label, prediction in zip(self.texts, self.labels, self.predictions, strict=True):
            yield {"version": 1, **texts, "label": label, "prediction": prediction}


def scored(run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
    """Estimate a data set and compare.

    Raises:
        DataError: there is nothing to score, or a label is no number.
    """
    kept = list(islice(rows, how.limit))
    if not kept:
        raise DataError(f"{split}: there is nothing to score")
    labels = [number(row.row[LABEL], row.where) for row in kept]
    columns = run.kind.inputs(run.recipe)
    texts = [{column: row.row[column] for column in columns} for row in kept]
    inputs = [run.kind.input_of(run.recipe, row.row) for row in kept]
    answers: list[Any] = run.predict(inputs, progress=how.progress, precision=how.precision)
    predictions = [answer.value for answer in answers]
    scores = regression_scores(predictions, labels)
    notes = [*cut_notes(kept, answers), *unknown_in(run.processor.tokenizer, texts)]
    return Evaluation(split, scores, texts, labels, predictions, notes=notes)
