"""Corpora that come with the package: they are generated, always the same, and need no download."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from heedful.data.corpora import phrasebook, repeats, reverse
from heedful.data.corpora.grammar import Pair
from heedful.errors import RequestError, nearest

CORPORA: dict[str, Callable[..., Iterator[Pair] | Sequence[Pair]]] = {
    "phrasebook-ta": partial(phrasebook.phrasebook, "ta"),
    "phrasebook-de": partial(phrasebook.phrasebook, "de"),
    "reverse": partial(reverse.reverse, task="reverse"),
    "copy": partial(reverse.reverse, task="copy"),
    "sort": partial(reverse.reverse, task="sort"),
    "repeats": partial(repeats.repeats, shortest=4, longest=16),
    "repeats-long": partial(repeats.repeats, shortest=17, longest=32),
}


def open_corpus(name: str, split: str, *, seed: int = 0) -> Iterator[dict[str, str]]:
    """Return the rows of a built-in corpus.

    Args:
        name: a key of `CORPORA`.
        split: ``train``, ``valid`` or ``test``.
        seed: which of the possible corpora; 0 is the one that published scores refer to.

    Returns:
        Rows with the columns ``source``, ``target``, ``alignment`` (Pharaoh format, ``0-0 1-2``),
        ``source_tags`` and ``target_tags`` (one tag a word, separated by blanks).

    Raises:
        RequestError: for a name or split that is not there.
    """
    if name not in CORPORA:
        known = ", ".join(CORPORA)
        raise RequestError(f"there is no built-in corpus {name!r}{nearest(name, CORPORA)}; there are {known}")
    return map(row, CORPORA[name](split, seed=seed))


def row(pair: Pair) -> dict[str, str]:
    """Return a pair as a row of text columns."""
    return {
        "source": pair.source,
        "target": pair.target,
        "alignment": " ".join(f"{i}-{j}" for i, j in pair.alignment),
        "source_tags": " ".join(pair.source_tags),
        "target_tags": " ".join(pair.target_tags),
    }
