"""View ``census``: the class of each head (`heedful.explain.patterns.census`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from heedful.explain.attention_map import MEMORY
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import printable
from heedful.explain.drawings import Cell, CellLike, Drawing, Table
from heedful.explain.patterns.census import census
from heedful.explain.patterns.classes import CLASSES
from heedful.explain.summary import NAMES
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


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return the number of heads of each class, all heads, and the signs of the classes, layers by heads."""
    n, heads = values["inputs"], values["heads"]
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
    columns = ["attention", "class", "heads", "share", "meaning"]
    inputs = "one input" if n == 1 else f"{n:,} inputs"
    title = f"Census of {len(heads):,} heads over {inputs}: classes"
    return [
        Table(title, columns, shares, note=_note(values), media={"page", "terminal"}),
        *_sign_tables(heads),
        Table(
            "Each head",
            ["layer.head", "kind", "class", "attention share", "score", "evidence", "also"],
            [_head_row(head) for head in heads],
            media={"page", "terminal"},
        ),
    ]


def _note(values: JsonMapping) -> str:
    notes = []
    if recurrence := values["recurrence"]:
        notes.append(
            f"Of {recurrence['heads']} self-attention heads, {recurrence['previous']:.0%} attend to the "
            f"previous token, {recurrence['next']:.0%} to the next token, {recurrence['either']:.0%} to both "
            "together."
        )
    if values["inputs"] == 1:
        notes.append("Patterns that do not occur in the input cannot be scored; use several inputs.")
    return " ".join(notes)


def _sign_tables(heads: Sequence[JsonMapping]) -> list[Drawing]:
    """Return a table per kind of attention, layers by heads, with signs and colours of the classes.

    Heads that were not selected remain empty. The note explains the signs that occur.
    """
    kinds: dict[str, list[JsonMapping]] = {}
    for head in heads:
        kinds.setdefault(head["kind"], []).append(head)
    tables: list[Drawing] = []
    for kind, selected in kinds.items():
        n_layers, n_heads = (max(head[key] + 1 for head in selected) for key in ("layer", "head"))
        rows: list[list[CellLike]] = [[layer + 1, *[None] * n_heads] for layer in range(n_layers)]
        for head in selected:
            head_class = CLASSES[head["pattern"]]
            rows[head["layer"]][1 + head["head"]] = Cell(
                head_class.sign, colour=head_class.colour, tap=head["tap"], head=head["head"]
            )
        occurring = {head["pattern"] for head in selected}
        note = ", ".join(f"{each.sign}: {name}" for name, each in CLASSES.items() if name in occurring)
        columns = ["layer", *(f"head {head + 1}" for head in range(n_heads))]
        title = f"Classes of the heads of {NAMES[kind]}"
        tables.append(Table(title, columns, rows, note=note, media={"page", "image"}))
    return tables


def _head_row(head: JsonMapping) -> list[CellLike]:
    """Return the row of a head; clicking its name opens it."""
    evidence = "no tokens to score" if head["confidence"] is None else "; ".join(_examples(head))
    return [
        Cell(f"{head['layer'] + 1}.{head['head'] + 1}", tap=head["tap"], head=head["head"]),
        head["kind"],
        _class_name(head),
        _mass_text(head) or None,
        None if head["score"] is None else Cell(f"{head['score']:.2f}", max(0.0, head["score"])),
        evidence or None,
        ", ".join(head["others"]) or None,
    ]


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
