"""Answers that are shown while they are written: the same for every task that writes.

token -> piece of text    `Growing`, which the decoders are given
piece -> whoever reads    `Streaming.stream`
"""

import codecs
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

from heedful.decoding.config import DecodingConfig, check_streaming
from heedful.decoding.protocol import Hypothesis, OnToken
from heedful.errors import DataError
from heedful.tasks.prediction import Prediction, TaskInput
from heedful.text.tokenizer import Tokenizer

OnText = Callable[[str], None]
"""Called after every token with the text that has become certain by it; that may be none."""

Pieces = Generator[str, None, Prediction]
"""The pieces of an answer, none of them empty; in the end, the prediction whose text they are."""


@dataclass(frozen=True)
class Spelling:
    """How the tokens of an answer become its text.

    Args:
        tokenizer: of the answer.
        undo: what is made of the text that the tokens spell.
        certain: the part of ``undo(text)`` that stays the same however the text continues.
        begun: whether the tokens follow others (`Tokenizer.spelled`).
        is_local: whether what is certain of a text can be cut off it: ``undo`` and ``certain`` make the
            same of the rest as if it still stood before it.
    """

    tokenizer: Tokenizer
    undo: Callable[[str], str]
    certain: Callable[[str], str]
    begun: bool = False
    is_local: bool = False

    def text(self, ids: Sequence[int]) -> str:
        """The text of the whole answer. Bytes that are not UTF-8 become U+FFFD."""
        spelled = b"".join(self.tokenizer.spelled(ids, begun=self.begun))
        return self.undo(spelled.decode("utf-8", "replace"))

    def prediction(self, hypothesis: Hypothesis) -> Prediction:
        """The answer that a hypothesis is."""
        return Prediction(
            text=self.text(hypothesis.ids),
            score=hypothesis.score,
            tokens=self.tokenizer.tokens(hypothesis.ids),
            log_probs=list(hypothesis.log_probs),
            ids=tuple(hypothesis.ids),
        )


class Growing:
    """Tells the text of one answer while its tokens come: no half character, nothing that may yet change.

    The cost is linear in the length of the answer. What is certain is cut off the text, if the spelling is
    local. If not, all of the text is needed each time, and a long text is only looked at when it has grown
    by a sixteenth.

    Args:
        spelling: of the answer.
        on_text: is told.
    """

    _SHORT = 512
    """Characters of a text of which every token is told at once, however it is spelled."""

    def __init__(self, spelling: Spelling, on_text: OnText) -> None:
        self.spelling, self.on_text = spelling, on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun, self._parts, self._size, self._due, self._told = spelling.begun, [""], 0, 0, 0

    def __call__(self, sentence: int, token: int) -> None:
        """The next token (`heedful.decoding.protocol.OnToken`)."""
        if sentence:
            raise ValueError("only one answer can be streamed at a time")
        (spelled,) = self.spelling.tokenizer.spelled([token], begun=self._begun)
        self._begun = True
        self._add(self._decoder.decode(spelled))
        if self._size < self._due:
            self.on_text("")
            return
        self._due = self._size + self._size // 16 if self._size > self._SHORT else 0
        text = self._text()
        certain = self.spelling.certain(text)
        self._log(certain)
        if self.spelling.is_local:
            rest = text[len(certain) :]
            self._parts, self._size, self._told = [rest], len(rest), 0

    def end(self) -> None:
        """No token follows: the rest of the text."""
        self._add(self._decoder.decode(b"", final=True))
        self._log(self.spelling.undo(self._text()))

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)

    def _text(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def _log(self, text: str) -> None:
        self.on_text(text[self._told :])
        self._told = max(self._told, len(text))


@contextmanager
def streamed(spelling: Spelling, on_text: OnText | None) -> Iterator[OnToken | None]:
    """What a decoder is to be given, so that ``on_text`` is told of all that it writes; None for None."""
    if on_text is None:
        yield None
        return
    growing = Growing(spelling, on_text)
    yield growing
    growing.end()


class Streaming(ABC):
    """What answers inputs in texts of its own, and may be watched while it writes one."""

    decoding: DecodingConfig
    """How it decodes."""

    @abstractmethod
    def predict(
        self,
        texts: Sequence[TaskInput],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Callable[[int], None] = lambda n: None,
        on_text: OnText | None = None,
    ) -> list[Prediction]:
        """See `heedful.runs.run.Run.predict`; of a single input, ``on_text`` is told while it is answered."""

    def stream(self, given: TaskInput, *, ordinal: int = 0) -> Pieces:
        """Answer one input, a piece of text at a time, as soon as it is certain.

        Together the pieces are the text that `predict` gives. The work is done in a thread of its own,
        which ends when the iterator is closed; whoever is attached to a tap in another is not told.

        Args:
            given: the input.
            ordinal: its number; sampling draws for each number on its own.

        Raises:
            RequestError: the decoding chooses among several answers in the end.
            DataError: the input cannot be read.
        """
        check_streaming(self.decoding)
        return _pieces(lambda on_text: self.predict([given], first=ordinal, on_text=on_text)[0])


def _pieces(answer: Callable[[OnText], Prediction]) -> Pieces:
    """What ``answer`` tells, read out of a thread of its own."""
    queue: SimpleQueue[str | Prediction | BaseException] = SimpleQueue()
    left = threading.Event()

    def told(piece: str) -> None:
        if left.is_set():
            raise _LeftError
        if piece:
            queue.put(piece)

    def work() -> None:
        try:
            queue.put(answer(told))
        except BaseException as error:  # told to whoever reads the stream
            queue.put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while isinstance(found := queue.get(), str):
            yield found
    finally:
        left.set()
        thread.join()
    if isinstance(found, BaseException):
        raise found
    if found.error:
        raise DataError(found.error)
    return found


class _LeftError(Exception):
    """Nobody reads the stream any more."""
