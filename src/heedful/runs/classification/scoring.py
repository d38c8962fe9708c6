"""Scoring a classifier: the same answers as ``predict``, beside the right labels."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from heedful.data.sources import Located, Row
from heedful.errors import DataError
from heedful.evaluation.classification import classification_scores
from heedful.runs import kind
from heedful.runs.kind import Scoring
from heedful.tasks.classification import LABEL
from heedful.tasks.prediction import Prediction
from heedful.tasks.texts import text_columns

if TYPE_CHECKING:
    from heedful.runs.run import Run


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """Accuracy and F1, with every row.

    Args:
        texts: the input of each row, by column.
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


def scored(run: "Run", split: str, rows: Iterator[Located[Row]], how: Scoring) -> Evaluation:
    """Label a data set and compare.

    Raises:
        DataError: there is nothing to score, or a label is none of the run's.
    """
    kept = list(islice(rows, how.limit))
    if not kept:
        raise DataError(f"{split}: there is nothing to score")
    for row in kept:
        run.codec.number(row.row[LABEL], row.where)
    columns = text_columns(run.recipe.task.pairs)
    texts = [{column: row.row[column] for column in columns} for row in kept]
    labels = [row.row[LABEL] for row in kept]
    inputs = [tuple(text.values()) if len(columns) > 1 else text[columns[0]] for text in texts]
    predictions = run.predict(inputs, progress=how.progress, precision=how.precision)
    found = classification_scores([p.text for p in predictions], labels, run.codec.labels)
    return Evaluation(split, list(found.values()), texts, labels, predictions)
