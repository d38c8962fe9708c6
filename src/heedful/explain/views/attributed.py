"""Values and drawings that the views of attribution share: a number for each word and part of the answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from heedful.explain.attribution.measure import Measured
from heedful.explain.drawing.matrix import on_grid
from heedful.explain.drawings import Drawing, Heat, PatchPanel, PatchValues, Table, TokenValues
from heedful.explain.views.shared import rounded_or_none
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

STRONGEST = 4
"""Number of words named for and against a part of an answer."""

MOST_PANELS = 6
"""Maximum number of parts of an answer that are drawn over an image."""

SIGNS = "positive: it supports the answer; negative: it speaks against it"


def attribution_values(measured: Measured, scores: Float[Tensor, "features answers"]) -> JsonObject:
    """Return the JSON values of an attribution: see `heedful.explain.views.occlusion.compute`."""
    features, answers = measured.features, measured.answers
    return {
        "side": features.axis,
        "unit": measured.unit,
        "words": [*features.names],
        "answers": [*answers.names],
        "about": [*answers.words],
        "values": [*map(rounded_or_none, measured.values([{}])[0].tolist())],
        "scores": [[*map(rounded_or_none, row)] for row in scores.T.tolist()],
    }


def attribution_drawings(
    explanation: "Explanation", values: JsonMapping, title: str, note: str
) -> list[Drawing]:
    """Return bars by word for an answer, a matrix for an answer of several parts, or maps over an image.

    Args:
        explanation: the explanation.
        values: of the view.
        title: what the numbers are.
        note: below the drawing.
    """
    axis, words, unit = explanation.axes[values["side"]], values["words"], values["unit"]
    names, scores = part_names(values), np.array(values["scores"], dtype=float)
    if axis.grid is not None:
        panels = [
            PatchPanel(name, on_grid([0.0] * axis.before + [*np.nan_to_num(row)], axis))
            for name, row in zip(names[:MOST_PANELS], scores, strict=False)
        ]
        return [PatchValues(f"{title}: {unit}", values["side"], panels, apart=True, note=note)]
    if len(names) == 1:
        title = f"{title}: {unit} {names[0]}" if unit == "number" else f"{title}: {unit} of {names[0]}"
        return [TokenValues(title, values["side"], values["scores"][0], words, note=note)]
    largest = float(np.nanmax(np.abs(scores), initial=0.0)) or 1.0
    rows = [
        [name, value, *_strongest(words, row)]
        for name, value, row in zip(names, values["values"], scores, strict=True)
    ]
    columns = ["answer", unit, "words for it", "words against it"]
    return [
        Table(f"{title}: {unit}", columns, rows, note=note, media={"page", "terminal"}),
        Heat(
            f"{title}: {unit}, relative to {largest:.3g}",
            scores / largest,
            names,
            words,
            note=note,
            media={"page", "image"},
        ),
    ]


def part_names(values: JsonMapping) -> list[str]:
    """Return the parts of the answer, with the words they are about if they are about words."""
    about = values["about"] or [""] * len(values["answers"])
    return [
        f"{word}: {name}" if word else str(name) for word, name in zip(about, values["answers"], strict=True)
    ]


def _strongest(words: Sequence[str], scores: Sequence[float]) -> tuple[str, str]:
    """Return the words with the largest and the smallest scores, as texts."""
    order = [i for i in np.argsort(-np.nan_to_num(np.abs(scores)), kind="stable") if scores[i] == scores[i]]
    texts = []
    for sign in (1, -1):
        chosen = [i for i in order if sign * scores[i] >= 0.005][:STRONGEST]
        texts.append("  ".join(f"{words[i]} {scores[i]:+.2f}" for i in chosen))
    return texts[0], texts[1]
