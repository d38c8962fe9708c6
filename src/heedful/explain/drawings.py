"""Images of what heads do: their patterns, how far they look, what they see of an image, how places and
filters look. Like `heedful.explain.heat_map`, whose `save` writes them; what is drawn is the very array that
was given.
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
"""The colour of the line at even attention, as on the page."""
PANELS = 4
"""Images beside each other."""
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
"""The colour of each pattern, beside its sign (`heedful.explain.classes.SIGNS`)."""


def census_map(census: Census) -> Figure:
    """All heads by their patterns, a table for each stack: layers downwards, heads across.

    Patterns are told by sign and colour; only those that occur stand in the legend.

    Raises:
        ValueError: a census without heads.
    """
    stacks: dict[str, list[HeadPattern]] = {}
    for head in census.heads:
        stacks.setdefault(head.kind, []).append(head)
    if not stacks:
        raise ValueError("the census has no heads")
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
    """Cells of one stack; heads that were not looked at stay empty."""
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
    """The heads of a stack.

    Args:
        name: of the stack.
        layers: the names of its rows.
        heads: the names of its columns.
        cells: ``[layers, heads, h, w]``, a thumbnail for each; NaN where there is no such head.
        aspect: how many times as wide as high each is drawn.
    """

    name: str
    layers: Sequence[str]
    heads: Sequence[str]
    cells: Numbers
    aspect: float = 1.0


def head_grids(grids: Sequence[HeadGrid], *, title: str = "", note: str = "") -> Figure:
    """All heads at a glance: a grid of thumbnails for each stack, layers downwards, heads across.

    Heads of a stack share a scale, which ends at its greatest cell. Broad heads are faint beside sharp ones,
    so the colour goes with the square root of the weight: as on the page, and in its colours.

    Args:
        grids: below each other.
        title: stands above.
        note: stands below, small.

    Raises:
        ValueError: there are none, or one whose names are not as many as its thumbnails.
    """
    if not grids or any(g.cells.shape[:2] != (len(g.layers), len(g.heads)) for g in grids):
        raise ValueError("grids of heads have a thumbnail for each layer and head")
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
    """One image of them all, with lines between, in which each thumbnail has about as many pixels."""
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
    """How far each head looks, by depth (Dosovitskiy et al. 2021, figure 7, right): a point for each head.

    Args:
        distances: ``[L, H]``, from the first layer to the last (`heedful.explain.flow.mean_distance`).
        unit: of the distances.
        even: where there is one, the distance of a head that looks at everything evenly, as a line.

    Raises:
        ValueError: the distances are no table.
    """
    return distance_panels([("", unit, distances, even)])


def distance_panels(
    panels: Sequence[tuple[str, str, Any, float | None]], layers: Sequence[Sequence[int]] | None = None
) -> Figure:
    """The same for several stacks, side by side.

    Args:
        panels: of each a title, and the arguments of `distance_chart`.
        layers: of each the numbers of its layers, where they are not 1, 2, 3 …

    Raises:
        ValueError: the distances are no table, or have other layers than there are numbers.
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
        raise ValueError(f"distances are [layers, heads], not of shape {far.shape}")
    numbers = range(1, len(far) + 1) if layers is None else layers
    if len(numbers) != len(far):
        raise ValueError(f"distances of {len(far)} layers, and {len(numbers)} numbers of layers")
    depth = np.broadcast_to(np.asarray(numbers)[:, None], far.shape)
    axes.scatter(depth.ravel(), far.ravel(), s=18, color="#08519c", alpha=0.7, linewidths=0, label="a head")
    if even is not None:
        axes.axhline(even, color="0.4", linewidth=1, linestyle="--", label="even attention")
        axes.legend(fontsize=9, frameon=False)
    axes.set_xticks(numbers)
    axes.set_xlabel("layer", fontsize=9)
    axes.set_ylabel(f"mean attention distance ({unit})", fontsize=9)
    axes.set_ylim(bottom=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def attention_over(values: Any, image: bytes | None = None, **told: Any) -> Figure:
    """Attention ``[rows, columns]`` in the patches of an image: `attention_panels` with one panel.

    Raises:
        ValueError: the values are no grid, or one is negative or no number.
    """
    return attention_panels([("", values)], image, **told)


def attention_panels(
    maps: Sequence[tuple[str, Any]],
    image: bytes | None = None,
    *,
    among: int | None = None,
    title: str = "",
    note: str = "",
) -> Figure:
    """Attention in the patches of an image, panels with titles on one scale, the image itself before them.

    Weights stand beside the image and not over it, where nobody could tell their colours from the
    image's: every colour that is drawn is one of the colour bar. The scale ends at the greatest weight.

    Args:
        maps: of each its title and the weights ``[rows, columns]``, as `heedful.explain.flow.on_grid` and
            `class_map` lay them out.
        image: a PNG.
        among: how many tokens attention is shared among: the bar has a line at even attention, 1 / among,
            and ends no lower.
        title: stands above.
        note: stands below, small.

    Raises:
        ValueError: there are none; or one is as `attention_over` refuses it, or of another size.
    """
    grids = [_grid(values) for _, values in maps]
    if len({grid.shape for grid in grids}) != 1:
        raise ValueError(f"attention in one image is of one size, not of {[grid.shape for grid in grids]}")
    rows, columns = grids[0].shape
    count = len(grids) + (image is not None)
    across = min(PANELS, count)
    down = -(-count // across)
    height = 3.0 if count <= 2 else 2.0
    width = max(height * columns / rows, 1.2)
    even = None if among is None else 1 / among
    greatest = max(even or 0.0, *(float(grid.max()) for grid in grids)) or 1.0
    notes = [note, f"line in the bar: even attention, 1/{among} = {even:.2g}" if even else ""]
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
    """Numbers above zero (blue) and below (red) in grids over an image, beside it, each on its own scale.

    Args:
        maps: of each its title and the numbers ``[rows, columns]``; grids may be of several sizes.
        image: a PNG, shown before them.
        title: stands above.
        note: stands below, small.

    Raises:
        ValueError: there are none, or one is no grid of finite numbers.
    """
    grids = [np.asarray(values, dtype=float) for _, values in maps]
    if not grids or any(grid.ndim != 2 or not grid.size or not np.isfinite(grid).all() for grid in grids):
        raise ValueError(f"maps of an image are grids of finite numbers, not {[g.shape for g in grids]}")
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
    """The image as it is, as large as its patches."""
    pixels = imread(BytesIO(image), format="png")
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5))
    _bare(axes, "the image")


def _bare(axes: Any, name: str) -> None:
    """A panel with its name, without numbers along its axes."""
    axes.set_title(printable(name), fontsize=10, parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])
    quiet(axes)


def _grid(values: Any) -> Numbers:
    weights = np.asarray(values, dtype=float)
    # Written so that NaN is refused too.
    if weights.ndim != 2 or not weights.size or not bool((weights >= 0).all()):
        raise ValueError(f"attention over an image is a grid of weights, not of shape {weights.shape}")
    return weights


def similarity_map(similarity: Any, title: str = "") -> Figure:
    """Cosines of positions, from -1 (red) to 1 (blue).

    Args:
        similarity: ``[N, N]``, drawn as it is; or ``[rows, columns, rows, columns]``, for each patch a small
            map where it lies (Dosovitskiy et al. 2021, figure 7, centre).
        title: stands above.

    Raises:
        ValueError: another shape.
    """
    cosines = np.asarray(similarity, dtype=float)
    if cosines.ndim not in (2, 4) or cosines.shape[: cosines.ndim // 2] != cosines.shape[cosines.ndim // 2 :]:
        raise ValueError(f"similarities are [N, N] or [rows, columns, rows, columns], not {cosines.shape}")
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
    """Tiles ``[n, P, P, C]`` from 0 to 1, left to right and downwards; C is 1 (grey) or 3 (red, green, blue).

    Raises:
        ValueError: another shape.
    """
    given = np.asarray(tiles, dtype=float)
    if given.ndim != 4 or given.shape[3] not in (1, 3) or not len(given):
        raise ValueError(f"tiles are [n, P, P, 1 or 3], not of shape {given.shape}")
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
