"""View ``distances``: mean attention distance by layer (Dosovitskiy et al. 2021, figures 7 and 11)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from heedful.errors import RequestError
from heedful.explain.attention_map import MEMORY, AttentionMap
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import Numbers, unit_rows
from heedful.explain.drawings import Drawing
from heedful.explain.summary import NAMES
from heedful.explain.views.shared import head_table, rounded, two_places
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import Axis, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation


def supports(run: LoadedRun) -> bool:
    """Whether the model has self-attention over tokens."""
    return any(site.kind != "cross" and site.keys != MEMORY for site in find_sites(run.model))


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the mean attention distance of each head, over all queries of all inputs.

    The unit is pixels between patch centres if the axis is an image (its class token is excluded), otherwise
    tokens.

    Returns:
        ``inputs``, and ``stacks``: for each its ``side`` (name of the axis), ``kind``, ``unit``, the distance
        of uniform attention over all visible tokens as ``even``, and ``layers``, each with ``layer`` and
        ``heads`` from 0, ``tap`` and ``distances``; None for a head without attention to patches.

    Raises:
        RequestError: no self-attention was selected.
    """
    patch = getattr(run.recipe.model, "patch_size", 1)
    distances: defaultdict[str, list[tuple[Numbers, int]]] = defaultdict(list)
    uniform: defaultdict[str, list[tuple[Numbers, int]]] = defaultdict(list)
    for explanation in explanations:
        for attention_map in _self_attention_maps(explanation):
            axis = explanation.axes[attention_map.keys]
            queries = attention_map.weights.shape[1] - axis.before
            distances[attention_map.tap].append((_map_distance(attention_map.weights, axis, patch), queries))
            uniform[attention_map.keys].append(
                (_map_distance(_uniform_attention(attention_map), axis, patch), queries)
            )
    if not distances:
        raise RequestError("view distances needs self-attention; select some, or remove the selection")
    stacks: dict[tuple[str, str], JsonObject] = {}
    for attention_map in _self_attention_maps(explanations[0]):
        layer = {
            "layer": attention_map.layer,
            "tap": attention_map.tap,
            "heads": [*attention_map.heads],
            "distances": _mean_over_inputs(distances[attention_map.tap]),
        }
        stack: JsonObject = {
            "side": attention_map.keys,
            "kind": attention_map.kind,
            "unit": "tokens" if explanations[0].axes[attention_map.keys].grid is None else "pixels",
            "even": _mean_over_inputs(uniform[attention_map.keys])[0],
            "layers": [],
        }
        stacks.setdefault((attention_map.keys, attention_map.kind), stack)["layers"].append(layer)
    return {"inputs": len(explanations), "stacks": list(stacks.values())}


def _self_attention_maps(explanation: "Explanation") -> Iterator[AttentionMap]:
    """Yield the self-attention maps that have weights."""
    for attention_map in explanation.maps:
        if attention_map.kind != "cross" and attention_map.keys != MEMORY and attention_map.weights.size:
            yield attention_map


def _mean_over_inputs(inputs: Sequence[tuple[Numbers, int]]) -> list[float | None]:
    """Return the mean over inputs of the distance of each head, weighted by the number of queries.

    None for a head without attention to patches, whose distances are NaN.
    """
    distances = np.stack([head_distances for head_distances, _ in inputs])
    weights = np.isfinite(distances) * np.array([[queries] for _, queries in inputs])
    totals = zip((np.nan_to_num(distances) * weights).sum(axis=0), weights.sum(axis=0), strict=True)
    return [rounded(float(total / weight)) if weight else None for total, weight in totals]


def _map_distance(weights: ArrayLike, axis: Axis, patch: int) -> Numbers:
    if axis.grid is None:
        return token_distance(weights)
    return image_distance(weights, axis.grid, patch, axis.before)


def _uniform_attention(attention_map: AttentionMap) -> Numbers:
    """Return uniform attention over all visible tokens, ``[1, T, T]``."""
    ones = np.ones(attention_map.weights.shape[1:])
    visible = np.tril(ones) if attention_map.kind == "causal" else ones
    return (visible / visible.sum(axis=1, keepdims=True))[None]


def patch_distances(grid: tuple[int, int], patch: int) -> Numbers:
    """Return the distances in pixels between patch centres, ``[N, N]``, in row-major order.

    Args:
        grid: rows and columns.
        patch: P, the side of a patch in pixels.
    """
    rows, columns = np.divmod(np.arange(grid[0] * grid[1], dtype=float), grid[1])
    return patch * np.hypot(rows[:, None] - rows, columns[:, None] - columns)


def mean_distance(weights: ArrayLike, distances: ArrayLike) -> Numbers:
    """Return the mean attention distance of each head: ``mean_i sum_j w_ij D_ij``.

    Rows of w are first rescaled to sum 1. Queries without weight on these keys are excluded from the mean; a
    head without other queries gets NaN.

    Args:
        weights: ``[H, Q, K]``.
        distances: D, ``[Q, K]``.

    Returns:
        ``[H]``, in the unit of the distances.

    Raises:
        ValueError: the shapes differ.
    """
    w, d = np.asarray(weights, dtype=float), np.asarray(distances, dtype=float)
    if w.ndim != 3 or w.shape[1:] != d.shape:
        raise ValueError(f"weights of shape {w.shape} do not match distances of shape {d.shape}")
    has_weight = w.sum(axis=2) > 0
    total = (unit_rows(w) * d).sum(axis=(1, 2))
    return np.divide(total, has_weight.sum(axis=1), out=np.full(len(w), np.nan), where=has_weight.any(axis=1))


def token_distance(weights: ArrayLike) -> Numbers:
    """Return the `mean_distance` in tokens, ``|i - j|``, of self-attention heads ``[H, T, T]``."""
    positions = np.arange(np.shape(weights)[-1], dtype=float)
    return mean_distance(weights, np.abs(positions[:, None] - positions))


def image_distance(weights: ArrayLike, grid: tuple[int, int], patch: int, before: int = 0) -> Numbers:
    """Return the `mean_distance` in pixels between patches (Dosovitskiy et al. 2021, figures 7 and 11).

    Tokens before the patches (the class token) are excluded as queries and keys; the remaining weights are
    rescaled to sum 1. The paper averages over 128 images; average over yours.

    Args:
        weights: ``[H, before + N, before + N]``.
        grid: rows and columns; N of them.
        patch: P, the side of a patch in pixels.
        before: number of tokens before the patches.
    """
    return mean_distance(np.asarray(weights)[:, before:, before:], patch_distances(grid, patch))


# Output


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a table per stack: layers by heads; clicking a cell opens the head; darker is farther."""
    tables: list[Drawing] = []
    for stack in values["stacks"]:
        farthest = max((value or 0.0) for layer in stack["layers"] for value in layer["distances"]) or 1.0
        title = f"Mean attention distance in {stack['unit']}: {NAMES[stack['kind']]} of the {stack['side']}"
        note = f"uniform attention: {two_places(stack['even'])}"
        tables.append(head_table(title, stack["layers"], "distances", farthest, note=note))
    return tables
