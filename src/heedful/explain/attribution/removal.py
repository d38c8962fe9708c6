"""What the answer to one input becomes without the words that a method ranks first.

As for a whole data set (`heedful.explain.attribution.faithfulness`), words are removed in another way than
the method does it, and compared with as many words at random. Parts of an answer are judged one by one; the
words of a written text together, by their mean log-probability. Answers about single words or patches (tags,
masks) are not judged.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.occlusion import edit_of
from heedful.explain.attribution.replacements import Replacements, training_replacements
from heedful.explain.views import LEAVING_OUT, REPLACEMENT
from heedful.runs.loading import LoadedRun
from heedful.typing import JsonMapping, JsonObject

MOST_PARTS = 8
"""Maximum number of labels or tags of an answer that are judged."""

FEW = (1, 3)
"""Numbers of words that are removed."""

SHARE = 0.2
"""Share of words that are removed too."""

DRAWS = 10
"""Number of random choices of words, and of replacements of each word."""


class Part(NamedTuple):
    """Some parts of an answer that are judged together.

    Args:
        name: as it is shown; empty for the words of a written text.
        indices: of the parts of the answer.
    """

    name: str
    indices: list[int]


def removal(
    run: LoadedRun, measured: Measured, judges: Sequence[str], scores: Sequence[Sequence[float | None]]
) -> JsonObject | None:
    """Return what the answer becomes without the words with the highest scores; None if it cannot be judged.

    Args:
        run: the run.
        measured: the input.
        judges: of the view (`heedful.explain.views.View`).
        scores: ``[answers][words]``; None: the word takes the answer with it.

    Returns:
        The ``judge``, ``leaving out`` or ``replacement``; the ``measure``; the number of ``draws``; a
        ``note`` if some words are not removed, or not by the first judge; and ``parts``, each with its
        ``answer``, its ``value`` and ``steps``: the indices of the removed ``words``, the ``value`` without
        them, and the mean without as many words at ``random``.
    """
    parts = _parts(measured)
    removable = _removable(measured)
    sizes = _sizes(len(removable))
    if not parts or not sizes:
        return None
    words, notes = None, []
    if len(removable) < len(measured.features):
        notes.append("the first and the last word of the answer are not removed")
    if judges[0] == REPLACEMENT:
        try:
            words = training_replacements(run, measured)
        except RequestError as error:
            if LEAVING_OUT not in judges:
                return None
            notes.append(str(error).removesuffix("; use view occlusion"))
    ranked = np.array(scores, dtype=float)
    judged = [
        _judged(measured, words, part, removable[np.argsort(-each[removable], kind="stable")], sizes)
        for part in parts
        for each in [ranked[part.indices].sum(0)]
    ]
    return {
        "judge": LEAVING_OUT if words is None else REPLACEMENT,
        "measure": _measure(measured),
        "draws": DRAWS,
        **({"note": "; ".join(notes)} if notes else {}),
        "parts": judged,
    }


def _parts(measured: Measured) -> list[Part]:
    answers, targets = measured.answers, measured.prepared.targets
    if targets.are_tokens:
        return [Part("", [*range(len(answers))])]
    if targets.positions and not targets.are_positions:
        return []
    return [Part(name, [i]) for i, name in enumerate(answers.names[:MOST_PARTS])]


def _removable(measured: Measured) -> NDArray[np.intp]:
    """Return the features without which the answer exists: all but the ends of a span."""
    targets = measured.prepared.targets
    ends = {*targets.answers.tolist()} if targets.are_positions else set()
    return np.array([i for i, tokens in enumerate(measured.features.tokens) if not ends.intersection(tokens)])


def _sizes(n: int) -> list[int]:
    """Return how many of n words are removed: not all, since there is no other choice of all."""
    return sorted(size for size in {*FEW, math.ceil(SHARE * n)} if size < n)


def _measure(measured: Measured) -> str:
    targets = measured.prepared.targets
    if targets.numbers is not None:
        return "number"
    return "mean log-probability" if targets.are_tokens else "probability"


def _judged(
    measured: Measured,
    words: Replacements | None,
    part: Part,
    order: NDArray[np.intp],
    sizes: Sequence[int],
) -> JsonMapping:
    """Return a part of an answer without the first words of an order, and without words at random."""
    draws = DRAWS if words is not None else 1
    edits = [edit_of(measured.features, (), words, 0)]
    for size in sizes:
        edits += [edit_of(measured.features, order[:size].tolist(), words, draw) for draw in range(draws)]
        for draw in range(DRAWS):
            chosen = np.random.default_rng((size, draw)).permutation(np.sort(order))[:size]
            edits.append(edit_of(measured.features, chosen.tolist(), words, draw))
    values = measured.values(edits, as_probability=True)[:, part.indices].mean(1)
    if _measure(measured) == "probability":
        values = values.exp()
    steps = [
        {
            "words": order[:size].tolist(),
            "value": _rounded(found[:draws].mean().item()),
            "random": _rounded(found[draws:].mean().item()),
        }
        for size, found in zip(sizes, values[1:].view(len(sizes), -1), strict=True)
    ]
    return {"answer": part.name, "value": _rounded(values[0].item()), "steps": steps}


def _rounded(value: float) -> float:
    """Round to 6 significant digits."""
    return float(f"{value:.6g}")
