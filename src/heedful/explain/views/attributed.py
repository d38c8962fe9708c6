"""Values and drawings that the views of attribution share: a number for each word and part of the answer."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.removal import removal
from heedful.explain.drawing.matrix import marked, on_grid
from heedful.explain.drawings import Drawing, Heat, PatchPanel, PatchValues, Table, TokenValues
from heedful.explain.summary import probability_text
from heedful.explain.views import LEAVING_OUT, VIEWS
from heedful.explain.views.shared import headline, rounded_or_none
from heedful.runs.loading import LoadedRun
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

STRONGEST = 4
"""Number of words named for and against a part of an answer."""

MOST_PANELS = 6
"""Maximum number of parts of an answer that are drawn over an image."""

UNKNOWN_NOTE = "[unknown]: the model reads <unk> for the word, or for a part of it"

PLACES_NOTE = "(n): the n-th word, of those that occur several times"

_PLACE = re.compile(r" \(\d+\)")

MOST_REMOVED = 3
"""Maximum number of removed words that are named."""


def signs_note(unit: str, feature: str) -> str:
    """Return what the signs of scores by occlusion or replacement say.

    Args:
        unit: what is measured.
        feature: a word, or a patch.
    """
    if unit == "number":
        return f"positive: the number is lower without the {feature}; negative: it is higher without it"
    be, they = ("are", "they are") if unit == "log-odds" else ("is", "it is")
    return (
        f"positive: the {unit} {be} lower without the {feature}, so it supports the answer; "
        f"negative: {they} higher without it, so it speaks against the answer"
    )


def attribution_values(
    run: LoadedRun, measured: Measured, view: str, scores: Float[Tensor, "features answers"]
) -> JsonObject:
    """Return the JSON values of an attribution: see `heedful.explain.views.occlusion.compute`.

    Args:
        run: the run.
        measured: the input.
        view: its name.
        scores: those of the view.
    """
    features, answers = measured.features, measured.answers
    values: JsonObject = {
        "side": features.axis,
        "unit": measured.unit,
        "words": [*features.names],
        **({"unknown": [*features.unknown]} if features.unknown else {}),
        "answers": [*answers.names],
        "about": [*answers.words],
        "values": [*map(rounded_or_none, measured.values([{}])[0].tolist())],
        "scores": [[*map(rounded_or_none, row)] for row in scores.T.tolist()],
    }
    if removed := removal(run, measured, VIEWS[view].judges, values["scores"]):
        values["removal"] = removed
    return values


def attribution_drawings(
    explanation: "Explanation", values: JsonMapping, title: str, note: str
) -> list[Drawing]:
    """Return bars by word for an answer, a matrix for an answer of several parts, or maps over an image.

    Below them is a table of the answer without the words that support it most
    (`heedful.explain.attribution.removal`).

    Args:
        explanation: the explanation.
        values: of the view.
        title: what the numbers are, with ``{}`` in place of what is measured.
        note: below the drawing.
    """
    if values.get("unknown"):
        note += f"; {UNKNOWN_NOTE}"
    return [*_score_drawings(explanation, values, title, note), *_removal_tables(explanation, values)]


def _score_drawings(explanation: "Explanation", values: JsonMapping, title: str, note: str) -> list[Drawing]:
    axis, words, unit = explanation.axes[values["side"]], values["words"], values["unit"]
    names, scores = part_names(values), np.array(values["scores"], dtype=float)
    if axis.grid is not None:
        panels = [
            PatchPanel(name, on_grid([0.0] * axis.before + [*np.nan_to_num(row)], axis))
            for name, row in zip(names[:MOST_PANELS], scores, strict=False)
        ]
        return [PatchValues(title.format(unit), values["side"], panels, apart=True, note=note)]
    if len(names) == 1:
        what = f"{unit} {names[0]}" if unit == "number" else f"{unit} of {names[0]}"
        unknown = values.get("unknown", ())
        return [
            TokenValues(
                title.format(what),
                values["side"],
                values["scores"][0],
                words,
                unknown=unknown,
                unit=unit,
                note=note,
            )
        ]
    words = word_names(values)
    note += _places_note(values["words"], _part_names(values))
    if np.isnan(scores).any():
        note += "; a word without a number takes this part of the answer with it"
    largest = float(np.nanmax(np.abs(scores), initial=0.0)) or 1.0
    rows = [
        [name, value, *_strongest(words, row)]
        for name, value, row in zip(names, values["values"], scores, strict=True)
    ]
    columns = ["answer", unit, "words for it", "words against it"]
    return [
        Table(title.format(unit), columns, rows, note=note, media={"page", "terminal"}),
        Heat(
            title.format(unit),
            scores / largest,
            names,
            words,
            largest=largest,
            unit=unit,
            note=note,
            media={"page", "image"},
        ),
    ]


def _removal_tables(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a table for each part of the answer that was judged."""
    removed = values.get("removal")
    if removed is None:
        return []
    by, measure = removed["judge"], removed["measure"]
    features = "words" if explanation.axes[values["side"]].grid is None else "patches"
    how = "left out" if by == LEAVING_OUT else f"replaced by training data (mean of {removed['draws']} draws)"
    of = "the answer"
    tables: list[Drawing] = []
    for part in removed["parts"]:
        if part["answer"] and measure != "number":
            of = part["answer"]
        title = f"{headline(measure)} of {of} without the {features} that support it most"
        note = "; ".join(filter(None, [f"removed {features} are {how}", *_removal_notes(part, features)]))
        note += f"; {removed['note']}" if "note" in removed else ""
        rows = _removal_rows(part, word_names(values), measure, features)
        note += _places_note(values["words"]) if any(_PLACE.search(str(row[0])) for row in rows) else ""
        columns = ["removed", "without", "others", "new answer"]
        tables.append(Table(title, columns[: len(rows[0])], rows, note=note))
    return tables


def _removal_rows(part: JsonMapping, words: Sequence[str], measure: str, features: str) -> list[list[str]]:
    whole = _measured_text(part["value"], measure)
    rows = [["none", whole, whole, *_label_text(part)]]
    for step in part["steps"]:
        top = [words[i] for i in step["words"]]
        names = " + ".join(top)
        if len(top) > MOST_REMOVED:
            names = f"{len(top) / len(words):.0%} of the {features}"
        numbers = [
            "-" if step[key] is None else _measured_text(step[key], measure) for key in ("value", "random")
        ]
        rows.append([f"{len(top)}: {names}", *numbers, *_label_text(step)])
    return rows


def _label_text(judged: JsonMapping) -> list[str]:
    label = judged.get("label")
    return [] if label is None else [f"{label['output']} ({probability_text(label['probability'])})"]


def _removal_notes(part: JsonMapping, features: str) -> list[str]:
    """Return how many words support the answer, and of how many choices the means of others are."""
    n, steps = part["supporting"], part["steps"]
    if not steps:
        return [f"none of the {features} supports it, so that none is removed"]
    choices = [str(step["choices"]) for step in steps]
    listed = " and ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    notes = [
        f"{n} of the {features} support{'s' if n == 1 else ''} it",
        f"others: without as many of the other {features}, mean of {listed} choices",
    ]
    if "label" in part:
        notes.append("new answer: the most probable label without them")
    return notes


def _measured_text(value: float, measure: str) -> str:
    return probability_text(value) if measure == "probability" else f"{value:.4g}"


def word_names(values: JsonMapping) -> list[str]:
    """Return the words, unambiguously: unknown ones marked, and equal ones with their places."""
    names = with_places(values["words"])
    for i in values.get("unknown", ()):
        names[i] = marked(names[i])
    return names


def with_places(names: Sequence[str]) -> list[str]:
    """Return names, those that occur several times with their places, from 1: ``a (1)``, ``a (4)``."""
    counts = Counter(names)
    return [f"{name} ({i})" if counts[name] > 1 else name for i, name in enumerate(names, 1)]


def _part_names(values: JsonMapping) -> list[str]:
    """Return the parts of the answer, with the words they are about if they are about words."""
    about = values["about"] or [""] * len(values["answers"])
    names = (f"{word}: {name}" if word else name for word, name in zip(about, values["answers"], strict=True))
    return [*names]


def part_names(values: JsonMapping) -> list[str]:
    """Return the parts of the answer, with the words that they are about, unambiguously (`with_places`)."""
    return with_places(_part_names(values))


def _places_note(*all_names: Sequence[str]) -> str:
    """Return what the places in names mean, if there are any."""
    return f"; {PLACES_NOTE}" if any(len({*names}) < len(names) for names in all_names) else ""


def _strongest(words: Sequence[str], scores: Sequence[float]) -> tuple[str, str]:
    """Return the words with the largest and the smallest scores, as texts."""
    order = [i for i in np.argsort(-np.nan_to_num(np.abs(scores)), kind="stable") if scores[i] == scores[i]]
    texts = []
    for sign in (1, -1):
        chosen = [i for i in order if sign * scores[i] >= 0.005][:STRONGEST]
        texts.append("  ".join(f"{words[i]} {scores[i]:+.2f}" for i in chosen))
    return texts[0], texts[1]
