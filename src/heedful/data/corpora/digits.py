"""Handwritten digits of 8 x 8 pixels in grey, 1,797 of them, as scikit-learn carries them.

Source: Alpaydin and Kaynak 1998, "Optical recognition of handwritten digits" (the test part of the UCI data
set). They stand in the order in which they were collected, so the last ones come from other hands than the
first: the split cuts, and does not shuffle.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from heedful.data.pictures import Picture
from heedful.errors import RequestError

SPLITS = {"train": slice(0, 1197), "valid": slice(1197, 1497), "test": slice(1497, 1797)}

BRIGHTEST = 16
"""Pixels count the dark points of a square of 4 x 4: from 0 to 16."""


def digits(split: str, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Rows with a ``picture`` and a ``label``, from 0 to 9; there is but one corpus, whatever the seed.

    Raises:
        RequestError: no such split.
    """
    if split not in SPLITS:
        raise RequestError(f"digits has no split {split!r}; there are {', '.join(SPLITS)}")
    from sklearn.datasets import load_digits

    held = load_digits()
    pixels = np.rint(held.images * (255 / BRIGHTEST)).astype(np.uint8)
    numbers = range(len(pixels))[SPLITS[split]]
    return ({"picture": Picture(pixels[i], f"digits {i + 1}"), "label": str(held.target[i])} for i in numbers)
