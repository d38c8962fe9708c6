"""Images with more than 8 bits for each pixel: which levels are black and white, and conversion to 8 bits.

    level -> round(255 (level - black) / (white - black)), from 0 to 255

Instruments store 10, 12 or 14 bits in 16: by the range of the type, their images would be nearly black. By
the range of each image, equal levels would look different in training and prediction. So `Levels` are those
of all training images, and are stored with the model.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

FEWEST_BITS = 8


class Extremes(NamedTuple):
    """The lowest and highest level of an image, and whether its type has whole numbers only."""

    lowest: float
    highest: float
    is_whole: bool


class Levels(NamedTuple):
    """The level that is black and the one that is white, in all images with more than 8 bits."""

    black: float
    white: float

    @classmethod
    def covering(cls, images: Iterable[Extremes]) -> "Levels | None":
        """Return the levels for training images; None if there is none with more than 8 bits.

        Of whole numbers, black is 0, and white the highest number of as many bits as are used: 4,095 of 12.
        If there are negative or fractional levels, they are the lowest and the highest.
        """
        extremes = list(images)
        if not extremes:
            return None
        lowest, highest = min(e.lowest for e in extremes), max(e.highest for e in extremes)
        if lowest >= 0 and all(e.is_whole for e in extremes):
            return cls(0.0, float(2 ** max(FEWEST_BITS, int(highest).bit_length()) - 1))
        return cls(lowest, highest)


SIXTEEN_BITS = Levels(0.0, 2.0**16 - 1)
"""The levels for a model without training images of more than 8 bits."""


def is_deep(image: "Image") -> bool:
    """Whether an image has more than 8 bits for each pixel; in colours, Pillow keeps only the highest 8."""
    return image.mode.startswith("I") or image.mode == "F"


def extremes_of(image: "Image") -> Extremes:
    """Return the lowest and highest level of an image with more than 8 bits.

    Raises:
        ValueError: a pixel is not a finite number.
    """
    values = _finite(image)
    return Extremes(float(values.min()), float(values.max()), values.dtype.kind != "f")


def in_8_bits(image: "Image", levels: Levels | None) -> "Image":
    """Convert an image with more than 8 bits to grey ("L").

    Args:
        image: the image.
        levels: those of the training data; None: there are none, as for `SIXTEEN_BITS`.

    Raises:
        ValueError: the range is unknown, or a pixel is not a finite number.
    """
    from PIL import Image

    if levels is None and image.mode in {"I", "F"}:
        raise ValueError(
            "32-bit pixels, of which this model has seen none, have no known black and white; save it with 8 "
            "or 16 bits"
        )
    black, white = levels or SIXTEEN_BITS
    scaled = (_finite(image).astype(np.float64) - black) * (255 / ((white - black) or 1))
    return Image.fromarray(np.rint(scaled.clip(0, 255)).astype(np.uint8))


def _finite(image: "Image") -> np.ndarray:
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise ValueError("pixels must be finite numbers, got NaN or infinity; replace them")
    return values
