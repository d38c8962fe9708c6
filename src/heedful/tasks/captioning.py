"""Captioning: a text for an image; the columns ``image`` and ``caption``.

row -> pixels, token ids -> `Batch` -> model -> loss      `CaptionProcessor.encode`, `ImageAndCaption`
image -> state and step -> chosen ids -> text           `Captioner.predict`
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from heedful.data.batch import Batch
from heedful.data.captioned_folder import CAPTION
from heedful.data.images import IMAGE, LazyImage
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.decoding.config import DecodingConfig
from heedful.decoding.protocol import Hypothesis, StepOutput
from heedful.engine.choosing import Inference
from heedful.errors import DataError
from heedful.nn.layout import Ids, Tokens
from heedful.nn.patches import Images
from heedful.tasks.generation import Generator
from heedful.tasks.images import LEFT_OUT, ImageReader
from heedful.tasks.prediction import Prediction
from heedful.tasks.sequence_formats import Lengths
from heedful.tasks.streaming import OnText, Streaming
from heedful.tasks.text_generation import DECODING_BUDGET, TextGenerator
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

COLUMNS = (IMAGE, CAPTION)


@dataclass(frozen=True)
class ImageAndCaption:
    """A `SequenceFormat`: the encoder reads the patches of an image, the decoder ``<s> y``.

    A source is the numbers of an image, ``[channels, size, size]`` laid out in one row, from 0 to 255.

    Args:
        reader: how images are read.
        grid: rows and columns of patches.
        longest: the most tokens of a caption, or None.
    """

    reader: ImageReader
    grid: tuple[int, int]
    longest: int | None = None

    @property
    def n_tokens(self) -> int:
        """Patches of an image."""
        return self.grid[0] * self.grid[1]

    def images(self, sources: Sequence[Ids]) -> Images:
        """What the model reads."""
        size, channels = self.reader.size, self.reader.channels
        levels = np.stack([np.asarray(source, np.uint8).reshape(channels, size, size) for source in sources])
        return Images.of(self.reader.normalised(levels), self.n_tokens)

    def collate(self, sources: Sequence[Ids], targets: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """Teacher forcing."""
        batch = Batch.forced(None, targets, start=SPECIALS.start, end=SPECIALS.end, samples=samples)
        return replace(batch, source=self.images(sources))

    def scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """The same."""
        return self.collate(sources, targets)

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """Patches, and words with the start token; ``sources`` counts numbers, and is not read."""
        return np.stack([np.full_like(targets, self.n_tokens), targets + 1], axis=1)

    def begin(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Images]:
        """The encoder reads."""
        read = self.images(sources).to(device)
        start = Tokens.of([[SPECIALS.start]] * len(sources), device=device)
        return generator.prefill(read, start), read

    def room(self, source_length: int) -> int | None:
        """What the decoder has positions for."""
        return self.longest


@dataclass(frozen=True)
class CaptionProcessor:
    """The tokenizer of the captions; images are read as they are."""

    tokenizer: Tokenizer

    @property
    def fingerprint(self) -> str:
        """Differs where a caption is encoded differently."""
        return self.tokenizer.fingerprint

    @property
    def sizes(self) -> tuple[int]:
        """The size of the vocabulary."""
        return (self.tokenizer.vocab_size,)

    def encode(
        self, rows: Iterable[LocatedRow[Row]], reader: ImageReader, report: DataReport, *, drop: bool
    ) -> Iterator[Encoded]:
        """The numbers of each image and the ids of its caption, in order.

        Args:
            rows: with both columns.
            reader: how images are read.
            report: is told of rows that are left out.
            drop: leave out rows whose image cannot be read; else such a row is refused.

        Raises:
            DataError: an image cannot be read.
        """
        rows = iter(rows)
        while block := list(islice(rows, 1000)):
            captions = self.tokenizer.encode_batch([row.row[CAPTION] for row in block])
            for row, caption in zip(block, captions, strict=True):
                try:
                    pixels = reader.pixels(row.row[IMAGE])
                except DataError as error:
                    if not drop:
                        # An image without a name of its own is called by its row.
                        called = "" if str(row.row[IMAGE]) == str(row.where) else f"{row.where}: "
                        raise DataError(f"{called}{error} ({LEFT_OUT})") from None
                    report.rows += 1
                    report.drop("unreadable", row.where)
                    continue
                numbers: Any = pixels.reshape(-1)  # a sequence to everybody but the type checker
                yield LocatedRow({IMAGE: numbers, CAPTION: caption}, row.where)


class Captioner(Streaming):
    """A model with its tokenizer: images in, captions out, as many and in the same order.

    Args:
        model: keeps the model contract, with images as sources; put into evaluation mode here.
        processor: of the run.
        decoding: how to decode; it measures by the number of patches.
        pairing: how an image and its caption are laid before the model.
        budget: tokens of the rectangle that is decoded together; bounds the memory.
        inference: the model made ready for decoding; by default it is made so here.
    """

    def __init__(
        self,
        model: Any,
        processor: CaptionProcessor,
        decoding: DecodingConfig,
        pairing: ImageAndCaption,
        *,
        budget: int = DECODING_BUDGET,
        inference: Inference | None = None,
    ) -> None:
        self.decoding, self.pairing, self.budget = decoding, pairing, budget
        self.writer = TextGenerator(model, processor.tokenizer, decoding, pairing, inference)

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
        """Caption images; one that cannot be read has an empty caption, and an error that says why.

        Args:
            texts: the images: paths, or whatever `LazyImage.of` takes.
            alignment: also return the attention over the patches of every layer and head.
            first: the number of the first image; sampling draws for each number on its own.
            progress: called with the number of images just done.
            on_text: told of the caption of a single image while it is written.
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
