"""Image augmentation: change images slightly in every epoch, against overfitting.

The change of an image depends only on (seed, epoch, sample): there is no generator state, and the other
images of the batch do not matter. All images of a batch are augmented at once.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from jaxtyping import Float, UInt8, UInt64
from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from heedful.config import Config
from heedful.data.plan import CROPS, IMAGES

AREA, ASPECT = (0.02, 0.33), (0.3, 1 / 0.3)
"""Ranges of an erased rectangle's share of the image area, and of its height divided by its width."""

_NUMBERS = 8

Share = Annotated[float, Field(gt=0, le=1)]


class Crop(Config):
    """Random resized crop.

    The area is drawn uniformly and the aspect ratio uniformly on a logarithmic scale, among those that fit
    into the image. The crop is taken from the image at the model's input size and resized bilinearly to that
    size, so a small crop is blurred. Source: Szegedy et al. 2015, "Going deeper with convolutions",
    section 6, which gives the ranges.

    Args:
        area: the range of the crop's share of the image area.
        aspect: the range of the crop's width divided by its height.
    """

    area: Annotated[list[Share], Field(min_length=2, max_length=2)] = [0.08, 1.0]  # noqa: RUF012
    aspect: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] = [3 / 4, 4 / 3]  # noqa: RUF012

    @model_validator(mode="after")
    def _fits(self) -> "Crop":
        for name, (lower, upper) in (("area", self.area), ("aspect", self.aspect)):
            if lower > upper:
                raise ValueError(f"{name}=[{lower:g}, {upper:g}]: the smaller number must come first")
        max_area = self.area[1]
        if self.aspect[0] * max_area > 1 or self.aspect[1] < max_area:
            raise ValueError(
                f"a crop of area {max_area:g} and aspect {self.aspect[0]:g} to {self.aspect[1]:g} does not "
                "fit into a square image; lower area, or set aspect closer to 1"
            )
        return self


class Augmentation(Config):
    """Augmentation of training images; none by default.

    Args:
        crop: random resized crop, for photographs of objects, applied first; null: the whole image.
        shift: the maximum shift in pixels in each direction, drawn uniformly; edge pixels are repeated to
            fill the gap (Krizhevsky et al. 2012 take crops, which also shifts).
        flip: flip horizontally with probability 0.5; wrong if left and right matter, as in digits, or if
            captions name them.
        erase: the probability of overwriting a rectangle with the mean of all images, or with grey in
            captioning (Zhong et al. 2020, "Random erasing": area 0.02 to 0.33 of the image, aspect ratio 0.3
            to 3.3; a rectangle that does not fit is clipped, not drawn again). In segmentation, the pixels of
            the rectangle are not scored.
    """

    crop: Crop | None = None
    shift: NonNegativeInt = 0
    flip: bool = False
    erase: float = Field(default=0.0, ge=0, le=1)


def augmented(
    pixels: UInt8[np.ndarray, "B C H W"],
    samples: Sequence[int],
    augmentation: Augmentation,
    *,
    seed: int,
    epoch: int,
    fill: UInt8[np.ndarray, " C"],
) -> UInt8[np.ndarray, "B C H W"]:
    """Augment images.

    Args:
        pixels: the images; not modified.
        samples: the sample number of each image.
        augmentation: the augmentation.
        seed: determines each image's augmentation together with epoch and sample number.
        epoch: see ``seed``.
        fill: the value of each channel in an erased rectangle.
    """
    if augmentation.crop is not None:
        pixels = resized_crops(
            pixels, *crop_boxes(uniforms(seed, epoch, samples, 4, CROPS), augmentation.crop)
        )
    draws = uniforms(seed, epoch, samples, _NUMBERS)
    if augmentation.shift or augmentation.flip:
        pixels = _shifted_and_flipped(pixels, draws[:, :3], augmentation)
    if augmentation.erase:
        pixels = _erased(pixels, draws[:, 3:], augmentation.erase, fill)
    return pixels


def augmented_with_masks(
    pixels: UInt8[np.ndarray, "B C H W"],
    masks: UInt8[np.ndarray, "B H W"],
    samples: Sequence[int],
    augmentation: Augmentation,
    *,
    seed: int,
    epoch: int,
    fill: UInt8[np.ndarray, " C"],
    erased: int,
) -> tuple[UInt8[np.ndarray, "B C H W"], UInt8[np.ndarray, "B H W"]]:
    """Augment images, and their masks in the same way; the images are those of `augmented`.

    Args:
        pixels: the images; not modified.
        masks: a class number for each pixel, which is never interpolated: of a crop, the nearest is taken.
        samples: the sample number of each image.
        augmentation: the augmentation.
        seed: see `augmented`.
        epoch: see `augmented`.
        fill: the value of each channel in an erased rectangle.
        erased: the class number there.
    """
    if augmentation.crop is not None:
        boxes = crop_boxes(uniforms(seed, epoch, samples, 4, CROPS), augmentation.crop)
        pixels, masks = resized_crops(pixels, *boxes), nearest_crops(masks, *boxes)
    together = augmented(
        np.concatenate([pixels, masks[:, None]], axis=1),
        samples,
        augmentation.model_copy(update={"crop": None}),
        seed=seed,
        epoch=epoch,
        fill=np.append(fill, np.uint8(erased)),
    )
    return together[:, :-1], together[:, -1]


def uniforms(
    seed: int, epoch: int, samples: Sequence[int], n: int, stream: int = IMAGES
) -> Float[np.ndarray, "B n"]:
    """Draw ``n`` numbers in [0, 1) for each sample, from one SplitMix64 sequence for each seed and epoch.

    Each purpose ``stream`` has its own sequence, so that one option does not change the numbers of another. A
    generator for each sample would take longer than the augmentation itself. Source: Steele, Lea and Flood
    2014, "Fast splittable pseudorandom number generators", figure 17 (the mixing function of Java 8).
    """
    key = np.random.SeedSequence([seed, epoch], spawn_key=(stream,)).generate_state(1, np.uint64)
    counters = np.asarray(samples, dtype=np.uint64)[:, None] * np.uint64(n) + np.arange(
        1, n + 1, dtype=np.uint64
    )
    z = _mixed(key + counters * np.uint64(0x9E3779B97F4A7C15))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: UInt64[np.ndarray, "B n"]) -> UInt64[np.ndarray, "B n"]:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))


def crop_boxes(
    draws: Float[np.ndarray, "B 4"], crop: Crop
) -> tuple[Float[np.ndarray, "B 2"], Float[np.ndarray, "B 2"]]:
    """Return the top left corners and the heights and widths of crops, relative to the image's sides."""
    area = crop.area[0] + draws[:, 0] * (crop.area[1] - crop.area[0])
    # Neither side, √(area / aspect) and √(area · aspect), is longer than the image's.
    lower, upper = np.maximum(crop.aspect[0], area), np.minimum(crop.aspect[1], 1 / area)
    aspect = lower * (upper / lower) ** draws[:, 1]
    sides = np.minimum(np.sqrt(np.stack([area / aspect, area * aspect], axis=1)), 1.0)
    return draws[:, 2:] * (1 - sides), sides


def resized_crops(
    pixels: UInt8[np.ndarray, "B C H W"], corners: Float[np.ndarray, "B 2"], sides: Float[np.ndarray, "B 2"]
) -> UInt8[np.ndarray, "B C H W"]:
    """Crop images and resize the crops to the image size: y = R x Cᵀ for each channel.

    Row i of R interpolates the two nearest rows of pixels. Crops are only enlarged, so no smoothing against
    aliasing is needed.
    """
    rows, columns = (
        _interpolation_weights(corners[:, axis], sides[:, axis], pixels.shape[2 + axis]) for axis in (0, 1)
    )
    y = rows[:, None] @ pixels.astype(np.float32) @ columns[:, None].swapaxes(2, 3)
    return np.rint(y).astype(np.uint8)


def nearest_crops(
    masks: UInt8[np.ndarray, "B H W"], corners: Float[np.ndarray, "B 2"], sides: Float[np.ndarray, "B 2"]
) -> UInt8[np.ndarray, "B H W"]:
    """Crop masks as `resized_crops` does images, and take the nearest pixel in place of interpolating."""
    rows, columns = (
        np.floor(_positions(corners[:, axis], sides[:, axis], masks.shape[1 + axis]) + 0.5).astype(np.int64)
        for axis in (0, 1)
    )
    return masks[np.arange(len(masks))[:, None, None], rows[:, :, None], columns[:, None, :]]


def _positions(
    starts: Float[np.ndarray, " B"], sides: Float[np.ndarray, " B"], n: int
) -> Float[np.ndarray, "B n"]:
    """Return the position p_i of each of n new pixels, in pixels of the image from 0 to n - 1."""
    return np.clip(n * starts[:, None] + (np.arange(n) + 0.5) * sides[:, None] - 0.5, 0, n - 1)


def _interpolation_weights(
    starts: Float[np.ndarray, " B"], sides: Float[np.ndarray, " B"], n: int
) -> Float[np.ndarray, "B n n"]:
    """Return the weight of each of n pixels x in a new pixel at position p_i: ``max(0, 1 - |x - p_i|)``."""
    distances = np.abs(np.arange(n) - _positions(starts, sides, n)[:, :, None])
    return np.maximum(0, 1 - distances).astype(np.float32)


def _shifted_and_flipped(
    pixels: UInt8[np.ndarray, "B C H W"], draws: Float[np.ndarray, "B 3"], augmentation: Augmentation
) -> UInt8[np.ndarray, "B C H W"]:
    """Shift and flip images by gathering pixels."""
    n, channels, height, width = pixels.shape
    shifts = np.floor(draws[:, :2] * (2 * augmentation.shift + 1)).astype(np.int64) - augmentation.shift
    rows = np.clip(np.arange(height) + shifts[:, :1], 0, height - 1)
    columns = np.clip(np.arange(width) + shifts[:, 1:], 0, width - 1)
    if augmentation.flip:
        columns = np.where(draws[:, 2:] < 0.5, columns[:, ::-1], columns)
    indices = (rows[:, :, None] * width + columns[:, None, :]).reshape(n, 1, -1)
    flat = pixels.reshape(n, channels, -1)
    return np.take_along_axis(flat, indices, axis=2).reshape(pixels.shape)


def _erased(
    pixels: UInt8[np.ndarray, "B C H W"],
    draws: Float[np.ndarray, "B 5"],
    probability: float,
    fill: UInt8[np.ndarray, " C"],
) -> UInt8[np.ndarray, "B C H W"]:
    """Overwrite a rectangle in some of the images."""
    size = np.array(pixels.shape[2:])
    area = size.prod() * (AREA[0] + draws[:, 1] * (AREA[1] - AREA[0]))
    aspect = np.exp(np.log(ASPECT[0]) + draws[:, 2] * np.log(ASPECT[1] / ASPECT[0]))
    sides = np.stack([np.sqrt(area * aspect), np.sqrt(area / aspect)], axis=1)
    sides = np.clip(np.rint(sides).astype(np.int64), 1, size)
    corners = np.floor(draws[:, 3:] * (size - sides + 1)).astype(np.int64)
    rows, columns = (
        (np.arange(size[axis]) >= corners[:, axis, None])
        & (np.arange(size[axis]) < (corners + sides)[:, axis, None])
        for axis in (0, 1)
    )
    rows &= draws[:, :1] < probability
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    return np.where(inside, fill[None, :, None, None], pixels)
