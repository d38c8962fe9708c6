"""BPE-dropout: segment a text differently each time that a model trains on it.

A model that always sees a word as one piece learns nothing about its parts. BPE-dropout skips each possible
merge with probability p, so that the same word appears as ``▁man``, ``▁m an`` or ``▁ m a n``.

Source: Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization", algorithm 1.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise

from heedful.errors import RequestError
from heedful.text.specials import SPECIALS
from heedful.text.subwords import BYTE_PIECES, SubwordModel, pre_tokenizer

Draw = Callable[[], float]


class MergeDropout:
    """Segment encoded text again with some merges of a byte-pair model skipped at random.

    With p = 0 the ids are unchanged. Special tokens are kept, and so are ids that are not valid UTF-8 (a text
    truncated within a character).

    Args:
        model: a byte-pair encoding of characters or bytes.
        p: the probability that a possible merge is skipped.

    Raises:
        RequestError: if the model has no merges.
    """

    def __init__(self, model: SubwordModel, p: float) -> None:
        if model.config.kind not in ("bpe", "byte-bpe"):
            raise RequestError(
                f"subwords.kind={model.config.kind} has no merges for BPE-dropout to skip; "
                "use bpe or byte-bpe, or disable BPE-dropout"
            )
        self.p, self.pieces = p, model.pieces
        bpe = model.data["model"]
        self.ids: dict[str, int] = bpe["vocab"]
        self.merged = [self.ids[left + right] for left, right in bpe["merges"]]
        # If a pair has two merges, only the first one applies.
        self.ranks: dict[tuple[int, int], int] = {}
        for rank, (left, right) in enumerate(bpe["merges"]):
            self.ranks.setdefault((self.ids[left], self.ids[right]), rank)
        self.words = pre_tokenizer(model.config)

    def __call__(self, ids: Sequence[int], seed: str) -> list[int]:
        """Return the ids of a new segmentation of the same text.

        Args:
            ids: the ids of a text, as encoded by the model.
            seed: the same seed gives the same ids.
        """
        random_number, new_ids = random.Random(seed).random, []
        for is_special, run in groupby(map(int, ids), key=lambda i: i < len(SPECIALS)):
            run_ids = list(run)
            new_ids += run_ids if is_special else self._resegment(run_ids, random_number)
        return new_ids

    def _resegment(self, ids: list[int], draw: Draw) -> list[int]:
        try:
            text = b"".join(self.pieces[i] for i in ids).decode()
        except UnicodeDecodeError:
            return ids
        return [i for word, _ in self.words.pre_tokenize_str(text) for i in self._segment(word, draw)]

    def _segment(self, word: str, draw: Draw) -> list[int]:
        """Start from characters and apply the first merge that is not skipped until none is left."""
        pieces = list(self._letters(word))
        while True:
            candidates = {
                position: self.ranks[pair]
                for position, pair in enumerate(pairwise(pieces))
                if pair in self.ranks and draw() >= self.p
            }
            if not candidates:
                return pieces
            best_rank = min(candidates.values())
            positions = {position for position, rank in candidates.items() if rank == best_rank}
            pieces = list(_merge(pieces, positions, self.merged[best_rank]))

    def _letters(self, word: str) -> Iterator[int]:
        for letter in word:
            if letter in self.ids:
                yield self.ids[letter]
            else:
                yield from (self.ids[BYTE_PIECES[byte]] for byte in letter.encode())


def _merge(pieces: Sequence[int], positions: set[int], merged: int) -> Iterator[int]:
    """Merge each pair that begins at one of the positions; of two overlapping pairs, only the first."""
    position = 0
    while position < len(pieces):
        yield merged if position in positions else pieces[position]
        position += 2 if position in positions else 1
