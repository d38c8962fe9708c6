"""Encode long texts in chunks: the same tokens as for the whole text, in bounded memory."""

import re
from collections.abc import Iterator

from heedful.text.tokenizer import Tokenizer

PIECE = 100_000
"""Approximate number of characters per chunk."""

# A single space between two letters or digits is a word boundary for every kind, whatever precedes it.
_BETWEEN = re.compile(r"(?<=[^\W_]) (?=[^\W_])")


def cut(text: str, size: int = PIECE) -> Iterator[str]:
    """Split a text into chunks of ``size`` characters or slightly more, before spaces between words.

    All chunks but the first begin with the space. If no such space follows, the rest is one chunk.
    """
    start = 0
    while found := _BETWEEN.search(text, start + size):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def encode_long(tokenizer: Tokenizer, text: str, size: int = PIECE) -> Iterator[list[int]]:
    """Encode a text in chunks; concatenated, they equal ``tokenizer.encode(text)``.

    This holds if the tokenizer has no pre-processing, or only normalization and lowercasing, which do not
    look across such spaces.
    """
    # A model that prepends a space to every text would see two of them.
    space = tokenizer.model.space
    for number, chunk in enumerate(cut(text, size)):
        yield tokenizer.encode(chunk.removeprefix(space) if number else chunk)
