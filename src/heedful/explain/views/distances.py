"""How far heads look, layer by layer (Dosovitskiy et al. 2021, figures 7 and 11)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import points
from heedful.explain.flow import Numbers, image_distance, token_distance
from heedful.explain.reading import ModelInput
from heedful.explain.summary import NAMES
from heedful.explain.view import MEMORY, Axis, Explanation, Map
from heedful.explain.views.shared import headline, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run


def has(run: "Run") -> bool:
    """Whether tokens look at tokens of their own side."""
    return any(point.kind != "cross" and point.keys != MEMORY for point in points(run.model))


def compute(run: "Run", reading: ModelInput, seen: Sequence[Explanation]) -> dict[str, Any]:
    """The mean distance of each head's attention, over all queries of all inputs.

    In pixels between the centres of patches, where the side is an image (its class token neither looks nor
    is looked at), else in tokens.

    Returns:
        ``inputs``, and ``stacks``: of each its ``side``, ``kind``, ``unit``, how far attention looks that is
        ``even`` over all that is seen, and ``layers``, each with ``layer`` and ``heads`` from 1, ``tap`` and
        ``distances``; None of a head that looks at no patch.

    Raises:
        RequestError: no attention within a side was asked for.
    """
    patch = getattr(run.recipe.model, "patch_size", 1)
    means: dict[str, _Mean] = {}
    even: dict[str, _Mean] = {}
    for explanation in seen:
        for each in _own(explanation):
            side = explanation.sides[each.keys]
            queries = each.weights.shape[1] - side.before
            means.setdefault(each.tap, _Mean()).add(_distance(each.weights, side, patch), queries)
            uniform = _even(each)
            even.setdefault(each.keys, _Mean()).add(_distance(uniform, side, patch), queries)
    if not means:
        raise RequestError("the view distances is of attention within a side: ask for some, or for all")
    stacks: dict[tuple[str, str], dict[str, Any]] = {}
    for each in _own(seen[0]):
        unit = "tokens" if seen[0].sides[each.keys].grid is None else "pixels"
        stack = stacks.setdefault(
            (each.keys, each.kind),
            {
                "side": each.keys,
                "kind": each.kind,
                "unit": unit,
                "even": _plain(even[each.keys].value)[0],
                "layers": [],
            },
        )
        stack["layers"].append(
            {
                "layer": each.layer + 1,
                "tap": each.tap,
                "heads": [head + 1 for head in each.heads],
                "distances": _plain(means[each.tap].value),
            }
        )
    return {"inputs": len(seen), "stacks": list(stacks.values())}


def _own(explanation: Explanation) -> list[Map]:
    """The maps within a side, as far as they have weights."""
    return [
        each
        for each in explanation.maps
        if each.kind != "cross" and each.keys != MEMORY and each.weights.size
    ]


class _Mean:
    """A mean over inputs of ``[H]`` values, weighed by numbers of queries; NaN counts for nothing."""

    def __init__(self) -> None:
        self.total: Any = 0.0
        self.weight: Any = 0.0

    def add(self, values: Numbers, queries: int) -> None:
        """One input."""
        there = np.isfinite(values)
        self.total = self.total + np.where(there, values, 0.0) * queries
        self.weight = self.weight + there * queries

    @property
    def value(self) -> Numbers:
        """``[H]``."""
        return np.divide(self.total, self.weight, out=np.full(len(self.total), np.nan), where=self.weight > 0)


def _distance(weights: Any, side: Axis, patch: int) -> Numbers:
    if side.grid is None:
        return token_distance(weights)
    return image_distance(weights, side.grid, patch, side.before)


def _even(each: Map) -> Numbers:
    """``[1, T, T]``: attention that is even over all that is seen."""
    ones = np.ones(each.weights.shape[1:])
    visible = np.tril(ones) if each.kind == "causal" else ones
    return (visible / visible.sum(axis=1, keepdims=True))[None]


def _plain(values: Numbers) -> list[float | None]:
    return [rounded(float(value)) if np.isfinite(value) else None for value in values]


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """A line for each layer: the mean of its heads, then each head."""
    told = []
    for stack in values["stacks"]:
        told.append(f"{_title(stack)}; even attention looks {_number(stack['even'])} far")
        told.append(f"  {'layer':>5} {'mean':>8}  each head")
        for layer in stack["layers"]:
            known = [value for value in layer["distances"] if value is not None]
            mean = sum(known) / len(known) if known else None
            heads = " ".join(f"{_number(value):>7}" for value in layer["distances"])
            told.append(f"  {layer['layer']:>5} {_number(mean):>8}  {heads}")
    return told


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A table for each stack: layers down, heads across, each of which opens; darker is farther."""
    found = []
    for stack in values["stacks"]:
        farthest = max((value or 0.0) for layer in stack["layers"] for value in layer["distances"]) or 1.0
        rows = [
            [layer["layer"], *(_cell(layer, n, farthest) for n in range(len(layer["heads"])))]
            for layer in stack["layers"]
        ]
        columns = ["layer", *(f"head {number}" for number in stack["layers"][0]["heads"])]
        title = f"{headline(_title(stack))} (even attention: {_number(stack['even'])})"
        found.append({"title": title, "kind": "table", "columns": columns, "rows": rows})
    return found


def _cell(layer: Mapping[str, Any], n: int, farthest: float) -> dict[str, Any] | None:
    value = layer["distances"][n]
    if value is None:
        return None
    opens = {"tap": layer["tap"], "head": layer["heads"][n] - 1}
    return {"text": _number(value), "share": value / farthest, **opens}


def figure(seen: Explanation, values: Mapping[str, Any]) -> "Figure":
    """A point for each head, by depth; a panel for each stack."""
    from heedful.explain.drawings import distance_panels

    panels = [
        (
            f"{NAMES[stack['kind']]} of the {stack['side']}",
            stack["unit"],
            [
                [np.nan if value is None else value for value in layer["distances"]]
                for layer in stack["layers"]
            ],
            stack["even"],
        )
        for stack in values["stacks"]
    ]
    layers = [[layer["layer"] for layer in stack["layers"]] for stack in values["stacks"]]
    return distance_panels(panels, layers)


def _title(stack: Mapping[str, Any]) -> str:
    return f"how far each head looks, in {stack['unit']}: {NAMES[stack['kind']]} of the {stack['side']}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
