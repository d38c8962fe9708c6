"""Sentence boundaries as far as single pieces show them: tables over a vocabulary.

A sentence ends with . ! ? or …, optionally followed by closing quotes and brackets, and the next one begins
with the next word; or it ends with 。！？, after which no space is needed; or at the end of a line.
Abbreviations are not recognised: a sentence begins after "Dr.". Word and WordPiece vocabularies lose white
space: there every piece that does not continue a word begins one, so a decimal point also ends a sentence,
and line ends are not seen. Of characters that are encoded as bytes, only ASCII is recognised.
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
"""Characters that only close."""
QUOTES = "\"'“«"
"""Characters that open or close: they close if no white space precedes them."""


@dataclass(frozen=True)
class SentenceSigns:
    """Sentence-boundary properties of the piece of each id; each ``[V]``.

    Args:
        stops: the piece ends in `STOPS`, closing characters ignored: a sentence begins with the next word.
        breaks: the piece ends in `WIDE_STOPS`, closing characters ignored, or contains a line end: a sentence
            begins with the next piece.
        passed: the piece is white space, closing brackets or stops, and belongs to what precedes it.
        quotes: the piece consists of quotes only.
        spaced: the piece begins with white space, or begins a word.
        spacing: the piece ends with white space: the next piece begins a word.
    """

    stops: NDArray[np.bool_]
    breaks: NDArray[np.bool_]
    passed: NDArray[np.bool_]
    quotes: NDArray[np.bool_]
    spaced: NDArray[np.bool_]
    spacing: NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "SentenceSigns":
        """Compute the properties of a tokenizer's pieces."""
        pieces = [piece.decode("utf-8", "replace") for piece in tokenizer.model.pieces]
        bodies = [piece.strip() for piece in pieces]
        ends = [body.rstrip(BRACKETS + QUOTES + " ")[-1:] for body in bodies]
        ordinary = np.arange(len(pieces)) >= len(SPECIALS)
        quotes = _bool_array(body != "" and not body.strip(QUOTES) for body in bodies)
        passed = _bool_array(not body.strip(STOPS + WIDE_STOPS + BRACKETS + QUOTES) for body in bodies)
        spaced, spacing = (
            _bool_array(piece[:1].isspace() for piece in pieces),
            _bool_array(piece[-1:].isspace() for piece in pieces),
        )
        # <unk> is a whole word for these kinds; for the others it may be a character within a word.
        spaced[SPECIALS.unknown] = tokenizer.model.config.kind in {"word", "wordpiece"}
        spacing[SPECIALS.end] = True
        return cls(
            stops=_bool_array(end != "" and end in STOPS for end in ends),
            breaks=_bool_array(
                (end != "" and end in WIDE_STOPS) or "\n" in piece
                for end, piece in zip(ends, pieces, strict=True)
            ),
            passed=passed & ~quotes & ordinary,
            quotes=quotes,
            spaced=spaced,
            spacing=spacing,
        )

    @classmethod
    def synthetic(cls, vocab_size: int) -> "SentenceSigns":
        """Return the properties of a made-up vocabulary in which every twentieth word ends a sentence."""
        stops, all_false = np.arange(vocab_size) % 20 == 0, np.zeros(vocab_size, dtype=bool)
        return cls(
            stops=stops,
            breaks=all_false,
            passed=all_false,
            quotes=all_false,
            spaced=~all_false,
            spacing=all_false,
        )


def _bool_array(values: Iterable[bool]) -> NDArray[np.bool_]:
    return np.array(list(values), dtype=bool)
