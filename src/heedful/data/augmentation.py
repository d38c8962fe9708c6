"""Pictures that are changed a little in every epoch, so that a model does not learn them by heart.

What happens to a picture is a function of (seed, epoch, sample) alone: no generator is kept, and no other
picture of the batch matters. All pictures of a batch are changed at once.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from jaxtyping import Float, UInt8, UInt64
from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from heedful.config import Config

PICTURES, CROPS = 3, 4
"""Tell these random numbers from those of plans, windows and masks, of the same seed and epoch."""

AREA, ASPECT = (0.02, 0.33), (0.3, 1 / 0.3)
"""Between which an erased rectangle's share of the picture lies, and its height over its width."""

_NUMBERS = 8

Share = Annotated[float, Field(gt=0, le=1)]


class Crop(Config):
    """A piece of random size, shape and place that takes the place of the whole picture.

    Sizes are drawn evenly, shapes evenly on a logarithmic scale, among those that fit into the picture. The
    piece is cut from the picture as the model reads it and is brought back to its size, bilinearly: so a
    small piece is blurred. Source: Szegedy et al. 2015, "Going deeper with convolutions", section 6, which
    names the bounds.

    Args:
        area: between which the piece's share of the picture lies.
        aspect: between which its width over its height lies.
    """

    area: Annotated[list[Share], Field(min_length=2, max_length=2)] = [0.08, 1.0]  # noqa: RUF012
    aspect: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] = [3 / 4, 4 / 3]  # noqa: RUF012

    @model_validator(mode="after")
    def _fits(self) -> "Crop":
        for name, (least, greatest) in (("area", self.area), ("aspect", self.aspect)):
            if least > greatest:
                raise ValueError(f"{name}=[{least:g}, {greatest:g}]: give the smaller number first")
        most = self.area[1]
        if self.aspect[0] * most > 1 or self.aspect[1] < most:
            raise ValueError(
                f"no piece with a share of {most:g} fits into a square picture in a shape of "
                f"{self.aspect[0]:g} to {self.aspect[1]:g}: lower area, or let aspect come nearer to 1"
            )
        return self


class Augmentation(Config):
    """What is done to training pictures; nothing, by default.

    Args:
        crop: a piece in place of the whole, for photographs of objects; null: the whole. It is done first.
        shift: move by at most this many pixels in each direction, all steps alike; the picture's edge fills
            the place that becomes free (Krizhevsky et al. 2012 cut pieces out, which moves as well).
        flip: exchange left and right in half of the cases; wrong where they mean something, as in digits, or
            are named in captions.
        erase: how probable it is that a rectangle is overwritten, by the mean of all pictures, or a
            captioner's by grey (Zhong et al. 2020, "Random erasing": its share of the picture 0.02 to 0.33,
            its shape 0.3 to 3.3; what would not fit is cut, not drawn again).
    """

    crop: Crop | None = None
    shift: NonNegativeInt = 0
    flip: bool = False
    erase: float = Field(default=0.0, ge=0, le=1)


def augmented(
    pixels: UInt8[np.ndarray, "B C H W"],
    samples: Sequence[int],
    how: Augmentation,
    *,
    seed: int,
    epoch: int,
    fill: UInt8[np.ndarray, " C"],
) -> UInt8[np.ndarray, "B C H W"]:
    """The pictures, changed.

    Args:
        pixels: as they are; not written to.
        samples: of each its number.
        how: what is done.
        seed: decides, with epoch and number, what becomes of each.
        epoch: see ``seed``.
        fill: what is written over an erased rectangle, in each channel.
    """
    if how.crop is not None:
        pixels = cut(pixels, *pieces(uniforms(seed, epoch, samples, 4, CROPS), how.crop))
    draw = uniforms(seed, epoch, samples, _NUMBERS)
    if how.shift or how.flip:
        pixels = _moved(pixels, draw[:, :3], how)
    if how.erase:
        pixels = _erased(pixels, draw[:, 3:], how.erase, fill)
    return pixels


def uniforms(
    seed: int, epoch: int, samples: Sequence[int], n: int, of: int = PICTURES
) -> Float[np.ndarray, "B n"]:
    """``n`` numbers in [0, 1) for each sample: places of one SplitMix64 sequence for each seed and epoch.

    What they are drawn for, ``of``, has a sequence of its own: an option leaves the numbers of others alone.
    A generator for each sample would take longer than all that is done with its numbers. Source: Steele, Lea
    and Flood 2014, "Fast splittable pseudorandom number generators", figure 17 (the mixing of Java 8).
    """
    key = np.random.SeedSequence([seed, epoch], spawn_key=(of,)).generate_state(1, np.uint64)
    places = np.asarray(samples, dtype=np.uint64)[:, None] * np.uint64(n) + np.arange(
        1, n + 1, dtype=np.uint64
    )
    z = _mixed(key + places * np.uint64(0x9E3779B97F4A7C15))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: UInt64[np.ndarray, "B n"]) -> UInt64[np.ndarray, "B n"]:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))


def pieces(
    draw: Float[np.ndarray, "B 4"], how: Crop
) -> tuple[Float[np.ndarray, "B 2"], Float[np.ndarray, "B 2"]]:
    """Where pieces begin, and how long their sides are, down and across; the picture's own sides are 1."""
    area = how.area[0] + draw[:, 0] * (how.area[1] - how.area[0])
    # Neither side, √(area / aspect) and √(area · aspect), is longer than the picture's.
    least, greatest = np.maximum(how.aspect[0], area), np.minimum(how.aspect[1], 1 / area)
    aspect = least * (greatest / least) ** draw[:, 1]
    sides = np.minimum(np.sqrt(np.stack([area / aspect, area * aspect], axis=1)), 1.0)
    return draw[:, 2:] * (1 - sides), sides


def cut(
    pixels: UInt8[np.ndarray, "B C H W"], begins: Float[np.ndarray, "B 2"], sides: Float[np.ndarray, "B 2"]
) -> UInt8[np.ndarray, "B C H W"]:
    """Pieces of pictures, brought to the pictures' size: y = R x Cᵀ, of each channel.

    Row i of R mixes the two rows of pixels that are nearest to its place. Nothing becomes smaller, so there
    is nothing to be smoothed against aliasing.
    """
    rows, columns = (_between(begins[:, axis], sides[:, axis], pixels.shape[2 + axis]) for axis in (0, 1))
    y = rows[:, None] @ pixels.astype(np.float32) @ columns[:, None].swapaxes(2, 3)
    return np.rint(y).astype(np.uint8)


def _between(
    begins: Float[np.ndarray, " B"], sides: Float[np.ndarray, " B"], n: int
) -> Float[np.ndarray, "B n n"]:
    """How much of each of n pixels a new one takes: ``max(0, 1 - |x - p_i|)``, p_i its place among them."""
    places = n * begins[:, None] + (np.arange(n) + 0.5) * sides[:, None] - 0.5
    distances = np.abs(np.arange(n) - np.clip(places, 0, n - 1)[:, :, None])
    return np.maximum(0, 1 - distances).astype(np.float32)


def _moved(
    pixels: UInt8[np.ndarray, "B C H W"], draw: Float[np.ndarray, "B 3"], how: Augmentation
) -> UInt8[np.ndarray, "B C H W"]:
    """Shifted and flipped, by reading every pixel from another place."""
    n, channels, height, width = pixels.shape
    steps = np.floor(draw[:, :2] * (2 * how.shift + 1)).astype(np.int64) - how.shift
    rows = np.clip(np.arange(height) + steps[:, :1], 0, height - 1)
    columns = np.clip(np.arange(width) + steps[:, 1:], 0, width - 1)
    if how.flip:
        columns = np.where(draw[:, 2:] < 0.5, columns[:, ::-1], columns)
    places = (rows[:, :, None] * width + columns[:, None, :]).reshape(n, 1, -1)
    flat = pixels.reshape(n, channels, -1)
    return np.take_along_axis(flat, places, axis=2).reshape(pixels.shape)


def _erased(
    pixels: UInt8[np.ndarray, "B C H W"],
    draw: Float[np.ndarray, "B 5"],
    probability: float,
    fill: UInt8[np.ndarray, " C"],
) -> UInt8[np.ndarray, "B C H W"]:
    """With a rectangle overwritten in some of them."""
    size = np.array(pixels.shape[2:])
    area = size.prod() * (AREA[0] + draw[:, 1] * (AREA[1] - AREA[0]))
    aspect = np.exp(np.log(ASPECT[0]) + draw[:, 2] * np.log(ASPECT[1] / ASPECT[0]))
    sides = np.stack([np.sqrt(area * aspect), np.sqrt(area / aspect)], axis=1)
    sides = np.clip(np.rint(sides).astype(np.int64), 1, size)
    begins = np.floor(draw[:, 3:] * (size - sides + 1)).astype(np.int64)
    rows, columns = (
        (np.arange(size[axis]) >= begins[:, axis, None])
        & (np.arange(size[axis]) < (begins + sides)[:, axis, None])
        for axis in (0, 1)
    )
    rows &= draw[:, :1] < probability
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    return np.where(inside, fill[None, :, None, None], pixels)
