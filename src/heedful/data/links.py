"""Word alignments of sentence pairs as text (Pharaoh format)."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from heedful.errors import DataError

ALIGNMENT = "alignment"
"""The column of word alignments."""

Link = tuple[int, int]
"""The positions of a source word and a target word, from 0."""

_LINK = re.compile(r"([0-9]+)([-p?])([0-9]+)", re.ASCII)


class Links(NamedTuple):
    """The links of a sentence pair.

    Args:
        sure: ``i-j``.
        possible: ``ipj`` or ``i?j``; only possible links, without the sure ones.
    """

    sure: frozenset[Link]
    possible: frozenset[Link]


def read_links(text: str, location: object, first: int = 0) -> Links:
    """Parse ``0-0 1p2 2-1``; an empty text has no links.

    Args:
        text: the links of one sentence pair.
        location: its location, for messages.
        first: the index of the first word in the text, 0 or 1.

    Raises:
        DataError: if the text is malformed.
    """
    sure: set[Link] = set()
    possible: set[Link] = set()
    for word in text.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise DataError(f"{location}: expected a link, i-j (sure), ipj or i?j (possible), got {word!r}")
        source, target = int(match[1]) - first, int(match[3]) - first
        if min(source, target) < 0:
            raise DataError(f"{location}: word indices must be at least {first}, got {word!r}")
        (sure if match[2] == "-" else possible).add((source, target))
    return Links(frozenset(sure), frozenset(possible))


def check_links(
    links: Links, n_source: int, n_target: int, location: object, *, first: int = 0, hint: str = ""
) -> None:
    """Check that all links are inside their sentence pair.

    Args:
        links: the links of the pair.
        n_source: the number of source words.
        n_target: the number of target words.
        location: the location of the pair, for messages.
        first: the index of the first word in the file, 0 or 1.
        hint: appended to the message.

    Raises:
        DataError: for the first link that is outside, with both numbers of words.
    """
    for source, target in sorted(links.sure | links.possible):
        if source >= n_source or target >= n_target:
            raise DataError(
                f"{location}: link {source + first}-{target + first} is outside its sentence pair, which has "
                f"{n_source} source and {n_target} target words, counted from {first}{hint}"
            )


def pharaoh(word_links: Iterable[Link]) -> str:
    """Return links in Pharaoh format, ``0-0 1-2``, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(word_links))
