"""Encode a text in parts: a long text in chunks, in bounded memory, and the text around masks.

Each part gets the ids that it has in the whole text. If pieces include the preceding space, the word that
fills a mask brings its own space, and text that follows a mask directly must not get one: ``the cat [MASK].``
is ``▁the ▁cat [MASK] .``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from heedful.text.subwords import CARRY_SPACES, first_space
from heedful.text.tokenizer import Tokenizer

CHUNK_SIZE = 100_000
"""Approximate number of characters per chunk."""

# A single space between two letters or digits is a word boundary for every kind, whatever precedes it.
_BETWEEN = re.compile(r"(?<=[^\W_]) (?=[^\W_])")

_BREAK = "\n"  # a word boundary: pieces of the following text never include it


def split_text(text: str, size: int = CHUNK_SIZE) -> Iterator[str]:
    """Split a text into chunks of ``size`` characters or slightly more, before spaces between words.

    All chunks but the first begin with the space. If no such space follows, the rest is one chunk.
    """
    start = 0
    while match := _BETWEEN.search(text, start + size):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]


def encode_long(tokenizer: Tokenizer, text: str, size: int = CHUNK_SIZE) -> Iterator[list[int]]:
    """Encode a text in chunks; concatenated, they equal ``tokenizer.encode(text)``.

    This holds if the tokenizer has no pre-processing, or only normalisation and lowercasing, which do not
    look across such spaces.
    """
    # A model that prepends a space to every text would see two of them.
    space = tokenizer.model.space
    for number, chunk in enumerate(split_text(text, size)):
        yield tokenizer.encode(chunk.removeprefix(space) if number else chunk)


class AroundMasks(NamedTuple):
    """Token ids around the masks of a text.

    Args:
        parts: the ids before the first mask, between the first and the second, ..., after the last.
        spaced: for each mask, whether its filling begins with a space (removed from the part before it).
    """

    parts: list[list[int]]
    spaced: list[bool]


def around_masks(tokenizer: Tokenizer, parts: Sequence[str]) -> AroundMasks:
    """Encode the parts of a text that are separated by masks.

    Raises:
        DataError: a part contains a lone surrogate, so it cannot be encoded as UTF-8.
    """
    n_masks = len(parts) - 1
    if tokenizer.model.config.kind not in CARRY_SPACES:
        return AroundMasks(tokenizer.encode_batch(parts), [False] * n_masks)
    spaced = [part.endswith(" ") for part in parts[:-1]]
    if n_masks and not parts[0]:
        # The mask begins the text, and some kinds prepend a space to every text.
        spaced[0] = bool(first_space(tokenizer.model.config))
    texts = [part.removesuffix(" ") for part in parts[:-1]] + [parts[-1]]
    first, *others = texts
    return AroundMasks(
        [tokenizer.encode(first), *(_encode_after_mask(tokenizer, text) for text in others)], spaced
    )


def _encode_after_mask(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode a text that follows a mask."""
    if not first_space(tokenizer.model.config):
        return tokenizer.encode(text)
    if text.startswith(" "):
        return tokenizer.encode(text[1:])  # `encode` prepends the space
    prefix, decoded = (" " + _BREAK).encode(), b""
    ids = tokenizer.encode(_BREAK + text) if text else []
    for number, i in enumerate(ids, start=1):
        decoded += tokenizer.model.pieces[i]
        if decoded == prefix:
            return ids[number:]
        if not prefix.startswith(decoded):
            break
    return tokenizer.encode(text)  # pre-processing changed the break, or a piece spans it
