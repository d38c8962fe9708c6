"""BPE-dropout of the texts that a translator learns from."""

from collections.abc import Mapping, Sequence

import numpy as np

from heedful.data.store import Ids
from heedful.runs.pairs import Vary
from heedful.text.merge_dropout import MergeDropout
from heedful.text.tokenizer import Tokenizer


def recutting(tokenizers: Mapping[str, Tokenizer], p: float, seed: int) -> Vary:
    """What cuts texts anew in every epoch, each as (seed, epoch, sample, column) decide.

    Args:
        tokenizers: of each column.
        p: how probable it is that a merge is left out.
        seed: of the training.
    """
    drop = {column: MergeDropout(tokenizer.model, p) for column, tokenizer in tokenizers.items()}

    def recut(column: str, texts: Sequence[Ids], samples: Sequence[int], epoch: int) -> list[Ids]:
        keys = (f"{seed} {epoch} {int(sample)} {column}" for sample in samples)
        found = (drop[column](ids.tolist(), key) for ids, key in zip(texts, keys, strict=True))
        return [np.array(ids, dtype=np.int64) for ids in found]

    return recut
