"""View ``distances``: mean attention distance by layer (Dosovitskiy et al. 2021, figures 7 and 11)."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import find_sites
from heedful.explain.flow import image_distance, token_distance
from heedful.explain.matrix import Numbers
from heedful.explain.summary import NAMES
from heedful.explain.view import MEMORY, Explanation, Map
from heedful.explain.views.shared import Figure, head_lines, head_table, headline, rounded, two_places
from heedful.runs.run import Run
from heedful.tasks.model_input import Axis, ModelInput
from heedful.typing import JsonMapping, JsonObject


def has(run: Run) -> bool:
    """Whether the model has self-attention over tokens."""
    return any(site.kind != "cross" and site.keys != MEMORY for site in find_sites(run.model))


def compute(run: Run, prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return the mean attention distance of each head, over all queries of all inputs.

    The unit is pixels between patch centres if the axis is an image (its class token is excluded), otherwise
    tokens.

    Returns:
        ``inputs``, and ``stacks``: for each its ``side`` (name of the axis), ``kind``, ``unit``, the distance
        of uniform attention over all visible tokens as ``even``, and ``layers``, each with ``layer`` and
        ``heads`` from 1, ``tap`` and ``distances``; None for a head without attention to patches.

    Raises:
        RequestError: no self-attention was selected.
    """
    patch = getattr(run.recipe.model, "patch_size", 1)
    means: dict[str, _Mean] = {}
    even: dict[str, _Mean] = {}
    for explanation in explanations:
        for each in _own_maps(explanation):
            axis = explanation.axes[each.keys]
            queries = each.weights.shape[1] - axis.before
            means.setdefault(each.tap, _Mean()).add(_distance(each.weights, axis, patch), queries)
            even.setdefault(each.keys, _Mean()).add(_distance(_even(each), axis, patch), queries)
    if not means:
        raise RequestError("view distances needs self-attention; select some, or remove the selection")
    stacks: dict[tuple[str, str], JsonObject] = {}
    for each in _own_maps(explanations[0]):
        layer = {
            "layer": each.layer + 1,
            "tap": each.tap,
            "heads": [head + 1 for head in each.heads],
            "distances": means[each.tap].plain,
        }
        stack: JsonObject = {
            "side": each.keys,
            "kind": each.kind,
            "unit": "tokens" if explanations[0].axes[each.keys].grid is None else "pixels",
            "even": even[each.keys].plain[0],
            "layers": [],
        }
        stacks.setdefault((each.keys, each.kind), stack)["layers"].append(layer)
    return {"inputs": len(explanations), "stacks": list(stacks.values())}


def _own_maps(explanation: Explanation) -> Iterator[Map]:
    """Yield the self-attention maps that have weights."""
    for each in explanation.maps:
        if each.kind != "cross" and each.keys != MEMORY and each.weights.size:
            yield each


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
    def plain(self) -> list[float | None]:
        """The mean of each head, JSON-ready; None for a head without values."""
        pairs = zip(self.total, self.weight, strict=True)
        return [rounded(float(total / weight)) if weight else None for total, weight in pairs]


def _distance(weights: Any, axis: Axis, patch: int) -> Numbers:
    if axis.grid is None:
        return token_distance(weights)
    return image_distance(weights, axis.grid, patch, axis.before)


def _even(each: Map) -> Numbers:
    """Return uniform attention over all visible tokens, ``[1, T, T]``."""
    ones = np.ones(each.weights.shape[1:])
    visible = np.tril(ones) if each.kind == "causal" else ones
    return (visible / visible.sum(axis=1, keepdims=True))[None]


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return a line per layer: the mean of its heads, then each head."""
    output = []
    for stack in values["stacks"]:
        output.append(f"{_title(stack)}; uniform attention: {two_places(stack['even'])}")
        output += head_lines(stack["layers"], "distances", 7)
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return a table per stack: layers by heads; clicking a cell opens the head; darker is farther."""
    found = []
    for stack in values["stacks"]:
        farthest = max((value or 0.0) for layer in stack["layers"] for value in layer["distances"]) or 1.0
        title = f"{headline(_title(stack))} (uniform attention: {two_places(stack['even'])})"
        found.append(head_table(title, stack["layers"], "distances", farthest))
    return found


def figure(explanation: Explanation, values: JsonMapping) -> Figure:
    """Draw a panel per stack: a point per head, by layer (Dosovitskiy et al. 2021, figure 7, right)."""
    from heedful.explain.canvas import blank, finished

    stacks = values["stacks"]
    drawn = blank(5.2 * len(stacks), 3.6)
    for axes, stack in zip(drawn.subplots(1, len(stacks), squeeze=False)[0], stacks, strict=True):
        layers = [layer["layer"] for layer in stack["layers"]]
        far = np.asarray([layer["distances"] for layer in stack["layers"]], dtype=float)
        depth = np.broadcast_to(np.asarray(layers)[:, None], far.shape)
        axes.scatter(depth.ravel(), far.ravel(), s=18, color="#08519c", alpha=0.7, linewidths=0, label="head")
        if stack["even"] is not None:
            axes.axhline(stack["even"], color="0.4", linewidth=1, linestyle="--", label="uniform attention")
            axes.legend(fontsize=9, frameon=False)
        axes.set_xticks(layers)
        axes.set_xlabel("layer", fontsize=9)
        axes.set_ylabel(f"mean attention distance ({stack['unit']})", fontsize=9)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{NAMES[stack['kind']]} of the {stack['side']}", fontsize=10)
    return finished(drawn)


def _title(stack: JsonMapping) -> str:
    return f"mean attention distance in {stack['unit']}: {NAMES[stack['kind']]} of the {stack['side']}"
