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
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

JUDGED_BY_REPLACEMENT = {"occlusion": True, "replacement": False, "integrated-gradients": True}
"""Views whose scores have a sign, and whether replacement is another way than their own to remove words."""

MOST_PARTS = 8
"""Maximum number of labels or tags of an answer that are judged."""

FEW = (1, 3)
"""Numbers of words that are removed."""

SHARE = 0.2
"""Share of words that are removed too."""

DRAWS = 10
"""Number of random choices of words, and of replacements of each word."""


def judge_name(by_replacement: bool) -> str:
    """Return how words are removed, for tables and messages."""
    return "replacement" if by_replacement else "leaving out"


class Part(NamedTuple):
    """Some parts of an answer that are judged together.

    Args:
        name: as it is shown; empty for the words of a written text.
        indices: of the parts of the answer.
    """

    name: str
    indices: list[int]


def with_removal(run: LoadedRun, prepared: ModelInput, name: str, values: JsonObject) -> JsonObject:
    """Return the values of a view of attribution with ``removal``, if the input and its answer allow it.

    Args:
        run: the run.
        prepared: the input.
        name: of the view.
        values: its values (`heedful.explain.views.attributed.attribution_values`).

    Returns:
        Further ``removal``: the ``judge``, ``leaving out`` or ``replacement``; the ``measure``; the number of
        ``draws``; a ``note`` if some words are not removed, or not as the view asks for; and ``parts``, each
        with its ``answer``, its ``value`` and ``steps``: the indices of the removed ``words``, the ``value``
        without them, and the mean without as many words at ``random``.
    """
    measured = Measured.of(run.model, prepared)
    parts = _parts(measured)
    removable = _removable(measured)
    sizes = _sizes(len(removable))
    if not parts or not sizes:
        return values
    words, notes = None, []
    if len(removable) < len(measured.features):
        notes.append("the first and the last word of the answer are not removed")
    if JUDGED_BY_REPLACEMENT[name]:
        try:
            words = training_replacements(run, measured)
        except RequestError as error:
            if name == "occlusion":
                return values
            notes.append(str(error).removesuffix("; use view occlusion"))
    scores = np.array(values["scores"], dtype=float)
    judged = [
        _judged(measured, words, part, removable[np.argsort(-each[removable], kind="stable")], sizes)
        for part in parts
        for each in [scores[part.indices].sum(0)]
    ]
    removal = {
        "judge": judge_name(words is not None),
        "measure": _measure(measured),
        "draws": DRAWS,
        **({"note": "; ".join(notes)} if notes else {}),
        "parts": judged,
    }
    return {**values, "removal": removal}


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
