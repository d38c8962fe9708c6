"""Built-in corpora, generated or included in a dependency: always the same, without a download."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from heedful.data.corpora import phrasebook, questions, scenes, sequences
from heedful.data.corpora.grammar import SPLITS, Pair
from heedful.data.images import LazyImage
from heedful.errors import RequestError, nearest
from heedful.typing import JsonObject


def _pairs(split: str, seed: int, *, generate: Callable[..., Iterable[Pair]]) -> Iterator[JsonObject]:
    return map(row, generate(split=split, seed=seed))


def _questions(split: str, seed: int, *, unanswerable: bool) -> Iterator[JsonObject]:
    return (question._asdict() for question in questions.questions(split, seed, unanswerable=unanswerable))


def digits(split: str, seed: int = 0) -> Iterator[JsonObject]:
    """Yield the 1,797 grey handwritten digits of 8 x 8 pixels that are included in scikit-learn.

    Source: Alpaydin and Kaynak 1998, "Optical recognition of handwritten digits" (the test part of the UCI
    data set). They are in the order of collection, so the last ones were written by other people than the
    first: the splits are contiguous, without shuffling. The seed has no effect.

    Returns:
        Rows with an ``image`` and a ``label``, from 0 to 9.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    brightest = 16  # each pixel counts the dark points in a 4 x 4 square
    pixels = np.rint(data.images * (255 / brightest)).astype(np.uint8)
    numbers = {"train": range(1197), "valid": range(1197, 1497), "test": range(1497, 1797)}[split]
    return ({"image": LazyImage(pixels[i], f"digits {i + 1}"), "label": str(data.target[i])} for i in numbers)


CORPORA: dict[str, Callable[[str, int], Iterator[JsonObject]]] = {
    "phrasebook-ta": partial(_pairs, generate=partial(phrasebook.phrasebook, "ta")),
    "phrasebook-de": partial(_pairs, generate=partial(phrasebook.phrasebook, "de")),
    "phrasebook-questions": partial(_questions, unanswerable=False),
    "phrasebook-questions-unanswerable": partial(_questions, unanswerable=True),
    "reverse": partial(_pairs, generate=partial(sequences.reverse, task="reverse")),
    "copy": partial(_pairs, generate=partial(sequences.reverse, task="copy")),
    "sort": partial(_pairs, generate=partial(sequences.reverse, task="sort")),
    "repeats": partial(_pairs, generate=partial(sequences.repeats, shortest=4, longest=16)),
    "repeats-long": partial(_pairs, generate=partial(sequences.repeats, shortest=17, longest=32)),
    "digits": digits,
    "scenes": scenes.rows,
    "scene-masks": scenes.masked_rows,
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
        for images, ``image`` and ``label``, ``caption`` or ``mask``.

    Raises:
        RequestError: if there is no such corpus or split.
    """
    require_corpus(name)
    if split not in SPLITS:
        splits = ", ".join(map(repr, SPLITS))
        raise RequestError(
            f"{name}: unknown split {split!r}{nearest(split, SPLITS)}; expected one of {splits}"
        )
    return CORPORA[name](split, seed)


def require_corpus(name: str) -> None:
    """Raise an error if a name is not in `CORPORA`.

    Raises:
        RequestError: lists the available names.
    """
    if name not in CORPORA:
        names = ", ".join(CORPORA)
        raise RequestError(
            f"unknown built-in corpus {name!r}{nearest(name, CORPORA)}; expected one of {names}"
        )


def row(pair: Pair) -> dict[str, str]:
    """Return a pair as a row of text columns."""
    return {
        "source": pair.source,
        "target": pair.target,
        "alignment": " ".join(f"{i}-{j}" for i, j in pair.alignment),
        "source_tags": " ".join(pair.source_tags),
        "target_tags": " ".join(pair.target_tags),
    }
