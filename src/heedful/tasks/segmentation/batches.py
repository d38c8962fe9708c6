"""Batches of images and the class of each of their pixels."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from heedful.data.augmentation import Augmentation, augmented_with_masks
from heedful.data.batch import Batch
from heedful.data.images import IMAGE, MASK, UNSCORED
from heedful.data.plan import Lengths
from heedful.data.store import TokenStore
from heedful.nn.patches import Images
from heedful.tasks.inputs.images import ImageReader
from heedful.tasks.metrics.classification import Counts

CHUNK = 1 << 22
"""Number of pixels whose classes are counted at once."""


class SegmentationBatches:
    """Batches of images with the class of each pixel.

    Args:
        store: pixels and class indices.
        reader: how images are read.
        n_tokens: of an image.
        augmentation: how images and masks are changed; None: not at all.
        seed: of the augmentation.
        weights: of each class in the loss; None: 1.
    """

    def __init__(
        self,
        store: TokenStore,
        reader: ImageReader,
        n_tokens: int,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        weights: Float[Tensor, " C"] | None = None,
    ) -> None:
        size = reader.size
        self.pixels = store.stream(IMAGE).reshape(len(store), reader.channels, size, size)
        self.masks = store.stream(MASK).reshape(len(store), size, size)
        self.reader, self.n_tokens = reader, n_tokens
        self.augmentation, self.seed = augmentation, seed
        self.weights = None if weights is None else torch.zeros(UNSCORED + 1)
        if self.weights is not None and weights is not None:
            self.weights[: len(weights)] = weights
        self.lengths: Lengths = np.full(len(store), n_tokens)

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of these rows."""
        rows = np.asarray(samples, dtype=np.int64)
        pixels, masks = self.pixels[rows], self.masks[rows]
        if self.augmentation is not None:
            pixels, masks = augmented_with_masks(
                pixels,
                masks,
                samples,
                self.augmentation,
                seed=self.seed,
                epoch=epoch,
                fill=self.reader.middle,
                erased=UNSCORED,
            )
        images = Images.of(self.reader.normalised(pixels), self.n_tokens)
        batch = Batch.segmented(images, masks, samples)
        return batch if self.weights is None else replace(batch, weights=self.weights[batch.masks])


def class_pixels(store: TokenStore, n_classes: int) -> Counts:
    """Return the number of pixels of each class in a data set."""
    indices, counts = store.stream(MASK), np.zeros(UNSCORED + 1, dtype=np.int64)
    for start in range(0, len(indices), CHUNK):
        counts += np.bincount(indices[start : start + CHUNK], minlength=UNSCORED + 1)
    return counts[:n_classes]
