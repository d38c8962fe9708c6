"""The 1,797 grey handwritten digits of 8 x 8 pixels that are included in scikit-learn.

Source: Alpaydin and Kaynak 1998, "Optical recognition of handwritten digits" (the test part of the UCI data
set). They are in the order of collection, so the last ones were written by other people than the first: the
splits are contiguous, without shuffling.
"""

from collections.abc import Iterator

import numpy as np

from heedful.data.images import LazyImage
from heedful.errors import RequestError
from heedful.typing import JsonObject

SPLITS = {"train": slice(0, 1197), "valid": slice(1197, 1497), "test": slice(1497, 1797)}

BRIGHTEST = 16
"""Maximum pixel value: each pixel counts the dark points in a 4 x 4 square."""


def digits(split: str, seed: int = 0) -> Iterator[JsonObject]:
    """Yield rows with an ``image`` and a ``label``, from 0 to 9; the seed has no effect.

    Raises:
        RequestError: if there is no such split.
    """
    if split not in SPLITS:
        raise RequestError(f"digits has no split {split!r}; there are {', '.join(SPLITS)}")
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = np.rint(data.images * (255 / BRIGHTEST)).astype(np.uint8)
    numbers = range(len(pixels))[SPLITS[split]]
    return ({"image": LazyImage(pixels[i], f"digits {i + 1}"), "label": str(data.target[i])} for i in numbers)
