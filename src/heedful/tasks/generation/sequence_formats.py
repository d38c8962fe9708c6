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
    """How a source and its target become a batch, and how a model reads a source before decoding.

    Sources and targets have no special tokens; the format adds them.
    """

    def collate(self, sources: Sequence[Ids], targets: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """Return a batch to train on."""
        ...

    def collate_scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """Return a batch whose loss is that of the targets and their end tokens alone."""
        ...

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """Return ``[N, columns]``: how many tokens a batch has of each pair, the target's last."""
        ...

    def prefill(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Tokens | Images | None]:
        """Encode the sources; return the logits of the first tokens, and the encoder's input, if any."""
        ...

    def max_target_length(self, source_length: int) -> int | None:
        """Return the most tokens that a target may have, its end token included; None: any number."""
        ...


@dataclass(frozen=True)
class EncoderDecoderFormat:
    """The encoder reads ``x </s>``, the decoder ``<s> y``.

    Args:
        longest: the most tokens of a side, or None.
    """

    longest: int | None = None

    def collate(self, sources: Sequence[Ids], targets: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """Return a teacher-forced batch."""
        return Batch.teacher_forced(sources, targets, start=SPECIALS.start, end=SPECIALS.end, samples=samples)

    def collate_scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """Return the same batch as `collate`."""
        return self.collate(sources, targets)

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """Return both lengths, with the end (or start) token of each."""
        return np.stack([sources, targets], axis=1) + 1

    def prefill(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Tokens | None]:
        """Run the encoder, and the decoder on the start token."""
        source_tokens = Tokens.of([[*x, SPECIALS.end] for x in sources], device=device)
        start = Tokens.of([[SPECIALS.start]] * len(sources), device=device)
        return generator.prefill(source_tokens, start), source_tokens

    def max_target_length(self, source_length: int) -> int | None:
        """Return the number of positions of the decoder."""
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
        """Return a batch with one text for each pair."""
        return self._batch(sources, targets, self.answers_only, samples)

    def collate_scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """Return a batch with one text for each pair; the loss is that of the target."""
        return self._batch(sources, targets, True)

    def _batch(
        self, sources: Sequence[Ids], targets: Sequence[Ids], answers_only: bool, samples: Sequence[int] = ()
    ) -> Batch:
        return Batch.delimited(
            sources,
            targets,
            start=SPECIALS.start,
            separate=SPECIALS.separate,
            end=SPECIALS.end,
            answers_only=answers_only,
            samples=samples,
        )

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """Return one column: the tokens of both, with two special tokens."""
        return (sources + targets + 2)[:, None]

    def prefill(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Tokens | None]:
        """Run the model on the source and the separator."""
        prefixes = [[SPECIALS.start, *x, SPECIALS.separate] for x in sources]
        return generator.prefill(None, Tokens.of(prefixes, device=device)), None

    def max_target_length(self, source_length: int) -> int | None:
        """Return what the source leaves of the context; the end token is generated, but not read."""
        return self.context - source_length - 1


@dataclass(frozen=True)
class ImageAndCaption:
    """A `SequenceFormat`: the encoder reads the patches of an image, the decoder ``<s> y``.

    A source is the pixels of an image, ``[channels, size, size]`` in one row, from 0 to 255.

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
        """The number of patches of an image."""
        return self.grid[0] * self.grid[1]

    def images(self, sources: Sequence[Ids]) -> Images:
        """Return the images that the model reads, normalised."""
        size, channels = self.reader.size, self.reader.channels
        pixels = np.stack([np.asarray(source, np.uint8).reshape(channels, size, size) for source in sources])
        return Images.of(self.reader.normalised(pixels), self.n_tokens)

    def collate(self, sources: Sequence[Ids], targets: Sequence[Ids], samples: Sequence[int] = ()) -> Batch:
        """Return a teacher-forced batch."""
        batch = Batch.teacher_forced(None, targets, start=SPECIALS.start, end=SPECIALS.end, samples=samples)
        return replace(batch, source=self.images(sources))

    def collate_scored(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> Batch:
        """Return the same batch as `collate`."""
        return self.collate(sources, targets)

    def lengths(self, sources: Lengths, targets: Lengths) -> Lengths:
        """Return the number of patches, and that of tokens with the start token; ``sources`` is not used."""
        return np.stack([np.full_like(targets, self.n_tokens), targets + 1], axis=1)

    def prefill(
        self, generator: Generator, sources: Sequence[Ids], device: torch.device
    ) -> tuple[StepOutput, Images]:
        """Run the encoder, and the decoder on the start token."""
        images = self.images(sources).to(device)
        start = Tokens.of([[SPECIALS.start]] * len(sources), device=device)
        return generator.prefill(images, start), images

    def max_target_length(self, source_length: int) -> int | None:
        """Return the number of positions of the decoder."""
        return self.longest
