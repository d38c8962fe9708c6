"""View ``heads``: thumbnails and sharpness of all heads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import THUMBNAIL, Numbers, mosaic, printable, thumbnail
from heedful.explain.drawings import Drawing
from heedful.explain.summary import NAMES
from heedful.explain.views.shared import Figure, head_lines, head_table, headline, rounded_all
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

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


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
    """Return a line per layer: the mean of its heads, then each head."""
    return [
        line
        for stack in values["stacks"]
        for line in (_title(stack), *head_lines(stack["layers"], "sharpness", 5))
    ]


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return tables of sharpness; clicking a cell opens the head. The page always has thumbnails."""
    return [
        head_table(headline(_title(stack)), stack["layers"], "sharpness", 1.0) for stack in values["stacks"]
    ]


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
    """Draw a thumbnail of each head and of the mean of each layer: a grid per stack, layers by heads.

    Heads of a stack share a scale, which ends at the largest cell. The colour depends on the square root of
    the weight, because broad heads would be too faint beside sharp ones; the colours are those of the page.
    """
    from heedful.explain.drawing.canvas import finish_figure, new_figure

    stacks = _stacks(explanation)
    cells = [_thumbnails(maps) for maps in stacks.values()]
    sizes = [maps[0].weights.shape[1:] for maps in stacks.values()]
    names = [
        f"{_name(*stack)} ({rows} \N{MULTIPLICATION SIGN} {columns} tokens)"
        for stack, (rows, columns) in zip(stacks, sizes, strict=True)
    ]
    aspects = [min(max(columns / rows, 0.5), 2.0) for rows, columns in sizes]
    n_columns = max(grid.shape[1] for grid in cells)
    thumb = min(max(7.2 / n_columns, 0.36), 0.9)
    widths = [grid.shape[1] * thumb * min(1.0, aspect) for grid, aspect in zip(cells, aspects, strict=True)]
    heights = [len(grid) * thumb / max(1.0, aspect) for grid, aspect in zip(cells, aspects, strict=True)]
    width = max(max(widths) + 1.5, 0.085 * max(map(len, names)) + 0.8)
    fig = new_figure(width, sum(heights) + 0.85 * len(stacks) + 0.5)
    panels = fig.subplots(len(stacks), 1, squeeze=False, height_ratios=heights)[:, 0]
    for n, (axes, maps) in enumerate(zip(panels, stacks.values(), strict=True)):
        scale_max = float(np.nanmax(cells[n])) or 1.0
        image = _draw_thumbnails(axes, names[n], maps, cells[n], aspects[n], scale_max)
        ticks = [0, scale_max / 4, scale_max]
        bar_axes = axes.inset_axes((1 + 0.12 / widths[n], 0, 0.13 / widths[n], 1))
        bar = fig.colorbar(image, cax=bar_axes, ticks=ticks)
        bar.ax.set_yticklabels([f"{tick:.2g}" for tick in ticks], fontsize=8)
        bar.outline.set_visible(False)
    return finish_figure(fig, explanation.text, NOTE)


def _heads_and_mean(maps: Sequence[AttentionMap]) -> list[int | None]:
    """Return the heads that any layer has, followed by None for their mean if a layer has several."""
    heads = sorted({head for attention_map in maps for head in attention_map.heads})
    return [*heads, None] if any(len(attention_map.heads) > 1 for attention_map in maps) else [*heads]


def _thumbnails(maps: Sequence[AttentionMap]) -> Numbers:
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


def _draw_thumbnails(
    axes: "Axes", name: str, maps: Sequence[AttentionMap], cells: Numbers, aspect: float, scale_max: float
) -> "AxesImage":
    """Draw the thumbnails of a stack as one image with lines between them, each of about `THUMBNAIL` pixels.

    The aspect is the width of a thumbnail divided by its height; ``scale_max`` has the darkest colour.
    """
    from matplotlib.colors import PowerNorm

    from heedful.explain.drawing.canvas import label_heads, page_colours

    h, w = cells.shape[2:]
    down, right = (max(1, THUMBNAIL // n) for n in (h, w))
    large = cells.repeat(down, axis=2).repeat(right, axis=3)
    pixels = mosaic(np.pad(large, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=np.nan))
    height, width = h * down + 3, w * right + 3
    image = axes.imshow(
        pixels,
        cmap=page_colours(),
        norm=PowerNorm(0.5, vmin=0, vmax=scale_max),
        interpolation="none",
        aspect=width / height / aspect,
    )
    axes.set_anchor("W")
    axes.set_title(printable(name), fontsize=10, loc="left", parse_math=False)
    columns = ["mean" if head is None else str(head + 1) for head in _heads_and_mean(maps)]
    label_heads(
        axes,
        ((np.arange(len(maps)) + 0.5) * height - 1, [str(attention_map.layer + 1) for attention_map in maps]),
        ((np.arange(len(columns)) + 0.5) * width - 1, columns),
    )
    return image


def _name(kind: str, queries: str, keys: str) -> str:
    axes = f"of the {queries}" if queries == keys else f"of the {queries} to the {keys}"
    return f"{NAMES[kind]} {axes}"


def _title(stack: JsonMapping) -> str:
    name = _name(stack["kind"], stack["queries"], stack["keys"])
    return f"sharpness of each head (1: one key per query): {name}"
