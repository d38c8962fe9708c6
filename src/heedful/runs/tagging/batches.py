"""Batches of words with tags: rows, or stretches of those that are longer than the model reads."""

from collections.abc import Iterator, Sequence

import numpy as np

from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.data.store import TokenStore
from heedful.tasks.tagging import TAGS, WORDS, WordTemplate, stretches
from heedful.tasks.texts import N_SPECIALS


class TagBatches:
    """See `heedful.runs.measuring.Batches`; a sample is a stretch of a row.

    Args:
        store: ids of words, and marks where words begin.
        longest: the most tokens of a sequence.
        frame: how the words lie before the model.
    """

    def __init__(self, store: TokenStore, longest: int, frame: WordTemplate) -> None:
        self.store, self.frame = store, frame
        room, lengths = longest - N_SPECIALS, store.lengths(WORDS)
        found = [(row, *part) for row, n in enumerate(lengths.tolist()) for part in self._parts(row, n, room)]
        self.parts = np.array(found, dtype=np.int64).reshape(-1, 3)
        self.lengths: Lengths = self.parts[:, 2] - self.parts[:, 1] + N_SPECIALS

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """The batch of some stretches."""
        chosen = self.parts[list(samples)]
        rows = self.store.gather(chosen[:, 0].tolist())
        cut = [slice(first, last) for _, first, last in chosen.tolist()]
        texts, marks = ([ids[part] for ids, part in zip(rows[c], cut, strict=True)] for c in (WORDS, TAGS))
        return self.frame(texts, marks, samples)

    def _parts(self, row: int, n_tokens: int, room: int) -> Iterator[tuple[int, int]]:
        """The first token of each stretch of a row, and the first one after it."""
        if n_tokens <= room:
            yield 0, n_tokens
            return
        bounds = np.append(np.flatnonzero(self.store[row][TAGS]), n_tokens)
        for first, last in stretches(np.diff(bounds).tolist(), room):
            yield int(bounds[first]), int(bounds[last])
