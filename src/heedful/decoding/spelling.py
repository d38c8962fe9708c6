"""The pieces of a vocabulary as bytes, indexed for questions about the text that tokens spell."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Int

Ids = Int[np.ndarray, " n"]


class Spelling:
    """What each token adds to a text.

    Args:
        pieces: the bytes of each token; empty for tokens that spell nothing or are never generated.
        first_space: removed from the first piece of an output, if it begins with it; empty if outputs
            continue another text.
    """

    def __init__(self, pieces: Sequence[bytes], first_space: bytes = b"") -> None:
        self.pieces, self.first_space = tuple(pieces), first_space
        pairs = sorted((piece, i) for i, piece in enumerate(pieces) if piece)
        self._sorted = [piece for piece, _ in pairs]
        self._ids = np.array([i for _, i in pairs], dtype=np.int64)
        self._longest = max(map(len, self._sorted), default=0)

    @cached_property
    def without_spaces(self) -> "Spelling":
        """The same pieces without white space."""
        return Spelling([b"".join(piece.split()) for piece in self.pieces])

    def starting_with(self, text: bytes) -> Ids:
        """Return the tokens whose piece starts with a text, which is not empty."""
        begin = bisect_left(self._sorted, text)
        end = bisect_left(self._sorted, following) if (following := _following(text)) else len(self._sorted)
        return self._ids[begin:end]

    def prefixes(self, text: bytes) -> list[tuple[int, Ids]]:
        """Return the lengths of pieces that a text starts with, each with the tokens of that piece."""
        lengths = range(1, min(self._longest, len(text)) + 1)
        spans = ((n, self._equal(text[:n])) for n in lengths)
        return [(n, ids) for n, ids in spans if len(ids)]

    def _equal(self, piece: bytes) -> Ids:
        begin = bisect_left(self._sorted, piece)
        end = bisect_left(self._sorted, piece + b"\0")
        return self._ids[begin:end]

    def containing(self, texts: Sequence[bytes]) -> Ids:
        """Return the tokens whose piece contains one of the texts."""
        search = re.compile(b"|".join(map(re.escape, texts))).search
        is_found = np.fromiter((search(piece) is not None for piece in self._sorted), bool, len(self._sorted))
        return self._ids[is_found]

    def fewest_to_begin(self, text: bytes) -> list[float]:
        """Return, for each position of a text, the fewest tokens whose pieces spell the rest of it.

        The last piece may go on beyond the text. Infinity if no tokens do; 0 after the end of the text.
        """
        fewest = [float("inf")] * len(text) + [0.0]
        for position in reversed(range(len(text))):
            rest = text[position:]
            fewest[position] = min(
                (1 + fewest[position + n] for n, _ in self.prefixes(rest)), default=float("inf")
            )
            if len(self.starting_with(rest)):
                fewest[position] = 1.0
        return fewest

    def shortest(self, text: bytes) -> list[int] | None:
        """Return fewest tokens whose pieces contain a text; None if none do.

        The first piece may begin before the text, and the last piece may go on beyond it.
        """
        if len(whole := self.containing([text])):
            return [int(whole[0])]
        fewest = self.fewest_to_begin(text)
        # Among equally few tokens, the first piece adds little before the text.
        begins = [
            (fewest[n], len(piece) - n, i, n)
            for piece, i in zip(self._sorted, self._ids.tolist(), strict=True)
            for n in range(1, min(len(piece), len(text) - 1) + 1)
            if fewest[n] < float("inf") and piece.endswith(text[:n])
        ]
        if not begins:
            return None
        *_, first, position = min(begins)
        tokens = [first]
        while position < len(text):
            rest = text[position:]
            if len(last := self.starting_with(rest)):
                return [*tokens, int(last[0])]
            n, ids = min(self.prefixes(rest), key=lambda pair: fewest[position + pair[0]])
            tokens.append(int(ids[0]))
            position += n
        return tokens


def _following(text: bytes) -> bytes:
    """Return the least text after all that start with this one; empty if there is none."""
    stem = text.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""
