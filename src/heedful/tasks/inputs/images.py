"""How a run reads images: their size, grey or colour, and the mean and deviation of pixels."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from pydantic import Field
from torch import Tensor

from heedful.data.images import MODES, LazyImage
from heedful.data.levels import Extremes, Levels
from heedful.errors import DamagedError, DataError
from heedful.models.sections import Pixels
from heedful.records import RESTORE, Record, Text, read_record
from heedful.typing import JsonObject

LEVELS = 256

DROP_HINT = "`data.filter.unreadable: drop` leaves such rows out"
"""Hint in messages about images that cannot be read."""


def check_channels(channels: int) -> None:
    """Refuse a number of channels that images cannot be converted to.

    Raises:
        ValueError: it is not 1 or 3.
    """
    if channels not in MODES:
        raise ValueError(f"model.channels must be 1 (grey) or 3 (colours), got {channels}")


@dataclass(frozen=True)
class ImageReader:
    """Images to pixels, and pixels to what a model reads: ``(x / 255 - mean) / std``, channel by channel.

    Args:
        size: pixels along each side.
        channels: 1 for grey, 3 for colours.
        mean, std: of all pixels of the training data in each channel, of 1.
        first: describes the first training image, and what is particular about others, for users.
        levels: black and white in images with more than 8 bits, if the training data have such.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    first: str = ""
    levels: Levels | None = None

    @classmethod
    def from_images(
        cls, images: Iterable[LazyImage], size: int, channels: int, *, drop: bool = False
    ) -> "ImageReader":
        """Return a reader with the mean and standard deviation of these images.

        They are computed from counts of levels, so the order of the images does not change them.

        Args:
            images: each is read once, or twice if it has more than 8 bits.
            size: pixels along each side.
            channels: 1 for grey, 3 for colours.
            drop: leave out those that cannot be read.

        Raises:
            DataError: an image cannot be read and is not to be left out, or there is none.
        """
        survey = _Survey(size, channels, drop)
        deep = list(survey.of_8_bits(images))
        white = Levels.covering(extremes for _, extremes in deep)
        for image, _ in deep:
            survey.count(image, white)
        if not survey.first:
            raise DataError("no image can be read")
        counts = survey.counts
        levels = np.arange(LEVELS) / (LEVELS - 1)
        shares = counts / counts.sum(1, keepdims=True)
        mean = shares @ levels
        variance = shares @ levels**2 - mean**2
        # Images without contrast are not amplified beyond one level.
        std = np.sqrt(np.maximum(variance, (LEVELS - 1) ** -2.0))
        return cls(size, channels, tuple(mean.tolist()), tuple(std.tolist()), survey.description, white)

    @property
    def fingerprint(self) -> str:
        """Differs if `pixels` does."""
        levels = f" {self.levels.black:g} to {self.levels.white:g}" if self.levels else ""
        return f"{self.channels}x{self.size}x{self.size}{levels}"

    @property
    def middle(self) -> UInt8[np.ndarray, " C"]:
        """The level nearest to the mean, in each channel: it carries no information for a model."""
        return np.round(np.array(self.mean) * (LEVELS - 1)).astype(np.uint8)

    def pixels(self, image: LazyImage) -> UInt8[np.ndarray, "C H W"]:
        """Return the pixels of an image, as a data store holds them.

        Raises:
            DataError: it cannot be read.
        """
        return image.pixels(self.size, self.channels, self.levels)

    def normalised(self, pixels: UInt8[np.ndarray, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Return the pixels as the model reads them."""
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (self.mean, self.std))
        scale = 1 / ((LEVELS - 1) * std)
        return torch.from_numpy(np.ascontiguousarray(pixels)).float().mul_(scale).sub_(mean / std)

    def to_dict(self) -> JsonObject:
        """Return JSON values; without ``levels`` if there are none."""
        return {key: value for key, value in asdict(self).items() if key != "levels" or value is not None}

    def __str__(self) -> str:
        """Describe for users what is done to images."""
        colours = "in grey" if self.channels == 1 else "in colours"
        first_note = f"the first has {self.first}; " if self.first else ""
        deep = ""
        if self.levels is not None:
            black, white = (f"{level:,g}" for level in self.levels)
            deep = f"; in those with more than 8 bits, {black} is black and {white} white"
        return f"{first_note}all are brought to {self.size} x {self.size} pixels {colours}{deep}"


class _Survey:
    """Counts of levels over images, and what is particular about some.

    Args:
        size, channels: see `ImageReader`.
        drop: leave out images that cannot be read.
    """

    def __init__(self, size: int, channels: int, drop: bool) -> None:
        self.size, self.channels, self.drop = size, channels, drop
        self.counts = np.zeros((channels, LEVELS), dtype=np.int64)
        self.first = ""
        self.n_with_frames = self.highest_deep_colour = 0

    def of_8_bits(self, images: Iterable[LazyImage]) -> Iterator[tuple[LazyImage, Extremes]]:
        """Count all images with 8 bits for each pixel, and yield the others with their extremes.

        Raises:
            DataError: an image cannot be read and is not to be left out.
        """
        for image in images:
            with self._unreadable():
                facts = image.facts()
                self.n_with_frames += facts.n_frames > 1
                if facts.extremes is not None:
                    yield image, facts.extremes
                    continue
                highest = self.count(image)
                if facts.has_deep_colours:
                    self.highest_deep_colour = max(self.highest_deep_colour, highest)

    def count(self, image: LazyImage, levels: Levels | None = None) -> int:
        """Count the levels of an image, and return the highest.

        Raises:
            DataError: the image cannot be read.
        """
        pixels = image.pixels(self.size, self.channels, levels)
        for channel, plane in enumerate(pixels):
            self.counts[channel] += np.bincount(plane.reshape(-1), minlength=LEVELS)
        self.first = self.first or image.kind
        return int(pixels.max())

    @contextmanager
    def _unreadable(self) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            if not self.drop:
                raise DataError(f"{error} ({DROP_HINT})") from None

    @property
    def description(self) -> str:
        """The first image, and what is particular about others."""
        parts = [self.first]
        if self.n_with_frames:
            parts.append(f"{self.n_with_frames:,} have several frames or pages, of which the first is read")
        if 0 < self.highest_deep_colour < LEVELS // 2:
            parts.append(
                "colours of 16 bits use a small part of their range, nearly black: save them with 8 bits"
            )
        return "; ".join(parts)


class ReaderEntry(Record):
    """The fields of an `ImageReader`."""

    size: Pixels
    channels: Literal[1, 3]
    mean: list[Annotated[float, Field(ge=0, le=1)]]
    std: list[Annotated[float, Field(gt=0)]]
    first: Text = ""
    levels: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None


class ReaderRecord(Record):
    """Content of ``images.json``."""

    version: Literal[1] = 1
    reader: ReaderEntry


def read_image_reader(path: Path) -> ImageReader:
    """Read what `ImageReader.to_dict` returned from a file of a run.

    Raises:
        DamagedError: the file does not describe a reader.
    """
    entry = read_record(path, ReaderRecord).reader
    if not len(entry.mean) == len(entry.std) == entry.channels:
        raise DamagedError(
            f"{path}: damaged: reader: expected mean and std of {entry.channels} channels; {RESTORE}"
        )
    levels = None if entry.levels is None else Levels(*entry.levels)
    return ImageReader(entry.size, entry.channels, tuple(entry.mean), tuple(entry.std), entry.first, levels)
