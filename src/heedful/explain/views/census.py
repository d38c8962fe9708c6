"""View ``census``: the class of each head (`heedful.explain.patterns.census`)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import printable
from heedful.explain.explanation import MEMORY, Explanation
from heedful.explain.patterns.census import census
from heedful.explain.patterns.classes import CLASSES
from heedful.explain.summary import NAMES
from heedful.explain.views.shared import Figure
from heedful.runs.run import Run
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

SHOWN = 2
"""Examples per head in the terminal and on the page."""


def has(run: Run) -> bool:
    """Whether the model has attention between tokens; slots of a compressed memory are not tokens."""
    return any(site.keys != MEMORY for site in find_sites(run.model))


def compute(run: Run, prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return the census of the selected heads over all inputs, without attention to memory slots."""
    kept = [replace(each, maps=[m for m in each.maps if m.keys != MEMORY]) for each in explanations]
    return census(kept).to_dict()


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return the number of heads of each class, then a line per head."""
    n, heads = values["inputs"], values["heads"]
    output = [f"census of {len(heads):,} heads over {'1 input' if n == 1 else f'{n:,} inputs'}"]
    if n == 1:
        output.append(
            "  patterns that do not occur in the input cannot be scored; use several inputs (--inputs FILE)"
        )
    for row in values["table"]:
        if row["heads"]:
            name, meaning = f"{NAMES[row['kind']]}: {row['pattern']}", CLASSES[row["pattern"]].meaning
            output.append(f"  {name:<38} {row['heads']:>4} {row['share']:>5.0%}  {meaning}")
    if recurrent := values["recurrence"]:
        output.append(
            f"  of {recurrent['heads']} self-attention heads, {recurrent['previous']:.0%} attend to the "
            f"previous token, {recurrent['next']:.0%} to the next token, {recurrent['either']:.0%} to both "
            "together"
        )
    output += [
        "",
        f"  {'kind':<6} {'layer':>5} {'head':>4}  {'class':<14} {'share':>5} {'score':>6}  evidence",
    ]
    for head in heads:
        score = "" if head["score"] is None else f"{head['score']:.2f}"
        beside = [f"also {', '.join(head['others'])}"] if head["others"] else []
        evidence = "; ".join([*_examples(head), *beside])
        if head["confidence"] is None:
            evidence = "no tokens to score"
        where = f"{head['kind']:<6} {head['layer']:>5} {head['head']:>4}"
        output.append(f"  {where}  {_class(head):<14} {_mass(head):>5} {score:>6}  {evidence}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return two tables: the number of heads of each class, and all heads; clicking a row opens the head."""
    shares = [
        [
            NAMES[row["kind"]],
            row["pattern"],
            row["heads"],
            f"{row['share']:.0%}",
            CLASSES[row["pattern"]].meaning,
        ]
        for row in values["table"]
        if row["heads"]
    ]
    heads = [
        [
            {"text": f"{head['layer']}.{head['head']}", "tap": head["tap"], "head": head["head"] - 1},
            head["kind"],
            _class(head),
            _mass(head) or None,
            None
            if head["score"] is None
            else {"text": f"{head['score']:.2f}", "share": max(0.0, head["score"])},
            "; ".join(_examples(head)) or None,
            ", ".join(head["others"]) or None,
        ]
        for head in values["heads"]
    ]
    n = values["inputs"]
    return [
        {
            "title": f"Head classes over {'one input' if n == 1 else f'{n:,} inputs'}",
            "kind": "table",
            "columns": ["attention", "class", "heads", "share", "meaning"],
            "rows": shares,
        },
        {
            "title": "Each head",
            "kind": "table",
            "columns": ["layer.head", "kind", "class", "attention share", "score", "evidence", "also"],
            "rows": heads,
        },
    ]


def figure(explanation: Explanation, values: JsonMapping) -> Figure:
    """Draw all heads by class, a table per stack: layers by heads.

    Classes differ by symbol and colour; the legend lists only those that occur. Heads that were not selected
    remain empty.
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    from heedful.explain.drawing.canvas import finish_figure, label_heads, new_figure, text_colour

    stacks: dict[str, list[JsonMapping]] = {}
    for head in values["heads"]:
        stacks.setdefault(head["kind"], []).append(head)
    layers = [max(head["layer"] for head in heads) for heads in stacks.values()]
    across = max(head["head"] for head in values["heads"])
    drawn = new_figure(max(across * 0.34, 2.0) + 2.6, sum(layers) * 0.34 + 0.9 * len(stacks))
    panels = drawn.subplots(len(stacks), 1, squeeze=False, height_ratios=layers)[:, 0]
    for axes, (kind, heads), down in zip(panels, stacks.items(), layers, strict=True):
        colours = np.ones((down, across, 4))
        for head in heads:
            row, column, shown = head["layer"] - 1, head["head"] - 1, CLASSES[head["pattern"]]
            colours[row, column] = to_rgba(shown.colour)
            ink = text_colour(colours[row, column])
            axes.text(column, row, shown.sign, ha="center", va="center", color=ink)
        axes.imshow(colours, interpolation="nearest", aspect="equal")
        rows, columns = ((range(n), map(str, range(1, n + 1))) for n in (down, across))
        label_heads(axes, rows, columns)
        axes.set_title(f"{kind} attention", fontsize=10)
    occurring = {head["pattern"] for head in values["heads"]}
    handles = [
        Patch(facecolor=each.colour, edgecolor="0.6", label=f"{each.sign}  {name}")
        for name, each in CLASSES.items()
        if name in occurring
    ]
    drawn.legend(handles=handles, loc="outside right upper", fontsize=9, frameon=False)
    return finish_figure(drawn)


def _class(head: JsonMapping) -> str:
    """Return the name of the class; a fixed position with its index from 1."""
    if head["pattern"] == "fixed position" and head["position"] is not None:
        return f"position {head['position'] + 1}"
    return str(head["pattern"])


def _mass(head: JsonMapping) -> str:
    """Return the share of attention on the keys of the class; empty for classes without keys."""
    match = head["matches"].get(head["pattern"])
    return "" if match is None else f"{match['mass']:.0%}"


def _examples(head: JsonMapping) -> list[str]:
    """Return the largest weights that belong to the class."""
    return [
        " → ".join(map(printable, example["tokens"])) + f" {example['weight']:.2f}"
        for example in head["evidence"][:SHOWN]
    ]
