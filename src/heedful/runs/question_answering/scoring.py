"""Scoring answers: the same as ``predict`` gives, beside the right ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.runs.measuring import cut_notes
from heedful.tasks.answering import ANSWER, PASSAGE, QUESTION, right_answers
from heedful.tasks.metrics.answering import answer_scores, is_exact, nearest, token_f1
from heedful.tasks.prediction import Prediction
from heedful.tasks.unknown import unknown_in


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """Exact match and F1, with every question.

    Args:
        texts: question and passage of each row.
        answers: the right ones, one or more for each row; an empty one for none.
        predictions: the run's.
    """

    texts: list[tuple[str, str]]
    answers: list[list[str]]
    predictions: list[Prediction]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a question, with the right answer, the prediction and its own scores."""
        for (question, passage), answers, found in zip(
            self.texts, self.answers, self.predictions, strict=True
        ):
            plain = found.to_dict()
            yield {
                "version": 1,
                QUESTION: question,
                PASSAGE: passage,
                ANSWER: answers[0] if len(answers) == 1 else answers,
                "prediction": plain.pop("text"),
                **plain,
                "exact": bool(nearest(is_exact, found.text, answers)),
                "f1": nearest(token_f1, found.text, answers),
            }


def scored(run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
    """Answer the questions of a data set and compare.

    Raises:
        DataError: there is nothing to score.
    """
    kept = list(islice(rows, how.limit))
    if not kept:
        raise DataError(f"{split}: there is nothing to score")
    texts = [(row.row[QUESTION], row.row[PASSAGE]) for row in kept]
    answers = [right_answers(row.row[ANSWER]) for row in kept]
    predictions = run.predict(texts, progress=how.progress, precision=how.precision)
    scores = answer_scores([p.text for p in predictions], answers)
    read = [{QUESTION: question, PASSAGE: passage} for question, passage in texts]
    notes = [*cut_notes(kept, predictions), *unknown_in(run.processor.tokenizer, read)]
    return Evaluation(split, scores, texts, answers, predictions, notes=notes)
