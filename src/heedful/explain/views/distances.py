"""View ``distances``: mean attention distance by layer (Dosovitskiy et al. 2021, figures 7 and 11)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import find_sites
from heedful.explain.flow import Numbers, image_distance, token_distance
from heedful.explain.summary import NAMES
from heedful.explain.view import MEMORY, Explanation, Map
from heedful.explain.views.shared import headline, rounded
from heedful.tasks.model_input import Axis, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run


def has(run: "Run") -> bool:
    """Whether the model has self-attention over tokens."""
    return any(site.kind != "cross" and site.keys != MEMORY for site in find_sites(run.model))


def compute(run: "Run", prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return the mean attention distance of each head, over all queries of all inputs.

    The unit is pixels between patch centres if the side is an image (its class token is excluded), otherwise
    tokens.

    Returns:
        ``inputs``, and ``stacks``: for each its ``side``, ``kind``, ``unit``, the distance of uniform
            attention
        over all visible tokens as ``even``, and ``layers``, each with ``layer`` and ``heads`` from 1, ``tap``
        and ``distances``; None for a head without attention to patches.

    Raises:
        RequestError: no self-attention was selected.
    """
    patch = getattr(run.recipe.model, "patch_size", 1)
    means: dict[str, _Mean] = {}
    even: dict[str, _Mean] = {}
    for explanation in explanations:
        for each in _own(explanation):
            side = explanation.axes[each.keys]
            queries = each.weights.shape[1] - side.before
            means.setdefault(each.tap, _Mean()).add(_distance(each.weights, side, patch), queries)
            uniform = _even(each)
            even.setdefault(each.keys, _Mean()).add(_distance(uniform, side, patch), queries)
    if not means:
        raise RequestError("view distances needs self-attention; select some, or remove the selection")
    stacks: dict[tuple[str, str], JsonObject] = {}
    for each in _own(explanations[0]):
        unit = "tokens" if explanations[0].axes[each.keys].grid is None else "pixels"
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
    return {"inputs": len(explanations), "stacks": list(stacks.values())}


def _own(explanation: Explanation) -> list[Map]:
    """Return the self-attention maps that have weights."""
    return [
        each
        for each in explanation.maps
        if each.kind != "cross" and each.keys != MEMORY and each.weights.size
    ]


class _Mean:
    """Mean over inputs of ``[H]`` values, weighted by the number of queries; NaN is ignored."""

    def __init__(self) -> None:
        self.total: Any = 0.0
        self.weight: Any = 0.0

    def add(self, values: Numbers, queries: int) -> None:
        """Add one input."""
        there = np.isfinite(values)
        self.total = self.total + np.where(there, values, 0.0) * queries
        self.weight = self.weight + there * queries

    @property
    def value(self) -> Numbers:
        """The mean, ``[H]``."""
        return np.divide(self.total, self.weight, out=np.full(len(self.total), np.nan), where=self.weight > 0)


def _distance(weights: Any, side: Axis, patch: int) -> Numbers:
    if side.grid is None:
        return token_distance(weights)
    return image_distance(weights, side.grid, patch, side.before)


def _even(each: Map) -> Numbers:
    """Return uniform attention over all visible tokens, ``[1, T, T]``."""
    ones = np.ones(each.weights.shape[1:])
    visible = np.tril(ones) if each.kind == "causal" else ones
    return (visible / visible.sum(axis=1, keepdims=True))[None]


def _plain(values: Numbers) -> list[float | None]:
    return [rounded(float(value)) if np.isfinite(value) else None for value in values]


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return a line per layer: the mean of its heads, then each head."""
    output = []
    for stack in values["stacks"]:
        output.append(f"{_title(stack)}; uniform attention: {_number(stack['even'])}")
        output.append(f"  {'layer':>5} {'mean':>8}  each head")
        for layer in stack["layers"]:
            known = [value for value in layer["distances"] if value is not None]
            mean = sum(known) / len(known) if known else None
            heads = " ".join(f"{_number(value):>7}" for value in layer["distances"])
            output.append(f"  {layer['layer']:>5} {_number(mean):>8}  {heads}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return a table per stack: layers by heads; clicking a cell opens the head; darker is farther."""
    found = []
    for stack in values["stacks"]:
        farthest = max((value or 0.0) for layer in stack["layers"] for value in layer["distances"]) or 1.0
        rows = [
            [layer["layer"], *(_cell(layer, n, farthest) for n in range(len(layer["heads"])))]
            for layer in stack["layers"]
        ]
        columns = ["layer", *(f"head {number}" for number in stack["layers"][0]["heads"])]
        title = f"{headline(_title(stack))} (uniform attention: {_number(stack['even'])})"
        found.append({"title": title, "kind": "table", "columns": columns, "rows": rows})
    return found


def _cell(layer: JsonMapping, n: int, farthest: float) -> JsonObject | None:
    value = layer["distances"][n]
    if value is None:
        return None
    opens = {"tap": layer["tap"], "head": layer["heads"][n] - 1}
    return {"text": _number(value), "share": value / farthest, **opens}


def figure(explanation: Explanation, values: JsonMapping) -> "Figure":
    """Draw a panel per stack with a point per head, by layer."""
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


def _title(stack: JsonMapping) -> str:
    return f"mean attention distance in {stack['unit']}: {NAMES[stack['kind']]} of the {stack['side']}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
