"""Streaming: generated text is passed on while it is generated, for all tasks that generate text.

token -> piece of text    `IncrementalText`, called by the decoders
piece -> the caller       `Streaming.stream`
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
from heedful.tasks.generation.output_constraints import NO_CONSTRAINTS, OutputConstraints
from heedful.tasks.inputs.texts import join_notes, violated_note
from heedful.tasks.prediction import Prediction, TaskInput
from heedful.text.tokenizer import Tokenizer

OnText = Callable[[str], None]
"""Called after every token with the text that has become certain by it, which may be empty."""

Pieces = Generator[str, None, Prediction]
"""Yields the pieces of a text, none of them empty, and returns the prediction with the whole text."""


@dataclass(frozen=True)
class Detokenizer:
    """Converts generated tokens to text.

    Args:
        tokenizer: of the generated text.
        undo: postprocessing of the text that the tokens spell (detokenisation, stop strings).
        stable_prefix: the part of ``undo(text)`` that stays the same however the text continues.
        is_continuation: whether the tokens follow others, such as a prompt (`Tokenizer.token_bytes`).
        is_local: whether ``undo`` and ``stable_prefix`` of the rest of a text do not depend on the prefix,
            so that it can be dropped.
        is_ended: whether a text has come to its end, whatever follows (by a stop string).
    """

    tokenizer: Tokenizer
    undo: Callable[[str], str]
    stable_prefix: Callable[[str], str]
    is_continuation: bool = False
    is_local: bool = False
    is_ended: Callable[[str], bool] = lambda text: False

    def predictions(self, hypotheses: Sequence[Hypothesis], n: int) -> list[Prediction]:
        """Return the first ``n`` different texts; of hypotheses that spell the same, the first."""
        texts: dict[str, Prediction] = {}
        for hypothesis in hypotheses:
            prediction = self.prediction(hypothesis)
            texts.setdefault(prediction.text, prediction)
        return list(texts.values())[:n]

    def prediction(self, hypothesis: Hypothesis) -> Prediction:
        """Return a hypothesis as a prediction. Bytes that are not UTF-8 become U+FFFD."""
        utf8 = b"".join(self.tokenizer.token_bytes(hypothesis.ids, is_continuation=self.is_continuation))
        spelled = utf8.decode("utf-8", "replace")
        return Prediction(
            text=self.undo(spelled),
            score=hypothesis.score,
            tokens=self.tokenizer.tokens(hypothesis.ids),
            log_probs=list(hypothesis.log_probs),
            finished=not hypothesis.violated and (hypothesis.finished or self.is_ended(spelled)),
            notes=join_notes(violated_note(hypothesis.violated)),
            ids=tuple(hypothesis.ids),
        )


class IncrementalText:
    """Passes on the text of one prediction while its tokens are generated.

    No half characters are passed on, and nothing that may still change. The cost is linear in the length of
    the text: its certain part is dropped if the detokenizer is local; if not, the whole text is needed each
    time, and a long text is only decoded again when it has grown by a sixteenth.

    Args:
        detokenizer: how tokens become text.
        on_text: called with each piece.
    """

    _SHORT = 512
    """Up to so many characters, a text is passed on after every token, however it is spelled."""

    def __init__(self, detokenizer: Detokenizer, on_text: OnText) -> None:
        self.detokenizer, self.on_text = detokenizer, on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_continuation, self._parts, self._size, self._due, self._emitted = (
            detokenizer.is_continuation,
            [""],
            0,
            0,
            0,
        )

    def __call__(self, sentence: int, token: int) -> None:
        """Add the next token (`heedful.decoding.protocol.OnToken`)."""
        if sentence:
            raise ValueError("only one answer can be streamed at a time")
        (utf8,) = self.detokenizer.tokenizer.token_bytes([token], is_continuation=self._is_continuation)
        self._is_continuation = True
        self._add(self._decoder.decode(utf8))
        if self._size < self._due:
            self.on_text("")
            return
        self._due = self._size + self._size // 16 if self._size > self._SHORT else 0
        text = self._text()
        stable_prefix = self.detokenizer.stable_prefix(text)
        self._emit(stable_prefix)
        if self.detokenizer.is_local:
            rest = text[len(stable_prefix) :]
            self._parts, self._size, self._emitted = [rest], len(rest), 0

    def end(self) -> None:
        """Pass on the rest of the text, after the last token."""
        self._add(self._decoder.decode(b"", final=True))
        self._emit(self.detokenizer.undo(self._text()))

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._size += len(text)

    def _text(self) -> str:
        self._parts = ["".join(self._parts)]
        return self._parts[0]

    def _emit(self, text: str) -> None:
        self.on_text(text[self._emitted :])
        self._emitted = max(self._emitted, len(text))


@contextmanager
def streamed(detokenizer: Detokenizer, on_text: OnText | None) -> Iterator[OnToken | None]:
    """Yield the function that a decoder calls for each token so that ``on_text`` gets all text, or None."""
    if on_text is None:
        yield None
        return
    text = IncrementalText(detokenizer, on_text)
    yield text
    text.end()


class Streaming(ABC):
    """Base class of predictors that generate text, and can pass it on while it is generated."""

    decoding: DecodingConfig
    """Decoding settings."""

    @abstractmethod
    def predict(
        self,
        inputs: Sequence[TaskInput],
        *,
        first: int = 0,
        on_text: OnText | None = None,
        constraints: Sequence[OutputConstraints] = (),
    ) -> list[Prediction]:
        """See `heedful.tasks.prediction.Predictor`.

        Args:
            inputs: texts or images.
            first: the number of the first input; sampling draws for each number independently.
            on_text: called with each piece of the text for a single input while it is generated.
            constraints: of the output for each input; empty: none. If no output can hold them, the prediction
                has an ``error``; if none was found, it has ``finished=False`` and a note.
        """

    def stream(
        self, task_input: TaskInput, *, ordinal: int = 0, constraints: OutputConstraints = NO_CONSTRAINTS
    ) -> Pieces:
        """Generate the text for one input, and yield each piece of it as soon as it is certain.

        Together the pieces are the text of `predict`. The text is generated in a separate thread, which ends
        when the iterator is closed; taps that are captured in other threads do not see its activations.

        Args:
            task_input: the input.
            ordinal: its number; sampling draws for each number independently.
            constraints: of the output.

        Raises:
            RequestError: the decoding chooses among several hypotheses at the end.
            DataError: the input cannot be read.
        """
        check_streaming(self.decoding)
        own = [constraints] if constraints else ()

        def predict(on_text: OnText) -> Prediction:
            return self.predict([task_input], first=ordinal, on_text=on_text, constraints=own)[0]

        return _pieces(predict)


def _pieces(predict: Callable[[OnText], Prediction]) -> Pieces:
    """Run ``predict`` in a thread, and yield the pieces that it passes on."""
    queue: SimpleQueue[str | Prediction | BaseException] = SimpleQueue()
    closed = threading.Event()

    def on_text(piece: str) -> None:
        if closed.is_set():
            raise _ClosedError
        if piece:
            queue.put(piece)

    def work() -> None:
        try:
            queue.put(predict(on_text))
        except BaseException as error:  # raised where the stream is read
            queue.put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while isinstance(message := queue.get(), str):
            yield message
    finally:
        closed.set()
        thread.join()
    if isinstance(message, BaseException):
        raise message
    if message.error:
        raise DataError(message.error)
    return message


class _ClosedError(Exception):
    """The stream was closed by its reader."""
