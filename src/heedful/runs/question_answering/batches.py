"""Batches of questions with windows of their passages."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.data.store import TokenStore
from heedful.errors import DataError
from heedful.tasks.answering import ANSWER, N_SPECIALS, PASSAGE, QUESTION, Windows
from heedful.text.specials import SPECIALS


class _Window(NamedTuple):
    """A row, a stretch of its passage, and the answer in it: tokens of that stretch, or None."""

    row: int
    first: int
    last: int
    answer: tuple[int, int] | None


class AnswerBatches:
    """See `heedful.runs.measuring.Batches`; a sample is a window.

    Windows that hold only a part of the answer, or nothing of it, have no answer: they are left out, unless
    the model shall learn that there may be none.

    Args:
        store: ids of questions and passages, and marks on the answers.
        windows: of long passages.
        unanswerable: whether there may be no answer.
    """

    def __init__(self, store: TokenStore, windows: Windows, *, unanswerable: bool) -> None:
        self.store, self.cutting = store, windows
        every = [window for row in range(len(store)) for window in self._windows(row)]
        self.windows = [window for window in every if unanswerable or window.answer]
        if not self.windows:
            raise DataError("no window holds a whole answer: raise model.max_length, or lower windows.stride")
        questions = np.minimum(store.lengths(QUESTION), windows.longest_question)
        rows, first, last = np.array([window[:3] for window in self.windows]).T
        self.lengths: Lengths = last - first + questions[rows] + N_SPECIALS

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """The batch of some windows."""
        chosen = [self.windows[i] for i in samples]
        rows = self.store.gather([window.row for window in chosen])
        questions = [ids[: self.cutting.longest_question] for ids in rows[QUESTION]]
        passages = [ids[w.first : w.last] for ids, w in zip(rows[PASSAGE], chosen, strict=True)]
        framed = Batch.framed(
            list(zip(questions, passages, strict=True)),
            classify=SPECIALS.classify,
            separate=SPECIALS.separate,
            samples=samples,
        )
        return framed.answered([_placed(w, len(q)) for w, q in zip(chosen, questions, strict=True)])

    def _windows(self, row: int) -> Iterator[_Window]:
        ids = self.store[row]
        marked = np.flatnonzero(ids[ANSWER]).tolist()
        for first, last in self.cutting.of(len(ids[QUESTION]), len(ids[PASSAGE])):
            within = marked and first <= marked[0] and marked[-1] < last
            yield _Window(row, first, last, (marked[0] - first, marked[-1] - first) if within else None)


def _placed(window: _Window, n_question: int) -> tuple[int, int] | None:
    """The answer's tokens in the sequence, where the passage begins after the question."""
    if window.answer is None:
        return None
    begin = n_question + N_SPECIALS - 1
    return begin + window.answer[0], begin + window.answer[1]
