"""Extractive question answering: the answer is a span of the passage.

question, passage, answer -> ids, marks on the answer's -> windows -> `Batch.answered` -> model -> loss
question, passage -> ids -> windows -> start and end of the answer -> text    `Answerer`
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.data.report import ColumnLimit, DataReport, Encoded, EncodedRow
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.objectives.classification import answer_log_probs
from heedful.objectives.registry import ANSWER as ANSWER_LOSSES
from heedful.objectives.registry import Losses
from heedful.recipes import schema
from heedful.tasks.base import RowReader
from heedful.tasks.calibration import CalibrationConfig, Classes
from heedful.tasks.evaluation import PredictedRows
from heedful.tasks.inputs.processor import TextProcessor
from heedful.tasks.inputs.texts import CLASS_TEMPLATE, unknown_notes_by_column
from heedful.tasks.metrics.answering import answer_scores, best_match, is_exact, token_f1
from heedful.tasks.metrics.calibration import calibration_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import (
    INPUT,
    AnswerOptions,
    ModelInput,
    PredictionTargets,
    ids_in,
    refuse_empty,
    text_axis,
    texts_in,
)
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, TaskInput, content_of
from heedful.tasks.question_answering.answering import (
    ANSWER,
    N_SPECIALS,
    PASSAGE,
    QUESTION,
    START,
    Answer,
    Answerer,
    Windows,
    answer_span,
    right_answers,
)
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.tasks.text_task import EncoderRecipe, TextTask, WholeDataConfig, synthetic_texts
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import Span, encode_with_spans
from heedful.typing import JsonMapping

# Recipes ------------------------------------------------------------------------------------------------


class QuestionAnsweringConfig(CalibrationConfig):
    """An answer cut out of a passage; the data have the columns ``question``, ``passage`` and ``answer``.

    A column ``start``, if there is one, is the character of the passage at which the answer begins; otherwise
    it is the first occurrence.

    Args:
        unanswerable: whether there may be no answer, which is an empty one in the data.
    """

    kind: Literal["question-answering"] = "question-answering"
    unanswerable: bool = False


class DataConfig(WholeDataConfig):
    """Questions and passages.

    Args:
        missing: what to do with a row of training or validation whose answer is not found in its passage, or
            is longer than a window of it: leave it out and count it, or stop.
    """

    missing: Literal["drop", "error"] = "drop"


class ObjectiveConfig(schema.ObjectiveConfig):
    """The loss on the first and the last token of the answer."""

    losses: ClassVar[Losses] = ANSWER_LOSSES


class WindowsConfig(Config):
    """How long passages are read.

    Args:
        stride: tokens that a window begins after the one before; half of a window unless given.
        longest_question: tokens of a question that are read.
    """

    stride: PositiveInt | None = None
    longest_question: PositiveInt = 64


class AnsweringConfig(Config):
    """What can be an answer.

    Args:
        longest: the most tokens of an answer.
        threshold: how much more the score of the best answer must be than that of none, where there may be
            none; raise it to get fewer answers.
    """

    longest: PositiveInt = 30
    threshold: float = 0.0


class QuestionAnsweringRecipe(EncoderRecipe):
    """A whole recipe.

    Args:
        windows: how long passages are read.
        answering: what can be an answer.
    """

    task: QuestionAnsweringConfig
    data: DataConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    windows: WindowsConfig = WindowsConfig()
    answering: AnsweringConfig = AnsweringConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})
    scored_metrics: ClassVar[frozenset[str]] = frozenset({"exact-match", "f1"})

    def metric_names(self) -> set[str]:
        """What validation measures: accuracy is how often both ends are right, window by window."""
        return {"loss", "accuracy"}

    @property
    def pairs(self) -> bool:
        """A question and a passage are read together."""
        return True

    @property
    def passage_windows(self) -> Windows:
        """How passages are cut into windows that are read with the question."""
        return Windows(self.model.max_length, self.windows.longest_question, self.windows.stride)

    @schema.check
    def _room_for_passages(self) -> None:
        if self.model.max_length <= N_SPECIALS + self.windows.longest_question:
            raise ValueError(
                f"model.max_length={self.model.max_length} leaves no room for a passage beside a question of "
                f"{self.windows.longest_question} tokens; lower windows.longest_question"
            )


# Batches ------------------------------------------------------------------------------------------------


class _Window(NamedTuple):
    """The index of a row, a window of its passage, and the answer's first and last token in it, or None."""

    row: int
    first: int
    last: int
    answer: tuple[int, int] | None


class AnswerBatches:
    """Batches of questions with windows of their passages; a sample is a window.

    Windows that do not contain the whole answer have no answer: they are left out, unless the task has
    unanswerable questions.

    Args:
        store: ids of questions and passages, and marks on the answers.
        windows: of long passages.
        unanswerable: whether there may be no answer.
    """

    def __init__(self, store: TokenStore, windows: Windows, *, unanswerable: bool) -> None:
        self.store, self.passage_windows = store, windows
        all_windows = [window for row in range(len(store)) for window in self._windows(row)]
        self.windows = [window for window in all_windows if unanswerable or window.answer]
        if not self.windows:
            raise DataError(
                "no window contains a whole answer; raise model.max_length, or lower windows.stride"
            )
        questions = np.minimum(store.lengths(QUESTION), windows.longest_question)
        rows, first, last = np.array([window[:3] for window in self.windows]).T
        self.lengths: Lengths = last - first + questions[rows] + N_SPECIALS

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of these windows."""
        windows = [self.windows[i] for i in samples]
        rows = self.store.gather([window.row for window in windows])
        questions = [ids[: self.passage_windows.longest_question] for ids in rows[QUESTION]]
        passages = [ids[w.first : w.last] for ids, w in zip(rows[PASSAGE], windows, strict=True)]
        batch = Batch.with_special_tokens(
            list(zip(questions, passages, strict=True)),
            classify=SPECIALS.classify,
            separate=SPECIALS.separate,
            samples=samples,
        )
        return batch.answered([_answer_positions(w, len(q)) for w, q in zip(windows, questions, strict=True)])

    def _windows(self, row: int) -> Iterator[_Window]:
        ids = self.store[row]
        answer_tokens = np.flatnonzero(ids[ANSWER]).tolist()
        for first, last in self.passage_windows.bounds(len(ids[QUESTION]), len(ids[PASSAGE])):
            is_inside = answer_tokens and first <= answer_tokens[0] and answer_tokens[-1] < last
            yield _Window(
                row, first, last, (answer_tokens[0] - first, answer_tokens[-1] - first) if is_inside else None
            )


def _answer_positions(window: _Window, n_question: int) -> tuple[int, int] | None:
    """Return the first and last position of the answer in the sequence, or None."""
    if window.answer is None:
        return None
    passage_start = n_question + N_SPECIALS - 1
    return passage_start + window.answer[0], passage_start + window.answer[1]


# The task -----------------------------------------------------------------------------------------------

_NO_WINDOW = "no window holds the whole answer: raise model.max_length or lower windows.stride"


class QuestionAnswering(TextTask):
    """Predict which span of a passage answers a question."""

    Recipe = QuestionAnsweringRecipe
    Processor = TextProcessor
    info = TaskInfo(
        unit="questions",
        evaluation_verb="answering",
        memory_advice="lower model.max_length",
        options=("n_best", "threshold"),
    )
    target_column = ANSWER
    validation_terms: ClassVar = {"loss": ANSWER, "accuracy": "correct"}
    calibrated_head: ClassVar[str] = ANSWER

    recipe: QuestionAnsweringRecipe

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Question and passage."""
        return (QUESTION, PASSAGE)

    @property
    def columns(self) -> Columns:
        """Question, passage and answer, or several answers."""
        return Columns((QUESTION, PASSAGE, ANSWER), (QUESTION, PASSAGE), list_valued=(ANSWER, START))

    def processor_with(self, tokenizer: Tokenizer, read_rows: RowReader) -> TextProcessor:
        """Return the tokenizer alone."""
        return TextProcessor(tokenizer)

    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of question and passage, and for each id of the passage 1 if it is in the answer."""
        recipe = self.recipe
        for row in rows:
            span = answer_span(row)
            if span is None and not recipe.task.unanswerable:
                span = "there is no answer"
            if not isinstance(span, str):
                encoded_row = _encode(self.processor.text, row, span)
                if span is None or _fits_a_window(recipe.passage_windows, encoded_row.row):
                    yield encoded_row
                    continue
                span = _NO_WINDOW
            if recipe.data.missing == "error":
                raise DataError(f"{row.location}: {span} (`data.missing: drop` leaves such rows out)")
            report.rows += 1
            report.drop(span, row.location)

    def limits(self) -> Sequence[ColumnLimit]:
        """Return the limit of questions; long passages are read in windows."""
        return [ColumnLimit(QUESTION, self.recipe.windows.longest_question, "windows.longest_question")]

    @property
    def n_target_ids(self) -> int:
        """2: a token is a part of the answer, or not."""
        return 2

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """Return a layer that computes two logits for each token: the answer starts, or ends, here."""
        return {ANSWER: class_head(self.recipe.model.d_model, 2, self.recipe.model.dropout)}

    def batches(self, store: TokenStore, *, training: bool) -> AnswerBatches:
        """Return batches of windows of the passages."""
        return AnswerBatches(store, self.recipe.passage_windows, unanswerable=self.recipe.task.unanswerable)

    def classes_of(self, model: Model, batch: Batch) -> Classes:
        """Return the log-probabilities that each answer starts and ends at a token, and where it does."""
        layout, answers = batch.inputs.layout, batch.answers
        assert answers is not None
        log_probs = answer_log_probs(model(batch.inputs), model.heads, layout)
        return log_probs.mT.flatten(0, 1), (answers - layout.offsets[:-1, None]).flatten()

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return sequences that differ by a token or two in length; the last token is the answer."""
        batch = synthetic_texts(sizes[0], n, length, 2)
        return batch.answered([(k - 1, k - 1) for k in batch.inputs.layout.lengths])

    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict the answer to each question, a pair with its passage; ``n_best`` gives alternatives."""
        answering = self.recipe.answering
        answerer = Answerer(
            model,
            self.processor.text,
            windows=self.recipe.passage_windows,
            longest_answer=answering.longest,
            threshold=answering.threshold if self.recipe.task.unanswerable else None,
            options=options,
        )
        return answerer.predict(inputs)

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare a question and a passage; "no answer" starts and ends at the class token."""
        options.refuse_target(self.recipe.task.kind, "answers are spans of the passage")
        question, passage = texts_in(task_input, self.columns, self.recipe.task.kind)
        tokenizer, windows = self.processor.text, self.recipe.passage_windows
        question_ids, passage_tokens = (
            encode_with_spans(tokenizer, content_of(question)).ids,
            encode_with_spans(tokenizer, content_of(passage)),
        )
        refuse_empty(passage_tokens.ids)
        n_windows = len(windows.bounds(len(question_ids), len(passage_tokens.ids)))
        if n_windows > 1:
            raise RequestError(
                f"the passage must fit into one window, got {n_windows} windows; shorten it to the part that "
                "contains the answer"
            )
        assert isinstance(answer, Answer)
        question_ids = question_ids[: windows.longest_question]
        batch = CLASS_TEMPLATE([(question_ids, passage_tokens.ids)])
        start, end = answer.start, answer.end
        answer_tokens = None if start is None or end is None else passage_tokens.covering((start, end))
        answer_positions = (
            (0, 0)
            if answer_tokens is None
            else tuple(len(question_ids) + 2 + position for position in answer_tokens)
        )
        ids = ids_in(batch)
        labels = tokenizer.tokens(ids)

        def logits(hidden: Tensor, batch: Batch) -> Iterator[Tensor]:
            # [B, S, 2] becomes [2 B, S]: start and end of each sequence.
            yield answer_log_probs(hidden, model.heads, batch.inputs.layout).mT.flatten(0, 1)

        targets = PredictionTargets(
            INPUT,
            answer_positions,
            torch.tensor(answer_positions),
            logits,
            lambda i, position: labels[position],
            are_positions=True,
        )
        return ModelInput(batch, {INPUT: text_axis(tokenizer, ids)}, answer, targets)

    def metrics(self, model: Model, predicted: PredictedRows[Prediction]) -> tuple[list[Score], list[str]]:
        """Return exact match and F1, and the scores of the probabilities that an answer is an exact match."""
        answers = [right_answers(row.row[ANSWER]) for row in predicted.rows]
        notes = unknown_notes_by_column(self.processor.text, self.texts_of(predicted.rows))
        scores = answer_scores(predicted.texts, answers)
        correct = [best_match(is_exact, *pair) for pair in zip(predicted.texts, answers, strict=True)]
        confidences = np.exp([prediction.score or 0.0 for prediction in predicted.predictions])
        scores += calibration_scores(confidences, correct, unit="questions", temperature=self.temperature)
        return scores, notes

    def compared(self, predicted: PredictedRows[Prediction]) -> Iterator[JsonMapping]:
        """Yield the right answers to each question, and the scores of the predicted one."""
        for row, prediction in predicted:
            answers = right_answers(row.row[ANSWER])
            is_right = bool(best_match(is_exact, prediction.text, answers))
            scores = {"exact_match": float(is_right), "f1": best_match(token_f1, prediction.text, answers)}
            yield {"target": answers, "correct": is_right, "scores": scores}


def _fits_a_window(windows: Windows, row: EncodedRow) -> bool:
    """Return whether a window contains all tokens of the answer."""
    answer_tokens = [i for i, mark in enumerate(row[ANSWER]) if mark]
    return bool(answer_tokens) and windows.contain(
        len(row[QUESTION]), len(row[PASSAGE]), (answer_tokens[0], answer_tokens[-1])
    )


def _encode(tokenizer: Tokenizer, row: LocatedRow[Row], span: Span | None) -> Encoded:
    question, passage = (
        encode_with_spans(tokenizer, content_of(row.row[column])) for column in (QUESTION, PASSAGE)
    )
    marks = [0] * len(passage.ids)
    if span is not None and (answer_tokens := passage.covering(span)) is not None:
        first, last = answer_tokens
        marks[first : last + 1] = [1] * (last + 1 - first)
    return LocatedRow({QUESTION: question.ids, PASSAGE: passage.ids, ANSWER: marks}, row.location)
