"""How a run reads images: their size, grey or colour, and the mean and deviation of pixels."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from pydantic import Field, PositiveInt
from torch import Tensor

from heedful.data.images import LazyImage
from heedful.errors import DamagedError, DataError
from heedful.records import RESTORE, Record, Text, read_record
from heedful.typing import JsonObject

LEVELS = 256

DROP_HINT = "`unreadable: drop` leaves such rows out"
"""Hint in messages about images that cannot be read."""


@dataclass(frozen=True)
class ImageReader:
    """Images to pixels, and pixels to what a model reads: ``(x / 255 - mean) / std``, channel by channel.

    Args:
        size: pixels along each side.
        channels: 1 for grey, 3 for colours.
        mean, std: of all pixels of the training data in each channel, of 1.
        first: describes the first training image, for users.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    first: str = ""

    @classmethod
    def from_images(
        cls, images: Iterable[LazyImage], size: int, channels: int, *, drop: bool = False
    ) -> "ImageReader":
        """Return a reader with the mean and standard deviation of these images.

        They are computed from counts of levels, so the order of the images does not change them.

        Args:
            images: each is read once.
            size: pixels along each side.
            channels: 1 for grey, 3 for colours.
            drop: leave out those that cannot be read.

        Raises:
            DataError: an image cannot be read and is not to be left out, or there is none.
        """
        counts = np.zeros((channels, LEVELS), dtype=np.int64)
        first = ""
        for image in images:
            try:
                pixels = image.pixels(size, channels)
            except DataError as error:
                if not drop:
                    raise DataError(f"{error} ({DROP_HINT})") from None
                continue
            for channel, plane in enumerate(pixels):
                counts[channel] += np.bincount(plane.reshape(-1), minlength=LEVELS)
            first = first or image.kind
        if not first:
            raise DataError("no image can be read")
        levels = np.arange(LEVELS) / (LEVELS - 1)
        shares = counts / counts.sum(1, keepdims=True)
        mean = shares @ levels
        variance = shares @ levels**2 - mean**2
        # Images without contrast are not amplified beyond one level.
        std = np.sqrt(np.maximum(variance, (LEVELS - 1) ** -2.0))
        return cls(size, channels, tuple(mean.tolist()), tuple(std.tolist()), first)

    @property
    def fingerprint(self) -> str:
        """Differs if `pixels` does."""
        return f"{self.channels}x{self.size}x{self.size}"

    @property
    def middle(self) -> UInt8[np.ndarray, " C"]:
        """The level nearest to the mean, in each channel: it carries no information for a model."""
        return np.round(np.array(self.mean) * (LEVELS - 1)).astype(np.uint8)

    def pixels(self, image: LazyImage) -> UInt8[np.ndarray, "C H W"]:
        """Return the pixels of an image, as a data store holds them.

        Raises:
            DataError: it cannot be read.
        """
        return image.pixels(self.size, self.channels)

    def normalised(self, pixels: UInt8[np.ndarray, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """Return the pixels as the model reads them."""
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (self.mean, self.std))
        scale = 1 / ((LEVELS - 1) * std)
        return torch.from_numpy(np.ascontiguousarray(pixels)).float().mul_(scale).sub_(mean / std)

    def to_dict(self) -> JsonObject:
        """Return JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        """Describe for users what is done to images."""
        colours = "in grey" if self.channels == 1 else "in colours"
        first_note = f"the first has {self.first}; " if self.first else ""
        return f"{first_note}all are brought to {self.size} x {self.size} pixels {colours}"


class ReaderEntry(Record):
    """The fields of an `ImageReader`."""

    size: PositiveInt
    channels: Literal[1, 3]
    mean: list[float]
    std: list[Annotated[float, Field(gt=0)]]
    first: Text = ""


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
    return ImageReader(entry.size, entry.channels, tuple(entry.mean), tuple(entry.std), entry.first)
