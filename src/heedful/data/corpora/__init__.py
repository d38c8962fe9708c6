"""Corpora that come with the package: they are generated, always the same, and need no download."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from heedful.data.corpora import phrasebook, reverse
from heedful.data.corpora.grammar import Pair
from heedful.data.corpora.questions import Question, questions
from heedful.errors import RequestError, nearest

Example = Pair | Question
CORPORA: dict[str, Callable[..., Iterator[Example] | Sequence[Example]]] = {
    "phrasebook-ta": partial(phrasebook.phrasebook, "ta"),
    "phrasebook-de": partial(phrasebook.phrasebook, "de"),
    "phrasebook-questions": questions,
    "phrasebook-questions-unanswerable": partial(questions, unanswerable=True),
    "reverse": partial(reverse.reverse, task="reverse"),
    "copy": partial(reverse.reverse, task="copy"),
    "sort": partial(reverse.reverse, task="sort"),
}


def open_corpus(name: str, split: str, *, seed: int = 0) -> Iterator[dict[str, str]]:
    """Return the rows of a built-in corpus.

    Args:
        name: a key of `CORPORA`.
        split: ``train``, ``valid`` or ``test``.
        seed: which of the possible corpora; 0 is the one that published scores refer to.

    Returns:
        Rows with the columns ``source``, ``target``, ``alignment`` (Pharaoh format, ``0-0 1-2``),
        ``source_tags`` and ``target_tags`` (one tag a word, separated by blanks); of questions
        ``question``, ``passage``, ``answer`` and ``start`` (its first character in the passage).

    Raises:
        RequestError: for a name or split that is not there.
    """
    if name not in CORPORA:
        known = ", ".join(CORPORA)
        raise RequestError(f"there is no built-in corpus {name!r}{nearest(name, CORPORA)}; there are {known}")
    return map(row, CORPORA[name](split, seed=seed))


def row(example: Example) -> dict[str, str]:
    """Return a pair or a question as a row of text columns."""
    if isinstance(example, Question):
        return example._asdict()
    pair = example
    return {
        "source": pair.source,
        "target": pair.target,
        "alignment": " ".join(f"{i}-{j}" for i, j in pair.alignment),
        "source_tags": " ".join(pair.source_tags),
        "target_tags": " ".join(pair.target_tags),
    }
