"""Pictures of what heads do: their patterns, how far they look, what they see of a picture, how places and
filters look. Like `heedful.explain.picture`, whose `save` writes them; what is drawn is the very array that
was given.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Patch

from heedful.explain.classes import PATTERNS, SIGNS, Pattern
from heedful.explain.flow import Numbers, mosaic, tiled
from heedful.explain.patterns import Census, HeadPattern

DPI = 144
PANELS = 4
"""Pictures beside each other."""
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
    figure = _figure(max(across * 0.34, 2.0) + 2.6, down * 0.34 + 0.9 * len(stacks))
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
        dark = colours[head.layer, head.head, :3] @ (0.2126, 0.7152, 0.0722) < 0.5
        axes.text(head.head, head.layer, sign, ha="center", va="center", color="white" if dark else "black")
    axes.imshow(colours, interpolation="nearest", aspect="equal")
    axes.set_xticks(range(across), range(1, across + 1), fontsize=8)
    axes.set_yticks(range(layers), range(1, layers + 1), fontsize=8)
    axes.set_xlabel("head", fontsize=9)
    axes.set_ylabel("layer", fontsize=9)
    _quiet(axes)


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
    figure = _figure(5.2 * len(panels), 3.6)
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


def attention_over(values: Any, picture: bytes | None = None) -> Figure:
    """Attention ``[rows, columns]`` over the squares of a picture; the scale ends at the greatest weight.

    Args:
        values: as `heedful.explain.flow.on_grid` and `class_map` lay them out.
        picture: a PNG; the squares are laid over it.

    Raises:
        ValueError: the values are no grid, or one is negative or no number.
    """
    return attention_panels({"": values}, picture)


def attention_panels(maps: Mapping[str, Any], picture: bytes | None = None) -> Figure:
    """Several of `attention_over` with their titles, on one scale.

    Raises:
        ValueError: there are none; or one is as `attention_over` refuses it, or of another size.
    """
    grids = [_grid(values) for values in maps.values()]
    if len({grid.shape for grid in grids}) != 1:
        raise ValueError(
            f"attention over one picture is of one size, not of {[grid.shape for grid in grids]}"
        )
    rows, columns = grids[0].shape
    across = min(PANELS, len(grids))
    down = -(-len(grids) // across)
    height = 3.4 if len(grids) == 1 else 2.0
    width = max(height * columns / rows, 1.2)
    figure = _figure(across * width + 1.2, down * (height + 0.25 * (len(grids) > 1)))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    greatest = max(float(grid.max()) for grid in grids) or 1.0
    for axes in panels[len(grids) :]:
        axes.set_axis_off()
    for axes, (title, grid) in zip(panels, zip(maps, grids, strict=True), strict=False):
        image = _over(axes, grid, picture, greatest)
        axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=list(panels), shrink=0.8, aspect=16, pad=0.03).outline.set_visible(False)
    return figure


def _grid(values: Any) -> Numbers:
    weights = np.asarray(values, dtype=float)
    # Written so that NaN is refused too.
    if weights.ndim != 2 or not weights.size or not bool((weights >= 0).all()):
        raise ValueError(f"attention over a picture is a grid of weights, not of shape {weights.shape}")
    return weights


def _over(axes: Any, weights: Numbers, picture: bytes | None, greatest: float) -> Any:
    """Draw one grid of weights, over the picture where there is one; what the scale is made for."""
    rows, columns = weights.shape
    if picture is not None:
        pixels = imread(BytesIO(picture), format="png")
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5))
    image = axes.imshow(
        weights,
        cmap="magma",
        vmin=0,
        vmax=greatest,
        alpha=1.0 if picture is None else 0.6,
        interpolation="nearest",
        aspect="equal",
    )
    axes.set_xticks([])
    axes.set_yticks([])
    _quiet(axes)
    return image


def similarity_map(similarity: Any) -> Figure:
    """Cosines of positions, from -1 to 1.

    Args:
        similarity: ``[N, N]``, drawn as it is; or ``[rows, columns, rows, columns]``, for each square a small
            map where it lies (Dosovitskiy et al. 2021, figure 7, centre).

    Raises:
        ValueError: another shape.
    """
    cosines = np.asarray(similarity, dtype=float)
    if cosines.ndim not in (2, 4) or cosines.shape[: cosines.ndim // 2] != cosines.shape[cosines.ndim // 2 :]:
        raise ValueError(f"similarities are [N, N] or [rows, columns, rows, columns], not {cosines.shape}")
    if cosines.ndim == 4:
        cosines = mosaic(cosines)
    figure = _figure(4.6, 4.0)
    axes = figure.add_subplot()
    image = axes.imshow(cosines, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest", aspect="equal")
    figure.colorbar(image, ax=axes, shrink=0.8, aspect=16, pad=0.03).outline.set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    _quiet(axes)
    return figure


def filter_tiles(tiles: Any, columns: int = 7) -> Figure:
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
    figure = _figure(0.62 * columns + 0.3, 0.62 * rows + 0.3)
    axes = figure.add_subplot()
    white = np.where(np.isnan(joined), 1.0, joined)
    axes.imshow(np.repeat(white, 3 // white.shape[2], axis=2), interpolation="nearest", aspect="equal")
    axes.set_axis_off()
    return figure


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _quiet(axes: Any) -> None:
    """No marks at the labels, and a light frame."""
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_color("0.6")
