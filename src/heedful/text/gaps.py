"""Encode the parts of a text around its gaps with the ids that they have in a text without gaps.

If pieces include the preceding space, the word that fills a gap brings its own space, and text that follows
a gap directly must not get one: ``the cat [MASK].`` is ``▁the ▁cat [MASK] .``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.text.subwords import CARRY_SPACES, first_space
from heedful.text.tokenizer import Tokenizer

_BREAK = "\n"  # a word boundary: pieces of the following text never include it


@dataclass(frozen=True)
class Around:
    """Token ids around the gaps of a text.

    Args:
        parts: the ids before the first gap, between the first and the second, ..., after the last.
        spaced: for each gap, whether its filling begins with a space (removed from the part before it).
    """

    parts: list[list[int]]
    spaced: list[bool]


def around_gaps(tokenizer: Tokenizer, parts: Sequence[str]) -> Around:
    """Encode the parts of a text that are separated by gaps.

    Raises:
        DataError: a part contains a lone surrogate, so it cannot be encoded as UTF-8.
    """
    n_gaps = len(parts) - 1
    if tokenizer.model.config.kind not in CARRY_SPACES:
        return Around(tokenizer.encode_batch(parts), [False] * n_gaps)
    spaced = [part.endswith(" ") for part in parts[:-1]]
    if n_gaps and not parts[0]:
        # The gap begins the text, and some kinds prepend a space to every text.
        spaced[0] = bool(first_space(tokenizer.model.config))
    texts = [part.removesuffix(" ") for part in parts[:-1]] + [parts[-1]]
    first, *others = texts
    return Around([tokenizer.encode(first), *(_following(tokenizer, text) for text in others)], spaced)


def _following(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode a text that follows a gap."""
    if not first_space(tokenizer.model.config):
        return tokenizer.encode(text)
    if text.startswith(" "):
        return tokenizer.encode(text[1:])  # `encode` prepends the space
    before, spelled = (" " + _BREAK).encode(), b""
    ids = tokenizer.encode(_BREAK + text) if text else []
    for number, i in enumerate(ids, start=1):
        spelled += tokenizer.model.pieces[i]
        if spelled == before:
            return ids[number:]
        if not before.startswith(spelled):
            break
    return tokenizer.encode(text)  # pre-processing changed the break, or a piece spans it
