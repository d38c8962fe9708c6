"""Training texts and images that differ in every epoch: the interface, and other segmentations of texts."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from heedful.data.store import Ids
from heedful.text.merge_dropout import MergeDropout
from heedful.text.tokenizer import Tokenizer

Augmenter = Callable[[str, Sequence[Ids], Sequence[int], int], list[Ids]]
"""(column, ids of samples, indices of samples, epoch) -> other ids of the same texts, or augmented images."""


def subword_dropout(tokenizers: Mapping[str, Tokenizer], p: float, seed: int) -> Augmenter:
    """Split texts into other subwords in every epoch, as a function of (seed, epoch, sample, column).

    Args:
        tokenizers: of each column.
        p: probability that a merge is left out.
        seed: of the training.
    """
    dropouts = {column: MergeDropout(tokenizer.model, p) for column, tokenizer in tokenizers.items()}

    def resegment(column: str, texts: Sequence[Ids], samples: Sequence[int], epoch: int) -> list[Ids]:
        keys = (f"{seed} {epoch} {int(sample)} {column}" for sample in samples)
        segmented = (dropouts[column](ids.tolist(), key) for ids, key in zip(texts, keys, strict=True))
        return [np.array(ids, dtype=np.int64) for ids in segmented]

    return resegment
