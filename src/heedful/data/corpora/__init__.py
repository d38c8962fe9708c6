"""Corpora that come with the package, generated or in a dependency: always the same, without a download."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from heedful.data.corpora import digits, phrasebook, reverse
from heedful.data.corpora.grammar import Pair
from heedful.errors import RequestError, nearest


def _written(pairs: Callable[..., Iterator[Pair] | Sequence[Pair]], split: str, seed: int) -> Iterator[Any]:
    return map(row, pairs(split, seed=seed))


CORPORA: dict[str, Callable[[str, int], Iterator[dict[str, Any]]]] = {
    "phrasebook-ta": partial(_written, partial(phrasebook.phrasebook, "ta")),
    "phrasebook-de": partial(_written, partial(phrasebook.phrasebook, "de")),
    "reverse": partial(_written, partial(reverse.reverse, task="reverse")),
    "copy": partial(_written, partial(reverse.reverse, task="copy")),
    "sort": partial(_written, partial(reverse.reverse, task="sort")),
    "digits": digits.digits,
}


def open_corpus(name: str, split: str, *, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Return the rows of a built-in corpus.

    Args:
        name: a key of `CORPORA`.
        split: ``train``, ``valid`` or ``test``.
        seed: which of the possible corpora; 0 is the one that published scores refer to.

    Returns:
        Of texts, rows with the columns ``source``, ``target``, ``alignment`` (Pharaoh format, ``0-0 1-2``),
        ``source_tags`` and ``target_tags`` (one tag a word, separated by blanks); of pictures, with
        ``picture`` and ``label``.

    Raises:
        RequestError: for a name or split that is not there.
    """
    if name not in CORPORA:
        known = ", ".join(CORPORA)
        raise RequestError(f"there is no built-in corpus {name!r}{nearest(name, CORPORA)}; there are {known}")
    return CORPORA[name](split, seed)


def row(pair: Pair) -> dict[str, str]:
    """Return a pair as a row of text columns."""
    return {
        "source": pair.source,
        "target": pair.target,
        "alignment": " ".join(f"{i}-{j}" for i, j in pair.alignment),
        "source_tags": " ".join(pair.source_tags),
        "target_tags": " ".join(pair.target_tags),
    }
