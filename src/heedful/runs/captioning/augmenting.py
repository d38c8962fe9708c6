"""The images of training batches, changed anew in every epoch; their captions stay as they are."""

from collections.abc import Sequence

import numpy as np

from heedful.data.augmentation import Augmentation, augmented
from heedful.data.images import IMAGE
from heedful.data.store import Ids
from heedful.runs.pairs import Vary
from heedful.tasks.images import ImageReader


def augmenting(how: Augmentation, reader: ImageReader, seed: int) -> Vary:
    """What becomes of an image is a function of (seed, epoch, sample); each of several captions has its own.

    Args:
        how: what is done.
        reader: how images are read; a row of ids is one of its images, laid out.
        seed: of the run.
    """
    shape = (-1, reader.channels, reader.size, reader.size)

    def vary(column: str, ids: Sequence[Ids], samples: Sequence[int], epoch: int) -> list[Ids]:
        if column != IMAGE:
            return list(ids)
        pixels = np.stack(ids).reshape(shape)
        changed = augmented(pixels, samples, how, seed=seed, epoch=epoch, fill=reader.middle)
        return list(changed.reshape(len(changed), -1))

    return vary
