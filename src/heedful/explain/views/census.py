"""View ``census``: the class of each head (`heedful.explain.patterns.census`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from heedful.explain.attention_map import MEMORY
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import printable
from heedful.explain.drawings import Cell, Drawing, Table
from heedful.explain.patterns.census import census
from heedful.explain.patterns.classes import CLASSES
from heedful.explain.summary import NAMES
from heedful.explain.views.shared import Figure
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

N_EXAMPLES = 2
"""Examples per head in the terminal and on the page."""


def supports(run: LoadedRun) -> bool:
    """Whether the model has attention between tokens; slots of a compressed memory are not tokens."""
    return any(site.keys != MEMORY for site in find_sites(run.model))


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the census of the selected heads over all inputs, without attention to memory slots."""
    without_memory = [replace(each, maps=[m for m in each.maps if m.keys != MEMORY]) for each in explanations]
    return census(without_memory).to_dict()


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
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
    if recurrence := values["recurrence"]:
        output.append(
            f"  of {recurrence['heads']} self-attention heads, {recurrence['previous']:.0%} attend to the "
            f"previous token, {recurrence['next']:.0%} to the next token, {recurrence['either']:.0%} to both "
            "together"
        )
    output += [
        "",
        f"  {'kind':<6} {'layer':>5} {'head':>4}  {'class':<14} {'share':>5} {'score':>6}  evidence",
    ]
    for head in heads:
        score = "" if head["score"] is None else f"{head['score']:.2f}"
        others = [f"also {', '.join(head['others'])}"] if head["others"] else []
        evidence = "; ".join([*_examples(head), *others])
        if head["confidence"] is None:
            evidence = "no tokens to score"
        prefix = f"{head['kind']:<6} {head['layer'] + 1:>5} {head['head'] + 1:>4}"
        output.append(f"  {prefix}  {_class_name(head):<14} {_mass_text(head):>5} {score:>6}  {evidence}")
    return output


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
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
            Cell(f"{head['layer'] + 1}.{head['head'] + 1}", tap=head["tap"], head=head["head"]),
            head["kind"],
            _class_name(head),
            _mass_text(head) or None,
            None if head["score"] is None else Cell(f"{head['score']:.2f}", max(0.0, head["score"])),
            "; ".join(_examples(head)) or None,
            ", ".join(head["others"]) or None,
        ]
        for head in values["heads"]
    ]
    n = values["inputs"]
    return [
        Table(
            f"Head classes over {'one input' if n == 1 else f'{n:,} inputs'}",
            ["attention", "class", "heads", "share", "meaning"],
            shares,
        ),
        Table(
            "Each head",
            ["layer.head", "kind", "class", "attention share", "score", "evidence", "also"],
            heads,
        ),
    ]


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
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
    n_layers = [max(head["layer"] + 1 for head in heads) for heads in stacks.values()]
    n_columns = max(head["head"] + 1 for head in values["heads"])
    fig = new_figure(max(n_columns * 0.34, 2.0) + 2.6, sum(n_layers) * 0.34 + 0.9 * len(stacks))
    panels = fig.subplots(len(stacks), 1, squeeze=False, height_ratios=n_layers)[:, 0]
    for axes, (kind, heads), n_rows in zip(panels, stacks.items(), n_layers, strict=True):
        colours = np.ones((n_rows, n_columns, 4))
        for head in heads:
            row, column, head_class = head["layer"], head["head"], CLASSES[head["pattern"]]
            colours[row, column] = to_rgba(head_class.colour)
            ink = text_colour(colours[row, column].tolist())
            axes.text(column, row, head_class.sign, ha="center", va="center", color=ink)
        axes.imshow(colours, interpolation="nearest", aspect="equal")
        rows, columns = ((range(n), map(str, range(1, n + 1))) for n in (n_rows, n_columns))
        label_heads(axes, rows, columns)
        axes.set_title(f"{kind} attention", fontsize=10)
    occurring = {head["pattern"] for head in values["heads"]}
    handles = [
        Patch(facecolor=head_class.colour, edgecolor="0.6", label=f"{head_class.sign}  {name}")
        for name, head_class in CLASSES.items()
        if name in occurring
    ]
    fig.legend(handles=handles, loc="outside right upper", fontsize=9, frameon=False)
    return finish_figure(fig)


def _class_name(head: JsonMapping) -> str:
    """Return the name of the class; a fixed position with its index from 1."""
    if head["pattern"] == "fixed position" and head["position"] is not None:
        return f"position {head['position'] + 1}"
    return str(head["pattern"])


def _mass_text(head: JsonMapping) -> str:
    """Return the share of attention on the keys of the class; empty for classes without keys."""
    match = head["matches"].get(head["pattern"])
    return "" if match is None else f"{match['mass']:.0%}"


def _examples(head: JsonMapping) -> list[str]:
    """Return the largest weights that belong to the class."""
    return [
        " → ".join(map(printable, example["tokens"])) + f" {example['weight']:.2f}"
        for example in head["evidence"][:N_EXAMPLES]
    ]
