"""Language modelling: running text in the column ``text``, and prompts that are continued.

text -> token ids, documents end to end -> `Windows` -> `Batch` -> model -> loss    `TextProcessor`
prompt -> token ids -> state and step -> chosen ids -> text                         `Completer.predict`
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from heedful.data.report import ColumnCounts, DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.text import TEXT
from heedful.decoding.config import BeamConfig, DecodingConfig, decode
from heedful.decoding.protocol import Hypothesis, Request
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.files import is_unicode
from heedful.tasks.continuing import Continuation, Stops
from heedful.tasks.generation import n_hypotheses
from heedful.tasks.grouping import longest_first
from heedful.tasks.prediction import Prediction
from heedful.tasks.streaming import OnText, Spelling, Streaming, telling
from heedful.tasks.unknown import joined, unknown_note
from heedful.text.long import encode_long
from heedful.text.tokenizer import Tokenizer

COLUMNS = (TEXT,)

# Prompts that are continued together: so many tokens of the rectangle [prompts, hypotheses, longest].
DECODING_BUDGET = 16384


@dataclass(frozen=True)
class TextProcessor:
    """The tokenizer of running text. Every document is followed by an end token."""

    text: Tokenizer

    @property
    def fingerprint(self) -> str:
        """Differs where text is encoded differently."""
        return self.text.fingerprint

    @property
    def sizes(self) -> tuple[int]:
        """The size of the vocabulary."""
        return (self.text.vocab_size,)

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """The ids of the documents, in order; a long one in several pieces, the last with its end token."""
        specials = self.text.specials
        counts = report.columns.setdefault(TEXT, ColumnCounts())
        for located in rows:
            length = 0
            for piece in encode_long(self.text, located.row[TEXT]):
                length += len(piece)
                counts.unknown += piece.count(specials.unknown)
                yield LocatedRow({TEXT: piece}, located.where)
            yield LocatedRow({TEXT: [specials.end]}, located.where)
            counts.lengths[length] += 1
            report.rows += 1
            report.kept += 1

    def spells(self, report: DataReport) -> bool:
        """Whether the ids that a report counts give back the very text that they were made of."""
        return self.text.spells_what_it_knows and not report.columns[TEXT].unknown


@dataclass(frozen=True)
class Limits:
    """Where a completion ends, if the model does not end it.

    Args:
        max_new_tokens: the most tokens to write, the end token included.
        stop: texts at which it ends; they are not part of it.

    Raises:
        RequestError: no token may be written, or a stop string is empty.
    """

    max_new_tokens: int = 200
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise RequestError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        if isinstance(self.stop, str) or "" in self.stop:
            raise RequestError("stop: give a list of texts, none of them empty")


class Completer(Streaming):
    """A language model with its tokenizer: prompts in, their continuations out, as many and in order.

    A prompt is read as it is. An empty one is begun with the end token, which in training stands before
    every document. Of a prompt that is longer than the model's context, the last tokens are read, and the
    prediction says so; what is written may be longer than the context (see `Continuation`).

    Args:
        model: keeps the model contract, without a source; put into evaluation mode here.
        processor: of the text.
        decoding: how to decode.
        context: the most tokens that the model reads at once.
        prefix: a text that is read before every prompt, as one text with it: a task with examples, say.
        limits: where a completion ends.
        budget: tokens of the rectangle that is decoded together; bounds the memory.
        inference: the model made ready for decoding; by default it is made so here.

    Raises:
        RequestError: the decoding speaks of a source, or the prefix fills the context.
    """

    def __init__(
        self,
        model: Any,
        processor: TextProcessor,
        decoding: DecodingConfig,
        *,
        context: int,
        prefix: str = "",
        limits: Limits = Limits(),
        budget: int = DECODING_BUDGET,
        inference: Inference | None = None,
    ) -> None:
        self.model, self.processor, self.decoding = model.eval(), processor, decoding
        self.context, self.limits, self.budget = context, limits, budget
        self.stops = Stops(processor.text, tuple(limits.stop))
        refuse_source(decoding)
        self.prefix = self._checked(prefix)
        self.inference = inference or Inference(self.model)

    def _checked(self, prefix: str) -> str:
        """A prefix that leaves room for a prompt."""
        if not isinstance(prefix, str) or not is_unicode(prefix):
            raise RequestError(f"prefix: a text is wanted, not {prefix!r}")
        n = sum(map(len, encode_long(self.processor.text, prefix)))
        if n >= self.context:
            raise RequestError(
                f"prefix: has {n:,} tokens, and the model reads {self.context:,} at once, "
                "those of the prompt among them: make it shorter"
            )
        return prefix

    @torch.inference_mode()
    def predict(
        self,
        texts: Sequence[str],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Callable[[int], None] = lambda n: None,
        on_text: OnText | None = None,
    ) -> list[Prediction]:
        """Continue the prompts; the answers do not repeat them.

        Args:
            texts: the prompts.
            alignment: refused: there is no source to align to.
            first: the number of the first text; sampling draws for each number on its own.
            progress: called with the number of prompts just done.
            on_text: told of the answer to a single prompt while it is written.
        """
        if alignment:
            raise RequestError("a language model has no source, so there is no alignment")
        prompts = self.processor.text.encode_batch([self.prefix + text for text in texts])
        results: list[Prediction] = [Prediction("") for _ in texts]
        for group in self._groups(prompts):
            answers = self._decode([prompts[i] for i in group], [first + i for i in group], on_text)
            for i, hypotheses in zip(group, answers, strict=True):
                results[i] = self._prediction(texts[i], prompts[i], hypotheses)
            progress(len(group))
        return results

    def _groups(self, prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of prompts, longest first, cut into groups of bounded size."""
        width, new = n_hypotheses(self.decoding), self.limits.max_new_tokens
        lengths = {i: len(prompt) for i, prompt in enumerate(prompts)}
        return longest_first(lengths, self.budget, lambda n: min(max(n, 1) + new, self.context) * width)

    def _decode(
        self,
        prompts: Sequence[Sequence[int]],
        ordinals: Sequence[int],
        on_text: OnText | None,
    ) -> list[list[Hypothesis]]:
        specials = self.processor.text.specials
        device = next(self.model.parameters()).device
        step = Continuation(self.inference.ready(), self.context, self.stops, specials.end, device)
        first = step.prefill([prompt or [specials.end] for prompt in prompts])
        with telling(self._spelling(prompts[0]), on_text) as on_token:
            request = Request(
                first,
                step.step,
                end=specials.end,
                max_lengths=[self.limits.max_new_tokens] * len(prompts),
                forbidden=specials.never_written,
                ordinals=ordinals,
                on_token=on_token,
            )
            return decode(self.decoding, request)

    def _spelling(self, prompt: Sequence[int]) -> Spelling:
        """Of the answer to a prompt."""
        stops = self.stops
        return Spelling(self.processor.text, stops.before, stops.certain, begun=bool(prompt), is_local=True)

    def _prediction(self, text: str, prompt: Sequence[int], hypotheses: Sequence[Hypothesis]) -> Prediction:
        first, *others = [self._spelling(prompt).prediction(h) for h in hypotheses]
        unknown = unknown_note(self.processor.text, [self.prefix + text], [prompt])
        note, cut = joined(self._cut_note(len(prompt)), unknown), max(0, len(prompt) - self.context)
        return replace(first, alternatives=others, note=note, cut=cut)

    def _cut_note(self, n: int) -> str | None:
        """What is told of a prompt of so many tokens of which less was read."""
        if n <= self.context:
            return None
        whole = f"the {n} tokens of prefix and prompt" if self.prefix else f"the prompt's {n} tokens"
        return f"of {whole}, the last {self.context} were read"


def refuse_source(decoding: DecodingConfig) -> None:
    """Refuse a decoding that measures by a source, which a language model has not.

    Raises:
        RequestError: naming the key.
    """
    if decoding.max_length != type(decoding).model_fields["max_length"].default:
        raise RequestError(
            "decoding.max_length: measures by a source, and a completion has none: set "
            "completion.max_new_tokens instead"
        )
    if isinstance(decoding, BeamConfig) and decoding.coverage:
        raise RequestError("decoding.coverage: a language model has no source that could be covered")
