"""Long texts, a piece at a time: the same tokens as of the whole, in bounded memory."""

import re
from collections.abc import Iterator

from heedful.text.tokenizer import Tokenizer

PIECE = 100_000
"""Characters of a piece, about."""

# A single space between two letters or digits: words of every kind end there, whatever comes before.
_BETWEEN = re.compile(r"(?<=[^\W_]) (?=[^\W_])")


def cut(text: str, size: int = PIECE) -> Iterator[str]:
    """Cut a text into pieces of ``size`` characters or a little more, before spaces between words.

    All pieces but the first begin with the space. Where no such space follows, the rest is one piece.
    """
    start = 0
    while found := _BETWEEN.search(text, start + size):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]


def encode_long(tokenizer: Tokenizer, text: str, size: int = PIECE) -> Iterator[list[int]]:
    """The ids of a text, in pieces; together they are ``tokenizer.encode(text)``.

    (Where the tokenizer has no pre-processing, that is: Unicode's normalisation and lower-casing look at
    neighbouring characters, but not across such spaces.)
    """
    # A model that puts a space before every text would have two of them there.
    space = tokenizer.model.space
    for number, piece in enumerate(cut(text, size)):
        yield tokenizer.encode(piece.removeprefix(space) if number else piece)
