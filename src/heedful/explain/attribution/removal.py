"""What the answer to one input becomes without the words that support it most, by a method.

As for a whole data set (`heedful.explain.attribution.faithfulness`), words are removed in another way than
the method does it, and compared with as many of the other words: all choices of them, or some at random. Only
words with a positive score are removed. Parts of an answer are judged one by one; the
words of a written text together, by their mean log-probability. Answers about single words or patches (tags,
masks) are not judged.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

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
"""Number of replacements of each word that supports the answer."""

CHOICES = 50
"""Maximum number of choices of other words; if there are more, they are drawn at random."""


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
    """Return what the answer becomes without the words that support it most; None if it cannot be judged.

    Args:
        run: the run.
        measured: the input.
        judges: of the view (`heedful.explain.views.View`).
        scores: ``[answers][words]``; None: the word takes the answer with it.

    Returns:
        The ``judge``, ``leaving out`` or ``replacement``; the ``measure``; the number of ``draws``; a
        ``note`` if some words are not removed, or not by the first judge; and ``parts``, each with its
        ``answer``, its ``value``, the number of words that are ``supporting`` it, and ``steps``: the indices
        of the removed ``words``, the ``value`` without them, the mean without as many other words,
        ``random``, None if there are not as many, and the number of these ``choices``. If the answer is a
        label, parts and steps also have the most probable ``label``, its ``output`` and ``probability``.
    """
    parts = _parts(measured)
    removable = _removable(measured)
    if not parts or len(removable) < 2:
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
        _judged(measured, words, part, removable, each[removable])
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


def _sizes(n: int, supporting: int) -> list[int]:
    """Return how many of n words are removed: no more than support the answer, and not all."""
    most = min(supporting, n - 1)
    return sorted({min(size, most) for size in (*FEW, math.ceil(SHARE * n))} - {0})


def _choices(others: NDArray[np.intp], size: int) -> list[list[int]]:
    """Return the choices of as many other words: all, or `CHOICES` different ones at random."""
    if math.comb(len(others), size) <= CHOICES:
        return [[*map(int, chosen)] for chosen in combinations(others, size)]
    generator, found = np.random.default_rng(size), dict[tuple[int, ...], None]()
    while len(found) < CHOICES:
        found[tuple(sorted(generator.choice(others, size, replace=False).tolist()))] = None
    return [[*chosen] for chosen in found]


def _measure(measured: Measured) -> str:
    targets = measured.prepared.targets
    if targets.numbers is not None:
        return "number"
    return "mean log-probability" if targets.are_tokens else "probability"


def _judged(
    measured: Measured,
    words: Replacements | None,
    part: Part,
    removable: NDArray[np.intp],
    scores: NDArray[np.float64],
) -> JsonMapping:
    """Return a part of an answer without the words with the highest scores, and without others.

    Args:
        measured: the input.
        words: what replaces words; None: they are left out.
        part: the part of the answer.
        removable: the words that may be removed.
        scores: their scores.
    """
    draws = DRAWS if words is not None else 1
    order = removable[np.argsort(-scores, kind="stable")]
    supporting = int((scores > 0).sum())
    edits, places = [edit_of(measured.features, (), words, 0)], list[tuple[int, range, range]]()
    for size in _sizes(len(order), supporting):
        top = order[:size].tolist()
        start = len(edits)
        edits += [edit_of(measured.features, top, words, draw) for draw in range(draws)]
        middle = len(edits)
        for n, chosen in enumerate(_choices(np.sort(order[size:]), size)):
            edits.append(edit_of(measured.features, chosen, words, n % DRAWS))
        places.append((size, range(start, middle), range(middle, len(edits))))
    labels, answers = measured.prepared.targets.labels, measured.prepared.targets.answers
    probabilities = measured.label_probabilities(edits) if labels else None
    if probabilities is not None:
        values = probabilities[:, int(answers[0])]
    else:
        values = measured.values(edits, as_probability=True)[:, part.indices].mean(1)
        values = values.exp() if _measure(measured) == "probability" else values
    steps = []
    for size, without, others in places:
        step: JsonObject = {
            "words": order[:size].tolist(),
            "value": _rounded(values[without].mean().item()),
            "random": _rounded(values[others].mean().item()) if others else None,
            "choices": len(others),
        }
        if probabilities is not None:
            step["label"] = _most_probable(labels, probabilities[without].mean(0))
        steps.append(step)
    found: JsonObject = {"answer": part.name, "value": _rounded(values[0].item()), "supporting": supporting}
    if probabilities is not None:
        found["label"] = _most_probable(labels, probabilities[0])
    return {**found, "steps": steps}


def _most_probable(labels: Sequence[str], probabilities: Tensor) -> JsonMapping:
    highest, index = probabilities.max(0)
    return {"output": labels[int(index)], "probability": _rounded(highest.item())}


def _rounded(value: float) -> float:
    """Round to 6 significant digits."""
    return float(f"{value:.6g}")
