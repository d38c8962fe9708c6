"""Answer questions from a passage: the answer is a span of the passage, returned as it is written there.

question, passage, answer -> ids, marks on the answer's -> windows -> `Batch.answered` -> model -> loss
question, passage -> ids -> windows -> where answers begin and end -> characters of the passage

A sequence is ``<cls> question <sep> passage <sep>`` (Devlin et al. 2019, section 4.2).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.batch import Batch
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.models.base import Model
from heedful.objectives.classification import answer_log_probs
from heedful.tasks.inputs.texts import group_by_length, join_notes, unknown_note
from heedful.tasks.prediction import (
    BATCH_TOKENS,
    DEFAULT_OPTIONS,
    EMPTY,
    EMPTY_QUESTION,
    Prediction,
    PredictOptions,
    TaskInput,
    as_texts,
    content_of,
)
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.text.words import IdsWithSpans, Span, encode_with_spans
from heedful.typing import JsonObject

QUESTION, PASSAGE, ANSWER, START = "question", "passage", "answer", "start"

# The class token and two separators.
N_SPECIALS = 3


@dataclass(frozen=True, repr=False)
class Answer(Prediction):
    """A predicted span of a passage; ``score`` is the log-probability of its start and end.

    Args:
        start: its first character in the passage; None if there is no answer.
        end: the first character after it.
    """

    start: int | None = None
    end: int | None = None

    @property
    def confidence(self) -> float | None:
        """The probability of the start times that of the end; None if the input is empty."""
        return None if self.score is None else math.exp(min(self.score, 0.0))

    @property
    def output(self) -> object:
        """The answer; None if the passage has none."""
        return self.text or None

    def details(self) -> JsonObject:
        """Return where the answer is."""
        return {"start": self.start, "end": self.end}


@dataclass(frozen=True)
class Windows:
    """How a question and a long passage become sequences.

    Args:
        longest: the most tokens of a sequence.
        longest_question: the most tokens of a question; longer ones are truncated.
        stride: how many tokens a window begins after the one before; None: half of a window.
    """

    longest: int
    longest_question: int
    stride: int | None = None

    def bounds(self, n_question: int, n_passage: int) -> list[tuple[int, int]]:
        """Return the first token of each window of a passage, and the first one after it (at least one)."""
        size = self.longest - N_SPECIALS - min(n_question, self.longest_question)
        step = min(self.stride or max(1, size // 2), size)
        n = 1 + max(0, -(-(n_passage - size) // step))
        return [(i * step, min(i * step + size, n_passage)) for i in range(n)]

    def contain(self, n_question: int, n_passage: int, answer: tuple[int, int]) -> bool:
        """Return whether a window contains the whole answer, given its first and its last token."""
        first, last = answer
        return any(a <= first and last < b for a, b in self.bounds(n_question, n_passage))


def right_answers(value: str | list[str]) -> list[str]:
    """Return the right answers of a row, given its column ``answer``; an empty list is an empty answer."""
    return [value] if isinstance(value, str) else value or [""]


def answer_span(row: LocatedRow[Row]) -> Span | str | None:
    """Return the characters of the passage that are the answer; None for no answer; or why they are unknown.

    Of several right answers, it is the first.

    Raises:
        DataError: if ``start`` is not a whole number.
    """
    passage, answer = row.row[PASSAGE], right_answers(row.row[ANSWER])[0]
    start = right_answers(row.row.get(START, ""))[0].strip()
    if not answer.strip():
        return None
    if not start:
        first = passage.find(answer)
        return "the answer is not in the passage" if first < 0 else (first, first + len(answer))
    if not start.isdecimal():
        raise DataError(f"{row.location}: start must be a whole number, got {start!r}")
    first = int(start)
    matches = passage[first : first + len(answer)] == answer
    return (first, first + len(answer)) if matches else "the answer is not where start says"


class _Window(NamedTuple):
    """A question with a window of its passage: index of the input, ids, and the window's character ranges."""

    input_index: int
    question: list[int]
    passage: list[int]
    spans: list[Span]

    @property
    def length(self) -> int:
        return len(self.question) + len(self.passage) + N_SPECIALS


class _Candidate(NamedTuple):
    """A possible answer: its log-probability, and its characters in the passage; None for no answer."""

    score: float
    span: Span | None


class Answerer:
    """Finds the answer to each question in its passage.

    The candidates are the best spans of every window of a passage (each window has the probabilities of its
    own tokens); the answer is the best candidate. If there may be no answer, no answer has the class token's
    score, the lowest of all windows, and is chosen unless the best span's score is greater by more than
    ``threshold`` (Devlin et al. 2019, section 4.3).

    Args:
        model: has a head ``answer``; in evaluation mode.
        tokenizer: of questions and passages.
        windows: of long passages.
        longest_answer: the most tokens of an answer.
        threshold: see above; None: there is always an answer.
        options: ``n_best`` and ``progress``.
        budget: maximum number of tokens of a batch, with padding.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        windows: Windows,
        longest_answer: int,
        threshold: float | None = None,
        options: PredictOptions = DEFAULT_OPTIONS,
        budget: int = BATCH_TOKENS,
    ) -> None:
        self.model, self.tokenizer, self.windows = model, tokenizer, windows
        self.longest_answer, self.threshold = longest_answer, threshold
        self.n_best, self.progress = options.n_best or 1, options.progress
        self.budget, self.device = budget, next(model.parameters()).device

    @torch.inference_mode()
    def predict(self, inputs: Sequence[TaskInput]) -> list[Prediction]:
        """Answer the questions: pairs of a question and a passage."""
        texts = [as_texts(task_input) for task_input in inputs]
        tokens = [[encode_with_spans(self.tokenizer, content_of(text)) for text in pair] for pair in texts]
        windows = [window for i, pair in enumerate(tokens) for window in self._windows(i, *pair)]
        candidates: list[list[_Candidate]] = [[] for _ in inputs]
        null_scores: list[list[float]] = [[] for _ in inputs]
        for group in group_by_length({i: window.length for i, window in enumerate(windows)}, self.budget):
            group_windows = [windows[i] for i in group]
            for window, log_probs in zip(group_windows, self._log_probs(group_windows), strict=True):
                candidates[window.input_index] += self._best_spans(window, log_probs)
                null_scores[window.input_index].append(log_probs[0].sum().item())
        self.progress(len(inputs))
        cuts = [max(0, len(question.ids) - self.windows.longest_question) for question, _ in tokens]
        notes = [
            join_notes(
                f"question cut from {len(spelled_pair[0].ids)} to {len(spelled_pair[0].ids) - cut} tokens"
                if cut
                else None,
                unknown_note(self.tokenizer, pair, [text.ids for text in spelled_pair]),
            )
            for pair, spelled_pair, cut in zip(texts, tokens, cuts, strict=True)
        ]
        answers = [self._answer(*parts) for parts in zip(texts, candidates, null_scores, notes, strict=True)]
        return [replace(answer, cut=cut) for answer, cut in zip(answers, cuts, strict=True)]

    def _windows(self, input_index: int, question: IdsWithSpans, passage: IdsWithSpans) -> Iterator[_Window]:
        question_ids = question.ids
        for a, b in self.windows.bounds(len(question_ids), len(passage.ids)):
            truncated = question_ids[: self.windows.longest_question]
            yield _Window(input_index, truncated, passage.ids[a:b], passage.spans[a:b])

    def _log_probs(self, windows: Sequence[_Window]) -> Tensor:
        """``[B, S, 2]``, on the CPU."""
        batch = Batch.with_special_tokens(
            [(window.question, window.passage) for window in windows],
            classify=SPECIALS.classify,
            separate=SPECIALS.separate,
        ).to(self.device)
        hidden = self.model(batch.inputs)
        return answer_log_probs(hidden, self.model.heads, batch.inputs.layout).cpu()

    def _best_spans(self, window: _Window, log_probs: Tensor) -> list[_Candidate]:
        """Return the best spans of one window."""
        n, first = len(window.passage), len(window.question) + 2
        starts, ends = log_probs[first : first + n].unbind(-1)
        has_characters = torch.tensor([a < b for a, b in window.spans], dtype=torch.bool)
        allowed = torch.ones(n, n, dtype=torch.bool).triu().tril(self.longest_answer - 1)
        allowed &= has_characters[:, None] & has_characters
        scores = (starts[:, None] + ends).masked_fill(~allowed, float("-inf")).flatten()
        n_allowed = int(allowed.sum())
        # Several tokens may spell the same characters, so more than n_best may be needed.
        score_of_span: dict[Span, float] = {}
        best_scores, indices = scores.topk(min(n_allowed, 1) if self.n_best == 1 else n_allowed)
        for score, index in zip(best_scores.tolist(), indices.tolist(), strict=True):
            score_of_span.setdefault((window.spans[index // n][0], window.spans[index % n][1]), score)
            if len(score_of_span) == self.n_best:
                break
        return [_Candidate(score, span) for span, score in score_of_span.items()]

    def _answer(
        self,
        texts: Sequence[str],
        candidates: list[_Candidate],
        null_scores: list[float],
        input_notes: tuple[str, ...],
    ) -> Answer:
        question, passage = texts
        notes = join_notes(None if content_of(question) else EMPTY_QUESTION, input_notes)
        # Neighbouring windows share tokens: of equal spans, the one with the higher score counts.
        candidate_of_span = {candidate.span: candidate for candidate in sorted(candidates)}
        ranking = sorted(candidate_of_span.values(), key=lambda candidate: -candidate.score)
        if not ranking:
            return Answer("", min(null_scores), notes=(f"{EMPTY}: it has no passage",))
        if self.threshold is not None:
            no_answer = _Candidate(min(null_scores), None)
            rank = sum(candidate.score > no_answer.score + self.threshold for candidate in ranking)
            ranking.insert(rank, no_answer)
        best_answer = self._extract(passage, ranking[0])
        alternatives: list[Prediction] = [
            self._extract(passage, candidate) for candidate in ranking[1 : self.n_best]
        ]
        return replace(best_answer, alternatives=alternatives, notes=notes)

    def _extract(self, passage: str, candidate: _Candidate) -> Answer:
        start, end = candidate.span or (None, None)
        text = "" if candidate.span is None else passage[start:end]
        return Answer(text, candidate.score, start=start, end=end)
