"""Texts with gaps: what lies around them, as the ids that it has in a whole text.

Where pieces carry the space before them, a word that fills a gap brings its own, and what follows a gap
without a space must not get one: ``the cat [MASK].`` is ``▁the ▁cat [MASK] .``, as in a text without gaps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from heedful.text.subwords import CARRY_SPACES, first_space
from heedful.text.tokenizer import Tokenizer

_BREAK = "\n"  # words end there, so that pieces of what follows are not joined to it


@dataclass(frozen=True)
class Around:
    """What lies around the gaps of a text.

    Args:
        parts: the ids before the first gap, between the first and the second, ..., after the last.
        spaced: of each gap whether its filling begins with a space, which was taken from the part before it.
    """

    parts: list[list[int]]
    spaced: list[bool]


def around_gaps(tokenizer: Tokenizer, parts: Sequence[str]) -> Around:
    """The ids of a text's parts, between which its gaps are.

    Raises:
        DataError: a part holds a lone surrogate, so it has no UTF-8 form.
    """
    n_gaps = len(parts) - 1
    if tokenizer.model.config.kind not in CARRY_SPACES:
        return Around(tokenizer.encode_batch(parts), [False] * n_gaps)
    spaced = [part.endswith(" ") for part in parts[:-1]]
    if n_gaps and not parts[0]:
        # It begins the text, before which some kinds put a space.
        spaced[0] = bool(first_space(tokenizer.model.config))
    texts = [part.removesuffix(" ") for part in parts[:-1]] + [parts[-1]]
    first, *others = texts
    return Around([tokenizer.encode(first), *(_following(tokenizer, text) for text in others)], spaced)


def _following(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text that follows a gap."""
    if not first_space(tokenizer.model.config):
        return tokenizer.encode(text)
    if text.startswith(" "):
        return tokenizer.encode(text[1:])  # the space is put before it anyway
    before, spelled = (" " + _BREAK).encode(), b""
    ids = tokenizer.encode(_BREAK + text) if text else []
    for number, i in enumerate(ids, start=1):
        spelled += tokenizer.model.pieces[i]
        if spelled == before:
            return ids[number:]
        if not before.startswith(spelled):
            break
    return tokenizer.encode(text)  # pre-processing made another text of it, or a piece spans the break
