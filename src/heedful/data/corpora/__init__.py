"""Built-in corpora, generated or included in a dependency: always the same, without a download."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from heedful.data.corpora import digits, phrasebook, repeats, reverse, scenes
from heedful.data.corpora.grammar import Pair
from heedful.data.corpora.questions import questions
from heedful.errors import RequestError, nearest
from heedful.typing import JsonObject


def _pair_rows(pairs: Callable[..., Iterator[Pair] | Sequence[Pair]], split: str, seed: int) -> Iterator[Any]:
    return map(row, pairs(split, seed=seed))


def _question_rows(split: str, seed: int, *, unanswerable: bool) -> Iterator[JsonObject]:
    return (question._asdict() for question in questions(split, seed, unanswerable=unanswerable))


CORPORA: dict[str, Callable[[str, int], Iterator[JsonObject]]] = {
    "phrasebook-ta": partial(_pair_rows, partial(phrasebook.phrasebook, "ta")),
    "phrasebook-de": partial(_pair_rows, partial(phrasebook.phrasebook, "de")),
    "phrasebook-questions": partial(_question_rows, unanswerable=False),
    "phrasebook-questions-unanswerable": partial(_question_rows, unanswerable=True),
    "reverse": partial(_pair_rows, partial(reverse.reverse, task="reverse")),
    "copy": partial(_pair_rows, partial(reverse.reverse, task="copy")),
    "sort": partial(_pair_rows, partial(reverse.reverse, task="sort")),
    "repeats": partial(_pair_rows, partial(repeats.repeats, shortest=4, longest=16)),
    "repeats-long": partial(_pair_rows, partial(repeats.repeats, shortest=17, longest=32)),
    "digits": digits.digits,
    "scenes": scenes.rows,
}


def open_corpus(name: str, split: str, *, seed: int = 0) -> Iterator[JsonObject]:
    """Return the rows of a built-in corpus.

    Args:
        name: a key of `CORPORA`.
        split: ``train``, ``valid`` or ``test``.
        seed: the seed of a generated corpus; published scores refer to 0.

    Returns:
        For sentence pairs, rows with the columns ``source``, ``target``, ``alignment`` (Pharaoh format,
        ``0-0 1-2``), ``source_tags`` and ``target_tags`` (one tag a word, separated by spaces); for
        questions, ``question``, ``passage``, ``answer`` and ``start`` (its first character in the passage);
        for images, ``image`` and ``label`` or ``caption``.

    Raises:
        RequestError: if there is no such corpus or split.
    """
    require_corpus(name)
    return CORPORA[name](split, seed)


def require_corpus(name: str) -> None:
    """Raise an error if a name is not in `CORPORA`.

    Raises:
        RequestError: lists the available names.
    """
    if name not in CORPORA:
        known = ", ".join(CORPORA)
        raise RequestError(f"there is no built-in corpus {name!r}{nearest(name, CORPORA)}; there are {known}")


def row(pair: Pair) -> dict[str, str]:
    """Return a pair as a row of text columns."""
    return {
        "source": pair.source,
        "target": pair.target,
        "alignment": " ".join(f"{i}-{j}" for i, j in pair.alignment),
        "source_tags": " ".join(pair.source_tags),
        "target_tags": " ".join(pair.target_tags),
    }
