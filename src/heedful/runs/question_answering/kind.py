"""What runs that answer questions do in their own way."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.report import ColumnLimit, DataReport, Encoded, EncodedRow
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import DataError
from heedful.models.encoder import class_head
from heedful.objectives.answering import ANSWER
from heedful.objectives.terms import Objective
from heedful.runs.encoders.kind import EncoderKind, made_up
from heedful.runs.kind import Rows, Scoring, Trained
from heedful.runs.question_answering.batches import AnswerBatches
from heedful.runs.question_answering.recipe import QuestionAnsweringRecipe
from heedful.runs.question_answering.scoring import Evaluation, scored
from heedful.tasks.answering import PASSAGE, QUESTION, START, Answerer, PassageProcessor, Windows, answer_span
from heedful.tasks.texts import TEXT
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import Span, spelled

_TOO_LONG = "no window holds the whole answer: raise model.max_length or lower windows.stride"

MEASURES = {"loss": ANSWER, "accuracy": "correct"}


class QuestionAnswering(EncoderKind):
    """See `heedful.runs.kind.Kind`."""

    recipe = QuestionAnsweringRecipe
    unit = "questions"
    scoring = "answering"
    options = ("n_best",)
    readable = (QUESTION, PASSAGE)
    answer = ANSWER
    listed = (ANSWER, START)
    measures = MEASURES

    def texts(self, recipe: QuestionAnsweringRecipe) -> tuple[str, ...]:
        """Question and passage."""
        return (QUESTION, PASSAGE)

    def heads(self, recipe: QuestionAnsweringRecipe, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """A layer that makes two logits of a token: begins here, ends here."""
        return {ANSWER: class_head(recipe.model.d_model, 2, recipe.model.dropout)}

    def files(self, folder: RunFolder) -> list[Path]:
        """The tokenizer."""
        return [folder.tokenizer(TEXT)]

    def processor(
        self, recipe: QuestionAnsweringRecipe, tokenizer: Tokenizer, rows: Rows
    ) -> PassageProcessor:
        """The tokenizer is all."""
        return PassageProcessor(tokenizer)

    def save(self, processor: PassageProcessor, folder: RunFolder) -> None:
        """The tokenizer."""
        processor.tokenizer.save(folder.tokenizer(TEXT))

    def load(self, folder: RunFolder) -> PassageProcessor:
        """The tokenizer."""
        return PassageProcessor(Tokenizer.load(folder.tokenizer(TEXT)))

    def ids(
        self,
        recipe: QuestionAnsweringRecipe,
        processor: PassageProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """The ids of question and passage, and a mark on each of the answer's."""
        for row in rows:
            span = answer_span(row)
            if span is None and not recipe.task.unanswerable:
                span = "there is no answer"
            if not isinstance(span, str):
                found = _encoded(processor.tokenizer, row, span)
                if span is None or _is_held(recipe.cutting, found.row):
                    yield found
                    continue
                span = _TOO_LONG
            if recipe.data.missing == "error":
                raise DataError(f"{row.where}: {span} (`missing: drop` leaves such rows out)")
            report.rows += 1
            report.drop(span, row.where)

    def limits(self, recipe: QuestionAnsweringRecipe) -> Sequence[ColumnLimit]:
        """Long passages are read in windows; a question is not."""
        return [ColumnLimit(QUESTION, recipe.windows.longest_question, "windows.longest_question")]

    def n_answers(self, processor: PassageProcessor) -> int:
        """A token is a part of the answer, or not."""
        return 2

    def objective(self, recipe: QuestionAnsweringRecipe) -> Objective:
        """Where the answer begins and ends."""
        return recipe.objective.make()

    def batches(
        self, recipe: QuestionAnsweringRecipe, processor: PassageProcessor, store: TokenStore
    ) -> AnswerBatches:
        """Windows of the passages."""
        return AnswerBatches(store, recipe.cutting, unanswerable=recipe.task.unanswerable)

    def example(
        self, recipe: QuestionAnsweringRecipe, sizes: Sequence[int], n: int, length: int, source_length: int
    ) -> Batch:
        """Sequences that differ by a token or two in length; the last token is the answer."""
        batch = made_up(sizes[0], n, length, 2)
        return batch.answered([(k - 1, k - 1) for k in batch.inputs.layout.lengths])

    def predictor(
        self,
        recipe: QuestionAnsweringRecipe,
        processor: PassageProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> Answerer:
        """Answers."""
        return Answerer(
            inference.ready(),
            processor,
            windows=recipe.cutting,
            longest_answer=recipe.answering.longest,
            threshold=recipe.answering.threshold if recipe.task.unanswerable else None,
            **options,
        )

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """Exact match and F1."""
        return scored(run, split, rows, how)


def _is_held(windows: Windows, row: EncodedRow) -> bool:
    """Whether a window holds all tokens of the answer."""
    marked = [i for i, mark in enumerate(row[ANSWER]) if mark]
    return bool(marked) and windows.hold(len(row[QUESTION]), len(row[PASSAGE]), (marked[0], marked[-1]))


def _encoded(tokenizer: Tokenizer, row: LocatedRow[Row], span: Span | None) -> Encoded:
    question, passage = (spelled(tokenizer, row.row[column]) for column in (QUESTION, PASSAGE))
    marks = [0] * len(passage.ids)
    if span is not None and (covering := passage.covering(span)) is not None:
        first, last = covering
        marks[first : last + 1] = [1] * (last + 1 - first)
    return LocatedRow({QUESTION: question.ids, PASSAGE: passage.ids, ANSWER: marks}, row.where)
