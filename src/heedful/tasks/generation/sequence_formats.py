"""How a source and its target are presented to a model: on two sides, or one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.decoding.protocol import StepOutput
from heedful.nn.layout import Ids, Tokens
from heedful.nn.patches import Images
from heedful.tasks.generation.generator import Generator
from heedful.tasks.inputs.images import ImageReader
from heedful.text.specials import SPECIALS

Lengths = NDArray[np.int64]


@runtime_checkable
class SequenceFormat(Protocol):
    """What training and decoding ask of it. Sources and targets come without special tokens."""

    def collate(self, sources: Sequence[Ids], targets: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """A batch to train on."""
        ...

    def collate_scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """A batch whose loss is that of the targets, and their end tokens, alone."""
        ...

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """``[N, columns]``: the tokens that a batch will have of each pair, the target's in the last."""
        ...

    def prefill(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Tokens | Images | None]:
        """Let the model read the sources: logits of the first tokens; and the sources as it read them."""
        ...

    def max_target_length(self, source_length: int) -> int | None:
        """The most tokens that a target may have, its end token included; None: any number."""
        ...


@dataclass(frozen=True)
class EncoderDecoderFormat:
    """The encoder reads ``x </s>``, the decoder ``<s> y``.

    Args:
        longest: the most tokens of a side, or None.
    """

    longest: int | None = None

    def collate(self, sources: Sequence[Ids], targets: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """Teacher forcing."""
        return Batch.teacher_forced(sources, targets, start=SPECIALS.start, end=SPECIALS.end, samples=samples)

    def collate_scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """The same."""
        return self.collate(sources, targets)

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """With the end (or start) token of each."""
        return np.stack([sources, targets], axis=1) + 1

    def prefill(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Tokens | None]:
        """The encoder reads."""
        read = Tokens.of([[*x, SPECIALS.end] for x in sources], device=device)
        start = Tokens.of([[SPECIALS.start]] * len(sources), device=device)
        return generator.prefill(read, start), read

    def max_target_length(self, source_length: int) -> int | None:
        """What the decoder has positions for."""
        return self.longest


ENCODER_DECODER = EncoderDecoderFormat()


@dataclass(frozen=True)
class ConcatenatedFormat:
    """A language model reads ``<s> x <sep> y`` (lecture S1).

    Args:
        context: the most tokens that it reads.
        answers_only: whether it is trained to predict y alone, or also x.
    """

    context: int
    answers_only: bool = True

    def collate(self, sources: Sequence[Ids], targets: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """One text of both."""
        return self._batch(sources, targets, self.answers_only, samples)

    def collate_scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """One text of both; the loss is that of the target."""
        return self._batch(sources, targets, True)

    def _batch(
        self, sources: Sequence[Ids], targets: Sequence[Ids], answers: bool, samples: Sequence[int] = ()
    ) -> Batch:
        return Batch.delimited(
            sources,
            targets,
            start=SPECIALS.start,
            separate=SPECIALS.separate,
            end=SPECIALS.end,
            answers_only=answers,
            samples=samples,
        )

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """All that is read."""
        return (sources + targets + 2)[:, None]

    def prefill(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Tokens | None]:
        """The model reads the source and the separator."""
        prefixes = [[SPECIALS.start, *x, SPECIALS.separate] for x in sources]
        return generator.prefill(None, Tokens.of(prefixes, device=device)), None

    def max_target_length(self, source_length: int) -> int | None:
        """What the context leaves: the end token is written, but not read."""
        return self.context - source_length - 1


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
        batch = Batch.teacher_forced(None, targets, start=SPECIALS.start, end=SPECIALS.end, samples=samples)
        return replace(batch, source=self.images(sources))

    def collate_scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """The same."""
        return self.collate(sources, targets)

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """Patches, and words with the start token; ``sources`` counts numbers, and is not read."""
        return np.stack([np.full_like(targets, self.n_tokens), targets + 1], axis=1)

    def prefill(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Images]:
        """The encoder reads."""
        read = self.images(sources).to(device)
        start = Tokens.of([[SPECIALS.start]] * len(sources), device=device)
        return generator.prefill(read, start), read

    def max_target_length(self, source_length: int) -> int | None:
        """What the decoder has positions for."""
        return self.longest
