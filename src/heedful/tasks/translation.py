"""Translation, and every task that writes one text for another: the columns ``source`` and ``target``.

row -> token ids -> `Batch` -> model -> loss                 `Tokenizers.encode`, `SequenceFormat.collate`
text -> token ids -> state and step -> chosen ids -> text    `Translator.predict`
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from heedful.data.report import Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.decoding.config import DecodingConfig
from heedful.decoding.protocol import Hypothesis
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.tasks.grouping import longest_first
from heedful.tasks.prediction import Prediction
from heedful.tasks.sequence_formats import TWO_SIDES, SequenceFormat
from heedful.tasks.streaming import OnText, Streaming
from heedful.tasks.text_generation import DECODING_BUDGET, TextGenerator
from heedful.tasks.unknown import joined, unknown_note
from heedful.text.tokenizer import Tokenizer

SOURCE, TARGET = COLUMNS = ("source", "target")

# Longest source in tokens, where the recipe sets no limit of its own.
MAX_SOURCE = 1024


def source_note(tokenizer: Tokenizer, text: str, source: Sequence[int], longest: int) -> str | None:
    """What is told of a source of which less was read, or that has unknown words."""
    n = len(source)
    cut = f"source cut from {n} to {longest} tokens" if n > longest else None
    return joined(cut, unknown_note(tokenizer, [text], [source], "source"))


@dataclass(frozen=True)
class Tokenizers:
    """One tokenizer for each side; both may share a subword model."""

    source: Tokenizer
    target: Tokenizer

    @property
    def fingerprint(self) -> str:
        """Differs where either side is encoded differently."""
        return f"{self.source.fingerprint}-{self.target.fingerprint}"

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of the vocabularies of source and target."""
        return self.source.vocab_size, self.target.vocab_size

    def encode(self, rows: Iterable[LocatedRow[Row]], chunk: int = 1000) -> Iterator[Encoded]:
        """The ids of both columns of each row, in order; a chunk of rows is in memory at a time."""
        rows = iter(rows)
        while block := list(islice(rows, chunk)):
            sources = self.source.encode_batch([r.row[SOURCE] for r in block])
            targets = self.target.encode_batch([r.row[TARGET] for r in block])
            for row, source, target in zip(block, sources, targets, strict=True):
                yield LocatedRow({SOURCE: source, TARGET: target}, row.where)


class Translator(Streaming):
    """A model with its tokenizers: texts in, predictions out, as many and in the same order.

    Args:
        model: keeps the model contract; put into evaluation mode here.
        tokenizers: of both sides.
        decoding: how to decode.
        pairing: how source and target are laid before the model.
        max_source: longest source in tokens; the rest of a longer one is cut, and the prediction says so.
        budget: tokens of the rectangle that is decoded together; bounds the memory.
        inference: the model made ready for decoding; by default it is made so here.
    """

    def __init__(
        self,
        model: Any,
        tokenizers: Tokenizers,
        decoding: DecodingConfig,
        *,
        pairing: SequenceFormat = TWO_SIDES,
        max_source: int = MAX_SOURCE,
        budget: int = DECODING_BUDGET,
        inference: Inference | None = None,
    ) -> None:
        self.model, self.tokenizers, self.decoding = model.eval(), tokenizers, decoding
        self.pairing, self.max_source, self.budget = pairing, max_source, budget
        self.writer = TextGenerator(model, tokenizers.target, decoding, pairing, inference)

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
        """Translate; an input without a token gives an empty prediction.

        Args:
            texts: the sources.
            alignment: also return the attention over the source of every layer and head.
            first: the number of the first text; sampling draws for each number on its own.
            progress: called with the number of sentences just done.
            on_text: told of the answer to a single text while it is written.
        """
        if alignment and not self.model.alignment_taps:
            raise RequestError("this model has no attention from target to source, so there is no alignment")
        sources = self.tokenizers.source.encode_batch(list(texts))
        results: list[Prediction] = [Prediction("") for _ in texts]
        for group in self._groups(sources):
            cut = [sources[i][: self.max_source] for i in group]
            lengths, ordinals = [len(ids) for ids in cut], [first + i for i in group]
            answers = self.writer.write(cut, lengths, ordinals, on_text)
            for i, ids, hypotheses in zip(group, cut, answers, strict=True):
                prediction = self._prediction(ids, hypotheses, alignment)
                unread = len(sources[i]) - len(ids)
                results[i] = replace(prediction, note=self._note(texts[i], sources[i]), cut=unread)
            progress(len(group))
        return results

    def _note(self, text: str, source: Sequence[int]) -> str | None:
        return source_note(self.tokenizers.source, text, source, self.max_source)

    def _groups(self, sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Indices of non-empty sources, longest first, cut into groups of bounded size."""
        width = self.writer.width
        lengths = {i: len(source) for i, source in enumerate(sources) if source}
        return longest_first(lengths, self.budget, lambda n: (min(n, self.max_source) + 1) * width)

    def _prediction(
        self, source: Sequence[int], hypotheses: Sequence[Hypothesis], alignment: bool
    ) -> Prediction:
        prediction = self.writer.prediction(hypotheses)
        if not alignment:
            return prediction
        return replace(
            prediction,
            source_tokens=[*self.tokenizers.source.tokens(source), "</s>"],
            alignment=self.writer.alignment(source, hypotheses[0]),
        )
