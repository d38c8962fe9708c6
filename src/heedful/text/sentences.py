"""Where sentences begin and end, as far as single pieces tell: tables over a vocabulary.

A sentence ends in . ! ? or …, whatever closing quotes and brackets follow, and the next begins with the next
word; or it ends in 。！？, which no space follows; or its line ends. No abbreviation is known: after "Dr." a
sentence begins. Pieces of whole words and of WordPiece keep no white space: there every piece that does not
go on with a word begins one, so a number's point ends a sentence too, and line ends are not seen. Of what
is spelt in single bytes, only the signs of ASCII are.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

STOPS = ".!?…"
WIDE_STOPS = "。！？"
BRACKETS = ")]}»”’›」』）】》〉"
"""What closes, and never opens."""
QUOTES = "\"'“«"
"""What also opens: it closes where no white space stands before it."""


@dataclass(frozen=True)
class SentenceSigns:
    """Of each id, what its piece tells of sentences; each ``[V]``.

    Args:
        stops: it ends in `STOPS`, but for what closes: a sentence begins with the next word.
        breaks: it ends in `WIDE_STOPS`, but for what closes, or holds a line end: a sentence begins with what
            follows.
        passed: it is white space, closing brackets or stops: it goes with what is before it.
        quotes: it is quotes alone.
        spaced: white space stands at its beginning, or it is said to begin a word.
        spacing: white space stands at its end: what follows begins a word.
    """

    stops: NDArray[np.bool_]
    breaks: NDArray[np.bool_]
    passed: NDArray[np.bool_]
    quotes: NDArray[np.bool_]
    spaced: NDArray[np.bool_]
    spacing: NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "SentenceSigns":
        """Those of a tokenizer's pieces."""
        pieces = [piece.decode("utf-8", "replace") for piece in tokenizer.model.pieces]
        bodies = [piece.strip() for piece in pieces]
        ends = [body.rstrip(BRACKETS + QUOTES + " ")[-1:] for body in bodies]
        ordinary = np.arange(len(pieces)) >= len(SPECIALS)
        quotes = _each(body != "" and not body.strip(QUOTES) for body in bodies)
        passed = _each(not body.strip(STOPS + WIDE_STOPS + BRACKETS + QUOTES) for body in bodies)
        spaced, spacing = _each(p[:1].isspace() for p in pieces), _each(p[-1:].isspace() for p in pieces)
        # An unknown word is one; an unknown character may stand inside a word.
        spaced[SPECIALS.unknown] = tokenizer.model.config.kind in {"word", "wordpiece"}
        spacing[SPECIALS.end] = True
        return cls(
            stops=_each(end != "" and end in STOPS for end in ends),
            breaks=_each(
                (end != "" and end in WIDE_STOPS) or "\n" in p for end, p in zip(ends, pieces, strict=True)
            ),
            passed=passed & ~quotes & ordinary,
            quotes=quotes,
            spaced=spaced,
            spacing=spacing,
        )

    @classmethod
    def made_up(cls, vocab_size: int) -> "SentenceSigns":
        """Those of a vocabulary of words of which every twentieth ends a sentence."""
        stops, none = np.arange(vocab_size) % 20 == 0, np.zeros(vocab_size, dtype=bool)
        return cls(stops=stops, breaks=none, passed=none, quotes=none, spaced=~none, spacing=none)


def _each(values: Iterable[bool]) -> NDArray[np.bool_]:
    return np.array(list(values), dtype=bool)
