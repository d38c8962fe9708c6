"""View ``heads``: thumbnails and sharpness of all heads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import THUMBNAIL, Numbers, mosaic, thumbnail
from heedful.explain.drawings import Drawing, Heat
from heedful.explain.summary import NAMES
from heedful.explain.views.shared import head_table, headline, rounded_all
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

Stack = tuple[str, str, str]
"""Kind of attention, name of the axis of the queries, name of the axis of the keys."""

NOTE = "rows: queries, columns: keys; colours by the square root of the weight"


def supports(run: LoadedRun) -> bool:
    """Whether the model has attention."""
    return bool(find_sites(run.model))


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the sharpness of each head: the mean over queries of the largest weight.

        sharpness = 1/T sum_i max_j a_ij        from 1/K (uniform over K keys) to 1 (one key per query)

    Source: Voita et al. 2019, section 4.1 ("confidence", there without the end token).

    Returns:
        ``stacks``: for each its ``kind`` and the axes ``queries`` and ``keys``, and ``layers``, each with
        ``layer`` and ``heads`` from 0, ``tap`` and ``sharpness``.

    Raises:
        RequestError: no attention was selected.
    """
    stacks = _stacks(explanations[0])
    if not stacks:
        raise RequestError("view heads needs attention; select some, or remove the selection")
    return {
        "stacks": [
            {
                "kind": kind,
                "queries": queries,
                "keys": keys,
                "layers": [
                    {
                        "layer": attention_map.layer,
                        "tap": attention_map.tap,
                        "heads": [*attention_map.heads],
                        "sharpness": rounded_all(
                            attention_map.weights.max(axis=2).mean(axis=1, dtype=np.float64)
                        ),
                    }
                    for attention_map in maps
                ],
            }
            for (kind, queries, keys), maps in stacks.items()
        ]
    }


def _stacks(explanation: "Explanation") -> dict[Stack, list[AttentionMap]]:
    """Return the maps that have weights by stack, from the first to the last layer."""
    stacks: dict[Stack, list[AttentionMap]] = {}
    for attention_map in explanation.maps:
        if attention_map.weights.size and not attention_map.is_part:
            stacks.setdefault((attention_map.kind, attention_map.queries, attention_map.keys), []).append(
                attention_map
            )
    return stacks


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return tables of sharpness, where clicking a cell opens the head; for images, thumbnails of all heads.

    The page always has thumbnails. Those of a stack share a scale. The colour depends on the square root of
    the weight, because broad heads would be too faint beside sharp ones.
    """
    tables = [
        head_table(_title(stack), stack["layers"], "sharpness", 1.0, media={"page", "terminal"})
        for stack in values["stacks"]
    ]
    return [*tables, *(_thumbnails(*stack, maps) for stack, maps in _stacks(explanation).items())]


def _heads_and_mean(maps: Sequence[AttentionMap]) -> list[int | None]:
    """Return the heads that any layer has, followed by None for their mean if a layer has several."""
    heads = sorted({head for attention_map in maps for head in attention_map.heads})
    return [*heads, None] if any(len(attention_map.heads) > 1 for attention_map in maps) else [*heads]


def _thumbnails(kind: str, queries: str, keys: str, maps: Sequence[AttentionMap]) -> Drawing:
    """Return a mosaic of the heads of each layer and of their mean, with lines between them."""
    rows, columns = maps[0].weights.shape[1:]
    size = f"({rows} \N{MULTIPLICATION SIGN} {columns} tokens)"
    cells = _enlarged(_cells(maps))
    framed = np.pad(cells, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    layers = [f"layer {attention_map.layer + 1}" for attention_map in maps]
    heads = ["mean" if head is None else f"head {head + 1}" for head in _heads_and_mean(maps)]
    title = f"{headline(_name(kind, queries, keys))} {size}"
    return Heat(title, mosaic(framed), layers, heads, power=0.5, note=NOTE, media={"image"})


def _enlarged(cells: Numbers) -> Numbers:
    """Repeat rows and columns so that thumbnails have about `THUMBNAIL` pixels, and are not too narrow."""
    h, w = cells.shape[2:]
    times = max(1, THUMBNAIL // max(h, w))
    down, right = (times * max(1, round(other / (2 * n))) for n, other in ((h, w), (w, h)))
    return cells.repeat(down, axis=2).repeat(right, axis=3)


def _cells(maps: Sequence[AttentionMap]) -> Numbers:
    """Return ``[layers, heads, h, w]``; NaN for heads that a layer does not have."""
    heads = _heads_and_mean(maps)
    shape = thumbnail(maps[0].weights[0].astype(np.float64)).shape
    cells = np.full((len(maps), len(heads), *shape), np.nan)
    for row, attention_map in zip(cells, maps, strict=True):
        for head in attention_map.heads:
            row[heads.index(head)] = thumbnail(attention_map.head(head).astype(np.float64))
        if None in heads:
            row[-1] = thumbnail(attention_map.weights.mean(axis=0, dtype=np.float64))
    return cells


def _name(kind: str, queries: str, keys: str) -> str:
    axes = f"of the {queries}" if queries == keys else f"of the {queries} to the {keys}"
    return f"{NAMES[kind]} {axes}"


def _title(stack: JsonMapping) -> str:
    name = _name(stack["kind"], stack["queries"], stack["keys"])
    return f"Sharpness of each head (1: one key per query): {name}"
