"""Draw head classes, attention distances, attention to patches, position similarities, patch filters.

`heedful.explain.heat_map.save` writes the figures. The drawn arrays are the given ones, without processing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Patch

from heedful.explain.canvas import SIGNED, blank, finished, legible, page_colours, quiet, titled
from heedful.explain.classes import PATTERNS, SIGNS, Pattern
from heedful.explain.flow import Numbers
from heedful.explain.heat_map import colours
from heedful.explain.matrix import printable
from heedful.explain.patches import mosaic, tiled
from heedful.explain.patterns import Census, HeadPattern
from heedful.explain.thumbnails import THUMBNAIL

EVEN = "#c2410c"
"""Colour of the line at uniform attention, as on the page."""
PANELS = 4
"""Images per row."""
COLOURS: dict[Pattern, str] = {
    "next token": "#1f77b4",
    "previous token": "#9ecae1",
    "same token": "#31a354",
    "itself": "#a1d99b",
    "same word": "#006d2c",
    "first token": "#e6550d",
    "separator": "#fdae6b",
    "fixed position": "#a63603",
    "same segment": "#756bb1",
    "broad": "#d9d9d9",
    "none": "#ffffff",
}
"""Colour of each class, in addition to its symbol (`heedful.explain.classes.SIGNS`)."""


def census_map(census: Census) -> Figure:
    """Draw all heads by class, a table per stack: layers by heads.

    Classes differ by symbol and colour; the legend lists only those that occur.

    Raises:
        ValueError: the census has no heads.
    """
    stacks: dict[str, list[HeadPattern]] = {}
    for head in census.heads:
        stacks.setdefault(head.kind, []).append(head)
    if not stacks:
        raise ValueError("the census must have at least one head, got none")
    layers = {kind: max(head.layer for head in heads) + 1 for kind, heads in stacks.items()}
    across = max(head.head for head in census.heads) + 1
    down = sum(layers.values())
    figure = blank(max(across * 0.34, 2.0) + 2.6, down * 0.34 + 0.9 * len(stacks))
    panels = figure.subplots(len(stacks), 1, squeeze=False, height_ratios=list(layers.values()))[:, 0]
    for axes, (kind, heads) in zip(panels, stacks.items(), strict=True):
        _table(axes, heads, layers[kind], across)
        axes.set_title(f"{kind} attention", fontsize=10)
    met = [pattern for pattern in PATTERNS if any(head.pattern == pattern for head in census.heads)]
    handles = [Patch(facecolor=COLOURS[p], edgecolor="0.6", label=f"{SIGNS[p]}  {p}") for p in met]
    figure.legend(handles=handles, loc="outside right upper", fontsize=9, frameon=False)
    return figure


def _table(axes: Any, heads: Sequence[HeadPattern], layers: int, across: int) -> None:
    """Draw the cells of one stack; heads that were not selected remain empty."""
    colours = np.ones((layers, across, 4))
    for head in heads:
        sign, colour = SIGNS[head.pattern], COLOURS[head.pattern]
        colours[head.layer, head.head] = matplotlib.colors.to_rgba(colour)
        ink = legible(colours[head.layer, head.head])
        axes.text(head.head, head.layer, sign, ha="center", va="center", color=ink)
    axes.imshow(colours, interpolation="nearest", aspect="equal")
    axes.set_xticks(range(across), range(1, across + 1), fontsize=8)
    axes.set_yticks(range(layers), range(1, layers + 1), fontsize=8)
    axes.set_xlabel("head", fontsize=9)
    axes.set_ylabel("layer", fontsize=9)
    quiet(axes)


@dataclass(frozen=True)
class HeadGrid:
    """Thumbnails of the heads of a stack.

    Args:
        name: of the stack.
        layers: names of the rows.
        heads: names of the columns.
        cells: ``[layers, heads, h, w]``, a thumbnail for each; NaN for missing heads.
        aspect: width of a thumbnail divided by its height.
    """

    name: str
    layers: Sequence[str]
    heads: Sequence[str]
    cells: Numbers
    aspect: float = 1.0


def head_grids(grids: Sequence[HeadGrid], *, title: str = "", note: str = "") -> Figure:
    """Draw an overview of all heads: a grid of thumbnails per stack, layers by heads.

    Heads of a stack share a scale, which ends at the largest cell. The colour depends on the square root of
    the weight, because broad heads would be too faint beside sharp ones; the colours are those of the page.

    Args:
        grids: from top to bottom.
        title: above the grids.
        note: below the grids, in small type.

    Raises:
        ValueError: there are no grids, or the names do not match the thumbnails.
    """
    if not grids or any(g.cells.shape[:2] != (len(g.layers), len(g.heads)) for g in grids):
        raise ValueError(
            "grids must have a name for each layer and head, and there must be at least one grid"
        )
    across = max(len(grid.heads) for grid in grids)
    thumb = min(max(7.2 / across, 0.36), 0.9)
    widths = [len(grid.heads) * thumb * min(1.0, grid.aspect) for grid in grids]
    heights = [len(grid.layers) * thumb / max(1.0, grid.aspect) for grid in grids]
    longest = max(len(grid.name) for grid in grids)
    figure = blank(max(max(widths) + 1.5, 0.085 * longest + 0.8), sum(heights) + 0.85 * len(grids) + 0.5)
    panels = figure.subplots(len(grids), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, grid, width in zip(panels, grids, widths, strict=True):
        drawing = _thumbnails(axes, grid)
        ticks = [0, drawing.norm.vmax / 4, drawing.norm.vmax]
        beside = axes.inset_axes((1 + 0.12 / width, 0, 0.13 / width, 1))
        bar = figure.colorbar(drawing, cax=beside, ticks=ticks)
        bar.ax.set_yticklabels([f"{tick:.2g}" for tick in ticks], fontsize=8)
        bar.outline.set_visible(False)
    titled(figure, title, note)
    return finished(figure)


def _thumbnails(axes: Any, grid: HeadGrid) -> Any:
    """Draw all thumbnails as one image with lines between them, each of about `THUMBNAIL` pixels."""
    h, w = grid.cells.shape[2:]
    down, right = (max(1, THUMBNAIL // n) for n in (h, w))
    large = grid.cells.repeat(down, axis=2).repeat(right, axis=3)
    pixels = mosaic(np.pad(large, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=np.nan))
    most = float(np.nanmax(grid.cells)) or 1.0
    height, width = h * down + 3, w * right + 3
    drawing = axes.imshow(
        pixels,
        cmap=page_colours(),
        norm=PowerNorm(0.5, vmin=0, vmax=most),
        interpolation="none",
        aspect=width / height / grid.aspect,
    )
    axes.set_anchor("W")
    axes.set_title(printable(grid.name), fontsize=10, loc="left", parse_math=False)
    axes.set_xticks((np.arange(len(grid.heads)) + 0.5) * width - 1, grid.heads, fontsize=8)
    axes.set_yticks((np.arange(len(grid.layers)) + 0.5) * height - 1, grid.layers, fontsize=8)
    axes.set_xlabel("head", fontsize=9)
    axes.set_ylabel("layer", fontsize=9)
    quiet(axes)
    return drawing


def distance_chart(distances: Any, *, unit: str = "pixels", even: float | None = None) -> Figure:
    """Draw attention distances by layer, a point per head (Dosovitskiy et al. 2021, figure 7, right).

    Args:
        distances: ``[L, H]``, from the first to the last layer (`heedful.explain.flow.mean_distance`).
        unit: of the distances.
        even: distance of uniform attention, drawn as a line; or None.

    Raises:
        ValueError: the distances are not a matrix.
    """
    return distance_panels([("", unit, distances, even)])


def distance_panels(
    panels: Sequence[tuple[str, str, Any, float | None]], layers: Sequence[Sequence[int]] | None = None
) -> Figure:
    """Draw the attention distances of several stacks side by side.

    Args:
        panels: for each a title, and the arguments of `distance_chart`.
        layers: layer numbers of each panel; by default 1, 2, 3, ...

    Raises:
        ValueError: the distances are not a matrix, or do not match the layer numbers.
    """
    figure = blank(5.2 * len(panels), 3.6)
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    numbers: Sequence[Sequence[int] | None] = [None] * len(panels) if layers is None else layers
    for axes, (title, unit, distances, even), own in zip(every, panels, numbers, strict=True):
        _distances(axes, distances, unit, even, own)
        axes.set_title(title, fontsize=10)
    return figure


def _distances(
    axes: Any, distances: Any, unit: str, even: float | None, layers: Sequence[int] | None
) -> None:
    far = np.asarray(distances, dtype=float)
    if far.ndim != 2:
        raise ValueError(f"distances must be [layers, heads], got {far.shape}")
    numbers = range(1, len(far) + 1) if layers is None else layers
    if len(numbers) != len(far):
        raise ValueError(f"expected {len(far)} layer numbers, one per row of distances, got {len(numbers)}")
    depth = np.broadcast_to(np.asarray(numbers)[:, None], far.shape)
    axes.scatter(depth.ravel(), far.ravel(), s=18, color="#08519c", alpha=0.7, linewidths=0, label="head")
    if even is not None:
        axes.axhline(even, color="0.4", linewidth=1, linestyle="--", label="uniform attention")
        axes.legend(fontsize=9, frameon=False)
    axes.set_xticks(numbers)
    axes.set_xlabel("layer", fontsize=9)
    axes.set_ylabel(f"mean attention distance ({unit})", fontsize=9)
    axes.set_ylim(bottom=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def attention_over(values: Any, image: bytes | None = None, **options: Any) -> Figure:
    """Draw attention ``[rows, columns]`` to image patches: `attention_panels` with one panel.

    Raises:
        ValueError: the values are not a matrix, or one is negative or NaN.
    """
    return attention_panels([("", values)], image, **options)


def attention_panels(
    maps: Sequence[tuple[str, Any]],
    image: bytes | None = None,
    *,
    among: int | None = None,
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw attention to image patches in panels on one scale, preceded by the image itself.

    Heat maps are beside the image, not on top of it, so that their colours are not confused with those of the
    image. The scale ends at the largest weight.

    Args:
        maps: for each its title and the weights ``[rows, columns]`` (`heedful.explain.patches.on_grid`,
            `class_map`).
        image: a PNG.
        among: number of tokens that each row sums over: the colour bar marks uniform attention, 1 / among,
            and extends at least to it.
        title: above the panels.
        note: below the panels, in small type.

    Raises:
        ValueError: there are no maps, their sizes differ, or one is invalid as in `attention_over`.
    """
    grids = [_grid(values) for _, values in maps]
    if len({grid.shape for grid in grids}) != 1:
        raise ValueError(f"all maps must have the same shape, got {[grid.shape for grid in grids]}")
    rows, columns = grids[0].shape
    count = len(grids) + (image is not None)
    across = min(PANELS, count)
    down = -(-count // across)
    height = 3.0 if count <= 2 else 2.0
    width = max(height * columns / rows, 1.2)
    even = None if among is None else 1 / among
    greatest = max(even or 0.0, *(float(grid.max()) for grid in grids)) or 1.0
    notes = [note, f"line in the colour bar: uniform attention, 1/{among} = {even:.2g}" if even else ""]
    figure = blank(across * width + 1.2, down * (height + 0.25) + 0.7)
    panels = list(figure.subplots(down, across, squeeze=False).ravel())
    for axes in panels[count:]:
        axes.set_axis_off()
    if image is not None:
        _photo(panels[0], image, rows, columns)
    drawn = zip(panels[count - len(grids) :], maps, grids, strict=False)
    for axes, (name, _), grid in drawn:
        drawing = axes.imshow(grid, cmap=colours(), vmin=0, vmax=greatest, interpolation="nearest")
        _bare(axes, name)
    bar = figure.colorbar(drawing, ax=panels, shrink=0.8 / down**0.5, aspect=16, pad=0.03)
    bar.outline.set_visible(False)
    if even is not None:
        bar.ax.axhline(even, color=EVEN, linewidth=2)
    titled(figure, title, "\n".join(filter(None, notes)))
    return finished(figure)


def signed_panels(
    maps: Sequence[tuple[str, Any]], image: bytes | None = None, *, title: str = "", note: str = ""
) -> Figure:
    """Draw positive (blue) and negative (red) values on grids beside an image, each on its own scale.

    Args:
        maps: for each its title and the values ``[rows, columns]``; grids may differ in size.
        image: a PNG, drawn first.
        title: above the panels.
        note: below the panels, in small type.

    Raises:
        ValueError: there are no maps, or one is not a matrix of finite values.
    """
    grids = [np.asarray(values, dtype=float) for _, values in maps]
    if not grids or any(grid.ndim != 2 or not grid.size or not np.isfinite(grid).all() for grid in grids):
        raise ValueError(f"maps must be non-empty matrices of finite values, got {[g.shape for g in grids]}")
    count, height = len(grids) + (image is not None), 3.0
    width = max(height * grids[0].shape[1] / grids[0].shape[0], 1.6)
    figure = blank(count * (width + 0.15), height + 1.3)
    panels, bars = figure.subplots(2, count, squeeze=False, height_ratios=[height, 0.12])
    if image is not None:
        _photo(panels[0], image, *grids[0].shape)
        bars[0].set_axis_off()
    first = count - len(grids)
    for axes, below, (name, _), grid in zip(panels[first:], bars[first:], maps, grids, strict=True):
        most = float(np.abs(grid).max()) or 1.0
        drawing = axes.imshow(grid, cmap=SIGNED, vmin=-most, vmax=most, interpolation="nearest")
        _bare(axes, name)
        bar = figure.colorbar(drawing, cax=below, orientation="horizontal")
        bar.set_ticks([-most, 0, most], labels=[f"{-most:.2g}", "0", f"{most:.2g}"])
        for label, side in zip(below.get_xticklabels(), ("left", "center", "right"), strict=True):
            label.set_horizontalalignment(side)
        bar.outline.set_visible(False)
    titled(figure, title, note)
    return finished(figure)


def _photo(axes: Any, image: bytes, rows: int, columns: int) -> None:
    """Draw the image at the size of its patches."""
    pixels = imread(BytesIO(image), format="png")
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5))
    _bare(axes, "the image")


def _bare(axes: Any, name: str) -> None:
    """Set a title, and remove the ticks."""
    axes.set_title(printable(name), fontsize=10, parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])
    quiet(axes)


def _grid(values: Any) -> Numbers:
    weights = np.asarray(values, dtype=float)
    # NaN fails the comparison.
    if weights.ndim != 2 or not weights.size or not bool((weights >= 0).all()):
        raise ValueError(f"attention must be a matrix of non-negative weights, got shape {weights.shape}")
    return weights


def similarity_map(similarity: Any, title: str = "") -> Figure:
    """Draw cosine similarities of positions, from -1 (red) to 1 (blue).

    Args:
        similarity: ``[N, N]``, drawn as it is; or ``[rows, columns, rows, columns]``, a small map per patch
            at its location (Dosovitskiy et al. 2021, figure 7, centre).
        title: above the map.

    Raises:
        ValueError: the shape is different.
    """
    cosines = np.asarray(similarity, dtype=float)
    if cosines.ndim not in (2, 4) or cosines.shape[: cosines.ndim // 2] != cosines.shape[cosines.ndim // 2 :]:
        raise ValueError(f"similarity must be [N, N] or [rows, columns, rows, columns], got {cosines.shape}")
    if cosines.ndim == 4:
        cosines = mosaic(cosines)
    figure = blank(4.6, 4.0)
    axes = figure.add_subplot()
    drawing = axes.imshow(cosines, cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest", aspect="equal")
    figure.colorbar(drawing, ax=axes, shrink=0.8, aspect=16, pad=0.03).outline.set_visible(False)
    _bare(axes, "")
    titled(figure, title, "")
    return figure


def filter_tiles(tiles: Any, columns: int = 7, title: str = "") -> Figure:
    """Draw tiles ``[n, P, P, C]`` with values from 0 to 1, from left to right; C is 1 (grey) or 3 (RGB).

    Raises:
        ValueError: the shape is different, or there are no tiles.
    """
    given = np.asarray(tiles, dtype=float)
    if given.ndim != 4 or given.shape[3] not in (1, 3) or not len(given):
        raise ValueError(f"tiles must be [n, P, P, 1 or 3] with n > 0, got {given.shape}")
    columns = min(columns, len(given))
    rows = -(-len(given) // columns)
    joined = tiled(given, columns)
    figure = blank(max(0.8 * columns + 0.3, 3.2), 0.8 * rows + (0.8 if title else 0.3))
    axes = figure.add_subplot()
    white = np.where(np.isnan(joined), 1.0, joined)
    axes.imshow(np.repeat(white, 3 // white.shape[2], axis=2), interpolation="nearest", aspect="equal")
    axes.set_axis_off()
    titled(figure, title, "")
    return figure
