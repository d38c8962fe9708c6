"""Scoring answers: the same as ``predict`` gives, beside the right ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from heedful.data.sources import Located, Row
from heedful.errors import DataError
from heedful.evaluation.answering import answer_scores, is_exact, token_f1
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.tasks.answering import ANSWER, PASSAGE, QUESTION
from heedful.tasks.prediction import Prediction


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """Exact match and F1, with every question.

    Args:
        texts: question and passage of each row.
        answers: the right ones; empty for none.
        predictions: the run's.
    """

    texts: list[tuple[str, str]]
    answers: list[str]
    predictions: list[Prediction]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a question, with the right answer, the prediction and its own scores."""
        for (question, passage), answer, found in zip(
            self.texts, self.answers, self.predictions, strict=True
        ):
            plain = found.to_dict()
            yield {
                "version": 1,
                QUESTION: question,
                PASSAGE: passage,
                ANSWER: answer,
                "prediction": plain.pop("text"),
                **plain,
                "exact": is_exact(found.text, answer),
                "f1": token_f1(found.text, answer),
            }


def scored(run: Trained, split: str, rows: Iterator[Located[Row]], how: Scoring) -> Evaluation:
    """Answer the questions of a data set and compare.

    Raises:
        DataError: there is nothing to score.
    """
    kept = list(islice(rows, how.limit))
    if not kept:
        raise DataError(f"{split}: there is nothing to score")
    texts = [(row.row[QUESTION], row.row[PASSAGE]) for row in kept]
    answers = [row.row[ANSWER] for row in kept]
    predictions = run.predict(texts, progress=how.progress, precision=how.precision)
    scores = answer_scores([p.text for p in predictions], answers)
    return Evaluation(split, scores, texts, answers, predictions)
