"""Masks: the classes of their numbers, checks, and masks as image files and as runs of equal pixels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from heedful.data.images import UNSCORED, LazyImage
from heedful.errors import DataError
from heedful.tasks.inputs.labels import FEWEST_LABELS, Labels

MOST_CLASSES = UNSCORED
"""Maximum number of classes: the index `UNSCORED` is none of them."""

_UNKNOWN = -1


@dataclass(frozen=True)
class MaskClasses:
    """The classes of a run, and the number of each in mask files.

    Args:
        labels: the name of each class, in the order of their indices.
        numbers: the number of each in masks.
        ignore: the number of pixels that are not scored; None: there are none.
        are_named: whether the recipe names the labels.
    """

    labels: Labels
    numbers: tuple[int, ...]
    ignore: int | None
    are_named: bool

    @classmethod
    def of(cls, labels: Labels, named: Sequence[str] | None, ignore: int | None) -> "MaskClasses":
        """Return the classes of labels: those that the recipe names have the numbers 0, 1, …

        Args:
            labels: of a processor.
            named: the labels of the recipe; None: the labels are the numbers themselves.
            ignore: see `MaskClasses`.
        """
        numbers = tuple(range(len(labels))) if named is not None else tuple(map(int, labels))
        return cls(labels, numbers, ignore, named is not None)

    @cached_property
    def _indices(self) -> NDArray[np.int16]:
        table = np.full(256, _UNKNOWN, np.int16)
        table[list(self.numbers)] = np.arange(len(self.numbers))
        if self.ignore is not None:
            table[self.ignore] = UNSCORED
        return table

    def indices(self, numbers: UInt8[np.ndarray, "H W"], mask: LazyImage) -> UInt8[np.ndarray, "H W"]:
        """Return the class index of each pixel; `UNSCORED` of pixels that are not scored.

        Raises:
            DataError: a number has no label.
        """
        indices = self._indices[numbers]
        if (indices == _UNKNOWN).any():
            number = int(numbers[indices == _UNKNOWN].min())
            n_pixels = int((numbers == number).sum())
            problem = f"{mask}: the class number {number} ({n_pixels:,} pixels)"
            leave_out = f"set task.ignore={number} to leave its pixels out"
            if self.are_named:
                raise DataError(
                    f"{problem} has no label: task.labels has {len(self.labels)} labels, for 0 to "
                    f"{len(self.labels) - 1}; add one, or {leave_out}"
                )
            raise DataError(
                f"{problem} does not occur in the training masks; list all labels in task.labels, or "
                f"{leave_out}"
            )
        return indices.astype(np.uint8)

    def unseen(self, numbers: UInt8[np.ndarray, "H W"]) -> list[str]:
        """Return the numbers in a mask that have no label."""
        found = np.unique(numbers)
        return [str(number) for number in found[self._indices[found] == _UNKNOWN]]

    def numbers_of(self, indices: UInt8[np.ndarray, "*axes"]) -> UInt8[np.ndarray, "*axes"]:
        """Return the number of each class index; `UNSCORED` becomes the number that is not scored."""
        table = np.full(256, UNSCORED if self.ignore is None else self.ignore, np.uint8)
        table[: len(self.numbers)] = self.numbers
        return table[indices]


def collect_numbers(masks: Iterable[UInt8[np.ndarray, "H W"]], ignore: int | None) -> Labels:
    """Return the numbers that occur in masks as labels, sorted as numbers.

    Raises:
        DataError: there are fewer than two, or too many.
    """
    occurs = np.zeros(256, dtype=bool)
    for mask in masks:
        occurs[mask.reshape(-1)] = True
    has_ignored = ignore is not None and bool(occurs[ignore])
    if ignore is not None:
        occurs[ignore] = False
    numbers = np.flatnonzero(occurs).tolist()
    if len(numbers) < FEWEST_LABELS:
        ignored = f", and {ignore}, which is not scored (if it is a class, set task.ignore to null)"
        raise DataError(
            f"at least two class numbers are needed in masks, got {numbers}{ignored * has_ignored}"
        )
    if len(numbers) > MOST_CLASSES:
        raise DataError(f"masks must have at most {MOST_CLASSES} class numbers, got {len(numbers)}")
    return tuple(map(str, numbers))


def check_size(image: LazyImage, mask: LazyImage) -> None:
    """Check that a mask has the size of its image.

    Raises:
        DataError: it does not, or one of both cannot be read.
    """
    if image.size != mask.size:
        found, expected = (" x ".join(map(str, each.size)) for each in (mask, image))
        is_turned = image.is_turned and image.size == mask.size[::-1]
        remedy = f"turn it as the EXIF orientation of {image} says" if is_turned else "resize the mask"
        raise DataError(f"{mask}: expected {expected} pixels, the size of {image}, got {found}; {remedy}")


def restored(indices: UInt8[np.ndarray, "m m"], size: tuple[int, int]) -> UInt8[np.ndarray, "H W"]:
    """Return class indices of the model's size in the geometry of their image: see `LazyImage.numbers`.

    Pixels outside of the centre square are `UNSCORED`.

    Args:
        indices: the pixels that the model read: the centre square of the image.
        size: width and height of the image.
    """
    rows, columns = (_cells(length, min(size), len(indices)) for length in reversed(size))
    full = np.append(indices.reshape(-1), np.uint8(UNSCORED))
    is_inside = (rows >= 0)[:, None] & (columns >= 0)
    return full[np.where(is_inside, rows[:, None] * len(indices) + columns, len(full) - 1)]


def _cells(length: int, side: int, n: int) -> NDArray[np.int64]:
    """Return which of the n cells of the centre square each pixel belongs to, along one axis; -1 for none.

    The square has ``side`` of the ``length`` pixels. A centre on the border of two cells is of the first:
    then `LazyImage.numbers`, which takes the second of two nearest pixels, returns what was restored.
    """
    positions = (2 * np.arange(length) + 1 - (length - side)) * n  # of the centres, in cells times 2 side
    cells = -(-positions // (2 * side)) - 1
    return np.where((cells >= 0) & (cells < n), cells, -1)


def as_png(numbers: UInt8[np.ndarray, "H W"]) -> bytes:
    """Return a mask as a palette PNG, whose pixels are its numbers, in the colours of PASCAL VOC."""
    from PIL import Image

    image, content = Image.fromarray(numbers), BytesIO()
    image.putpalette(PALETTE)  # the mode becomes P
    image.save(content, "png")
    return content.getvalue()


def _voc_colour(number: int) -> tuple[int, int, int]:
    """Return the colour of a number: its bits 0, 1, 2 are the highest of red, green and blue, and so on."""
    bits = [[(number >> (3 * i + channel)) & 1 for i in range(3)] for channel in range(3)]
    red, green, blue = (sum(bit << (7 - i) for i, bit in enumerate(channel)) for channel in bits)
    return red, green, blue


PALETTE = bytes(level for number in range(256) for level in _voc_colour(number))
"""The colours of all numbers: PASCAL VOC's, in which neighbouring numbers differ."""


def runs_of(numbers: UInt8[np.ndarray, "H W"]) -> list[list[int]]:
    """Return runs of equal pixels, row by row, as pairs of the number and the length of the run."""
    flat = numbers.reshape(-1)
    starts = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
    lengths = np.diff(np.append(starts, len(flat)))
    return np.stack([flat[starts].astype(np.int64), lengths], axis=1).tolist()
