"""What each head does (`heedful.explain.patterns`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heedful.explain.attention_sites import points
from heedful.explain.classes import MEANINGS
from heedful.explain.matrix import printable
from heedful.explain.patterns import Census, HeadPattern, recurrence
from heedful.explain.patterns import census as census_of
from heedful.explain.reading import ModelInput
from heedful.explain.summary import NAMES
from heedful.explain.view import MEMORY, Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

SHOWN = 2
"""Examples of a head in the terminal and on the page."""


def has(run: "Run") -> bool:
    """Whether there is attention between tokens; slots of a compressed memory are none."""
    return any(point.keys != MEMORY for point in points(run.model))


def compute(run: "Run", reading: ModelInput, seen: Sequence[Explanation]) -> dict[str, Any]:
    """The census of all inputs, of the heads that were asked for, without those that look at slots."""
    kept = [replace(each, maps=[m for m in each.maps if m.keys != MEMORY]) for each in seen]
    return census_of(kept).to_dict()


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """How many heads there are of each class, then a line for each head."""
    census = Census.from_dict(values)
    inputs = "1 input" if census.inputs == 1 else f"{census.inputs:,} inputs"
    told = [f"census of {len(census.heads):,} heads over {inputs}"]
    if census.inputs == 1:
        told.append("  what never occurs in one input cannot be judged: give several, with --inputs FILE")
    for share in census.table():
        if share.heads:
            name = f"{NAMES[share.kind]}: {share.pattern}"
            told.append(f"  {name:<38} {share.heads:>4} {share.share:>5.0%}  {MEANINGS[share.pattern]}")
    if (found := recurrence(census)) is not None:
        told.append(
            f"  of {found.heads} heads within a side, {found.previous:.0%} look at the token before, "
            f"{found.next:.0%} at the token after, {found.either:.0%} at the two together"
        )
    told += ["", f"  {'kind':<6} {'layer':>5} {'head':>4}  {'class':<14} {'share':>5} {'score':>6}  evidence"]
    for head in census.heads:
        score = "" if head.score is None else f"{head.score:.2f}"
        where = f"{head.kind:<6} {head.layer + 1:>5} {head.head + 1:>4}"
        what = f"{_class(head):<14} {_mass(head):>5} {score:>6}"
        told.append(f"  {where}  {what}  {_evidence(head)}")
    return told


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Two tables: how many heads there are of each class, and all heads, each of which opens."""
    census = Census.from_dict(values)
    shares = [
        [NAMES[share.kind], share.pattern, share.heads, f"{share.share:.0%}", MEANINGS[share.pattern]]
        for share in census.table()
        if share.heads
    ]
    heads = [
        [
            {"text": f"{head.layer + 1}.{head.head + 1}", "tap": head.tap, "head": head.head},
            head.kind,
            _class(head),
            _mass(head) or None,
            None if head.score is None else {"text": f"{head.score:.2f}", "share": max(0.0, head.score)},
            "; ".join(_examples(head)) or None,
            ", ".join(head.others) or None,
        ]
        for head in census.heads
    ]
    inputs = "one input" if census.inputs == 1 else f"{census.inputs:,} inputs"
    return [
        {
            "title": f"What the heads do, over {inputs}",
            "kind": "table",
            "columns": ["attention", "class", "heads", "share", "which means"],
            "rows": shares,
        },
        {
            "title": "Each head",
            "kind": "table",
            "columns": ["layer.head", "kind", "class", "of its attention", "score", "evidence", "beside it"],
            "rows": heads,
        },
    ]


def figure(seen: Explanation, values: Mapping[str, Any]) -> "Figure":
    """All heads by their classes."""
    from heedful.explain.drawings import census_map

    return census_map(Census.from_dict(values))


def _class(head: HeadPattern) -> str:
    """Its name; a fixed position with its number, from 1."""
    if head.pattern == "fixed position" and head.position is not None:
        return f"position {head.position + 1}"
    return head.pattern


def _mass(head: HeadPattern) -> str:
    """The share of its attention that belongs to the class; nothing where keys do not make the class."""
    match = head.matches.get(head.pattern)
    return "" if match is None else f"{match.mass:.0%}"


def _examples(head: HeadPattern) -> Iterator[str]:
    """The greatest weights that belong to the class."""
    for example in head.evidence[:SHOWN]:
        query, key = (printable(token) for token in example.tokens)
        yield f"{query} → {key} {example.weight:.2f}"


def _evidence(head: HeadPattern) -> str:
    """Its examples, and the classes beside its own."""
    if head.confidence is None:
        return "no token to judge it by"
    beside = [f"also {', '.join(head.others)}"] if head.others else []
    return "; ".join([*_examples(head), *beside])
