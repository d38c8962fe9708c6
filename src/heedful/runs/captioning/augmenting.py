"""The pictures of training batches, changed anew in every epoch; their captions stay as they are."""

from collections.abc import Sequence

import numpy as np

from heedful.data.augmentation import Augmentation, augmented
from heedful.data.pictures import PICTURE
from heedful.data.store import Ids
from heedful.runs.pairs import Vary
from heedful.tasks.pictures import PictureReader


def augmenting(how: Augmentation, reader: PictureReader, seed: int) -> Vary:
    """What becomes of a picture is a function of (seed, epoch, sample); each of several captions has its own.

    Args:
        how: what is done.
        reader: how pictures are read; a row of ids is one of its pictures, laid out.
        seed: of the run.
    """
    shape = (-1, reader.channels, reader.size, reader.size)

    def vary(column: str, ids: Sequence[Ids], samples: Sequence[int], epoch: int) -> list[Ids]:
        if column != PICTURE:
            return list(ids)
        pixels = np.stack(ids).reshape(shape)
        changed = augmented(pixels, samples, how, seed=seed, epoch=epoch, fill=reader.middle)
        return list(changed.reshape(len(changed), -1))

    return vary
