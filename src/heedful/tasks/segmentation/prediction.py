"""The prediction of a segmentation: a mask, and the share of each class."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from jaxtyping import UInt8

from heedful.tasks.inputs.masks import MaskClasses, as_png, restored, runs_of
from heedful.tasks.prediction import Prediction
from heedful.typing import JsonObject

SMALLEST = 0.001
"""The smallest share that texts show as a number."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Segmentation(Prediction):
    """The predicted classes of the pixels of an image; ``text`` has their shares, ``score`` is unused.

    Args:
        shares: of the pixels of the centre square, by label, the largest first.
        indices: the class index of each pixel at the model's size. Not part of JSON, which has the `mask`.
        classes: the labels of the indices, and their numbers.
        size: width and height of the image.
    """

    shares: dict[str, float]
    indices: UInt8[np.ndarray, "m m"] = field(repr=False, compare=False)
    classes: MaskClasses = field(repr=False, compare=False)
    size: tuple[int, int]

    has_score: ClassVar[bool] = False

    @classmethod
    def of(
        cls, indices: UInt8[np.ndarray, "m m"], classes: MaskClasses, size: tuple[int, int]
    ) -> "Segmentation":
        """Return the prediction of class indices for an image of a size, width and height."""
        counts = np.bincount(indices.reshape(-1), minlength=len(classes.labels))
        order = [i for i in np.argsort(-counts, kind="stable").tolist() if counts[i]]
        shares = {classes.labels[i]: float(counts[i] / indices.size) for i in order}
        text = ", ".join(f"{label} {_percent(share)}" for label, share in shares.items())
        return cls(text, shares=shares, indices=indices, classes=classes, size=size)

    @property
    def mask(self) -> UInt8[np.ndarray, "H W"]:
        """The class number of each pixel of the image; outside of the centre square, that of no class."""
        return self.classes.numbers_of(restored(self.indices, self.size))

    def image_file(self) -> bytes:
        """Return the mask as a palette PNG."""
        return as_png(self.mask)

    @property
    def output(self) -> object:
        """The mask: its width and height, and runs of equal numbers row by row."""
        return {"size": list(self.size), "runs": runs_of(self.mask)}

    def details(self) -> JsonObject:
        """Return the shares."""
        return {"shares": self.shares}


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= SMALLEST else f"<{100 * SMALLEST:.1f} %"
