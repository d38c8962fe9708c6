"""Predictors that generate a text for a source: what translators and captioners have in common, and both."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from heedful.data.images import LazyImage
from heedful.decoding.config import BeamConfig, DecodingConfig, decode
from heedful.decoding.protocol import Hypothesis, Request
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.nn.layout import Ids
from heedful.tasks.forced import forced
from heedful.tasks.generation import Generator, n_hypotheses
from heedful.tasks.grouping import longest_first
from heedful.tasks.prediction import Prediction
from heedful.tasks.sequence_formats import TWO_SIDES, ImageAndCaption, SequenceFormat
from heedful.tasks.source_target import Tokenizers
from heedful.tasks.streaming import OnText, Spelling, Streaming, telling
from heedful.tasks.unknown import joined, unknown_note
from heedful.text.tokenizer import Tokenizer

# What is decoded together: so many tokens of the rectangle [sources, beams, longest].
DECODING_BUDGET = 8192


class TextGenerator:
    """A model with the tokenizer of what it writes.

    Args:
        model: keeps the model contract; put into evaluation mode here.
        tokenizer: of the answers.
        decoding: how to decode.
        pairing: how source and answer are presented to the model.
        inference: the model made ready for decoding; by default it is made so here.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        pairing: SequenceFormat,
        inference: Inference | None = None,
    ) -> None:
        self.model, self.tokenizer, self.decoding = model.eval(), tokenizer, decoding
        self.pairing, self.inference = pairing, inference or Inference(self.model)
        self.device = next(model.parameters()).device
        side = tokenizer.preprocessing
        self.spelling = Spelling(tokenizer, side.undo, side.certain, is_local=side.moses is None)

    @property
    def width(self) -> int:
        """Hypotheses that run side by side for a source."""
        return n_hypotheses(self.decoding)

    def write(
        self,
        sources: Sequence[Any],
        lengths: Sequence[int],
        ordinals: Sequence[int],
        on_text: OnText | None = None,
    ) -> list[list[Hypothesis]]:
        """The answers to each source, best first.

        Args:
            sources: as the pairing takes them.
            lengths: their tokens, by which the decoding measures how much may be written.
            ordinals: their numbers; sampling draws for each number on its own.
            on_text: called with the answer to a single source while it is generated.
        """
        specials = self.tokenizer.specials
        coverage = isinstance(self.decoding, BeamConfig) and self.decoding.coverage > 0
        generator = Generator(self.inference.ready(attention=coverage), attention=coverage)
        first, read = self.pairing.begin(generator, sources, self.device)
        with telling(self.spelling, on_text) as on_token:
            request = Request(
                first,
                generator.step,
                end=specials.end,
                max_lengths=[self._most(n) for n in lengths],
                forbidden=specials.never_written,
                source_lengths=None if read is None else read.layout.lengths,
                ordinals=ordinals,
                on_token=on_token,
            )
            return decode(self.decoding, request)

    def _most(self, source_length: int) -> int:
        """The most tokens to write."""
        wanted, room = self.decoding.max_length.of(source_length), self.pairing.room(source_length)
        return wanted if room is None else min(wanted, room)

    def prediction(self, hypotheses: Sequence[Hypothesis]) -> Prediction:
        """The best answer, with the others as its alternatives."""
        first, *others = [self.spelling.prediction(h) for h in hypotheses]
        return replace(first, alternatives=others)

    @torch.inference_mode()
    def alignment(self, source: Any, hypothesis: Hypothesis) -> list[Any] | None:
        """From one forced pass over the finished hypothesis: ``[layer][head][target][source]``."""
        batch = self.pairing.collate([source], [hypothesis.ids]).to(self.device)
        weights = forced(self.model, batch, alignment=True)[0].alignment
        return None if weights is None else weights.float().tolist()


# Longest source in tokens, where the recipe sets no limit of its own.
MAX_SOURCE = 1024


def source_note(tokenizer: Tokenizer, text: str, source: Sequence[int], longest: int) -> str | None:
    """Note that a source was truncated or has unknown words; None otherwise."""
    n = len(source)
    cut = f"source cut from {n} to {longest} tokens" if n > longest else None
    return joined(cut, unknown_note(tokenizer, [text], [source], "source"))


class Translator(Streaming):
    """A model with its tokenizers: texts in, predictions out, as many and in the same order.

    Args:
        model: keeps the model contract; put into evaluation mode here.
        tokenizers: of both sides.
        decoding: how to decode.
        pairing: how source and target are presented to the model.
        max_source: longest source in tokens; a longer one is truncated, and the prediction notes it.
        budget: maximum number of tokens of a batch, with padding and all hypotheses.
        inference: the model made ready for decoding; by default it is made so here.
    """

    def __init__(
        self,
        model: Model,
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
            on_text: called with the answer to a single text while it is generated.
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


class Captioner(Streaming):
    """A model with its tokenizer: images in, captions out, as many and in the same order.

    Args:
        model: keeps the model contract, with images as sources; put into evaluation mode here.
        tokenizer: of captions.
        decoding: how to decode; it measures by the number of patches.
        pairing: how an image and its caption are presented to the model.
        budget: maximum number of tokens of a batch, with padding and all hypotheses.
        inference: the model made ready for decoding; by default it is made so here.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        pairing: ImageAndCaption,
        *,
        budget: int = DECODING_BUDGET,
        inference: Inference | None = None,
    ) -> None:
        self.decoding, self.pairing, self.budget = decoding, pairing, budget
        self.writer = TextGenerator(model, tokenizer, decoding, pairing, inference)

    @torch.inference_mode()
    def predict(
        self,
        texts: Sequence[Any],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Callable[[int], None] = lambda n: None,
        on_text: OnText | None = None,
    ) -> list[Prediction]:
        """Caption images; one that cannot be read gets an empty caption and an error.

        Args:
            texts: the images: paths, or whatever `LazyImage.of` takes.
            alignment: also return the attention over the patches of every layer and head.
            first: the number of the first image; sampling draws for each number on its own.
            progress: called with the number of images just done.
            on_text: called with the caption of a single image while it is generated.
        """
        results: list[Prediction] = []
        size = max(1, self.budget // (self.pairing.n_tokens * self.writer.width))
        for begin in range(0, len(texts), size):
            group = self._read(texts[begin : begin + size])
            sources = {begin + i: source for i, source in enumerate(group) if not isinstance(source, str)}
            answers = self._written(sources, first, alignment, on_text)
            for i, source in enumerate(group, begin):
                results.append(Prediction("", error=source) if isinstance(source, str) else answers[i])
            progress(len(group))
        return results

    def _read(self, given: Sequence[Any]) -> list[Ids | str]:
        """The numbers of each image, or why it cannot be read."""
        read: list[Ids | str] = []
        for each in given:
            try:
                read.append(self.pairing.reader.pixels(LazyImage.of(each)).reshape(-1))
            except DataError as error:
                read.append(str(error))
        return read

    def _written(
        self, sources: dict[int, Any], first: int, alignment: bool, on_text: OnText | None
    ) -> dict[int, Prediction]:
        if not sources:
            return {}
        lengths = [self.pairing.n_tokens] * len(sources)
        answers = self.writer.write(list(sources.values()), lengths, [first + i for i in sources], on_text)
        return {
            i: self._prediction(source, hypotheses, alignment)
            for (i, source), hypotheses in zip(sources.items(), answers, strict=True)
        }

    def _prediction(self, source: Any, hypotheses: Sequence[Hypothesis], alignment: bool) -> Prediction:
        prediction = self.writer.prediction(hypotheses)
        if not alignment:
            return prediction
        weights = self.writer.alignment(source, hypotheses[0])
        return replace(prediction, alignment=weights, grid=self.pairing.grid)
