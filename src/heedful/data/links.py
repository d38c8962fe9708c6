"""Links between the words of a sentence pair, as text (Pharaoh form): which words stand for which."""

import re
from typing import NamedTuple

from heedful.errors import DataError

Link = tuple[int, int]
"""The places of a source word and of a target word, from 0."""

_LINK = re.compile(r"([0-9]+)([-p?])([0-9]+)", re.ASCII)


class Links(NamedTuple):
    """The links of a sentence pair.

    Args:
        sure: ``i-j``.
        possible: ``ipj`` or ``i?j``; those that are marked as merely possible, without the sure ones.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]


def read_links(text: str, where: object, first: int = 0) -> Links:
    """Read ``0-0 1p2 2-1``; a text without a word has no links.

    Args:
        text: one sentence pair's.
        where: its place, for messages.
        first: what the text calls the first word, 0 or 1.

    Raises:
        DataError: ``where: what is wrong``.
    """
    sure: set[Link] = set()
    possible: set[Link] = set()
    for word in text.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise DataError(f"{where}: {word!r} is no link; write i-j (sure) or ipj (possible), or i?j")
        source, target = int(match[1]) - first, int(match[3]) - first
        if min(source, target) < 0:
            raise DataError(f"{where}: {word!r} names a word before the first, which is {first}")
        (sure if match[2] == "-" else possible).add((source, target))
    return Links(frozenset(sure), frozenset(possible))


def check_links(
    links: Links, n_source: int, n_target: int, where: object, *, first: int = 0, hint: str = ""
) -> None:
    """Refuse a link that points outside of its sentence pair.

    Args:
        links: of the pair.
        n_source: words of the source.
        n_target: words of the target.
        where: its place, for messages.
        first: what the file calls the first word.
        hint: stands at the end of the message.

    Raises:
        DataError: with the first such link, and both numbers of words.
    """
    for source, target in sorted(links.sure | links.possible):
        if source >= n_source or target >= n_target:
            raise DataError(
                f"{where}: the link {source + first}-{target + first} points outside of its sentence pair, "
                f"which has {n_source} source and {n_target} target words, counted from {first}{hint}"
            )
