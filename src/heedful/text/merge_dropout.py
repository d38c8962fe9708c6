"""BPE-dropout: a text is cut into other pieces each time that a model learns from it.

A model that always meets a word as one piece learns nothing about its parts. Here each merge that could be
made is left out with probability p, so that the same word comes as ``▁man``, as ``▁m an``, as ``▁ m a n``.

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
    """Cuts what a byte-pair model has cut once more, with some of its merges left out.

    Where p is 0 the ids come back as they are. Specials stay, and so does what is no UTF-8 (a text that was
    cut off within a character).

    Args:
        model: byte-pair encoding, of characters or of bytes.
        p: how probable it is that a merge is left out, each time that it could be made.

    Raises:
        RequestError: the model has no merges.
    """

    def __init__(self, model: SubwordModel, p: float) -> None:
        if model.config.kind not in ("bpe", "byte-bpe"):
            raise RequestError(
                f"BPE-dropout leaves out merges, and subwords.kind={model.config.kind} has none; "
                "take bpe or byte-bpe, or leave it away"
            )
        self.p, self.pieces = p, model.pieces
        learned = model.data["model"]
        self.ids: dict[str, int] = learned["vocab"]
        self.merged = [self.ids[left + right] for left, right in learned["merges"]]
        # Of two merges of one pair the first is the one that is made.
        self.ranks: dict[tuple[int, int], int] = {}
        for rank, (left, right) in enumerate(learned["merges"]):
            self.ranks.setdefault((self.ids[left], self.ids[right]), rank)
        self.words = pre_tokenizer(model.config)

    def __call__(self, ids: Sequence[int], seed: str) -> list[int]:
        """The ids of the same text, cut anew.

        Args:
            ids: of a text, as the model cuts it.
            seed: the same seed gives the same ids.
        """
        draw, found = random.Random(seed).random, []
        for special, run in groupby(map(int, ids), key=lambda i: i < len(SPECIALS)):
            held = list(run)
            found += held if special else self._again(held, draw)
        return found

    def _again(self, ids: list[int], draw: Draw) -> list[int]:
        try:
            text = b"".join(self.pieces[i] for i in ids).decode()
        except UnicodeDecodeError:
            return ids
        return [i for word, _ in self.words.pre_tokenize_str(text) for i in self._cut(word, draw)]

    def _cut(self, word: str, draw: Draw) -> list[int]:
        """From letters on, the first merge that is not left out, as long as there is one."""
        pieces = list(self._letters(word))
        while True:
            able = {
                place: self.ranks[pair]
                for place, pair in enumerate(pairwise(pieces))
                if pair in self.ranks and draw() >= self.p
            }
            if not able:
                return pieces
            best = min(able.values())
            pieces = list(
                _joined(pieces, {place for place in able if able[place] == best}, self.merged[best])
            )

    def _letters(self, word: str) -> Iterator[int]:
        for letter in word:
            if letter in self.ids:
                yield self.ids[letter]
            else:
                yield from (self.ids[BYTE_PIECES[byte]] for byte in letter.encode())


def _joined(pieces: Sequence[int], places: set[int], merged: int) -> Iterator[int]:
    """The pieces, with each pair that begins at one of the places as one; of two that overlap, the first."""
    place = 0
    while place < len(pieces):
        yield merged if place in places else pieces[place]
        place += 2 if place in places else 1
