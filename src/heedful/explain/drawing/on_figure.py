"""Draw each kind of drawing with matplotlib, and several drawings one below another in one figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from io import BytesIO
from math import ceil
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm, to_rgba
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage, imread

from heedful.errors import RequestError
from heedful.explain.drawing.canvas import (
    ROW_HEIGHT,
    SIGNED,
    UNIFORM_COLOUR,
    check_rows,
    check_size,
    colours,
    draw_photo,
    finish_figure,
    label_cells,
    label_rows,
    new_figure,
    set_title_without_ticks,
    shorten,
    style_frame,
    text_colour,
    text_width,
    wrap_lines,
)
from heedful.explain.drawing.matrix import number_format, printable
from heedful.explain.drawings import (
    Cell,
    CellLike,
    Drawing,
    Heat,
    PatchPanel,
    PatchValues,
    Picture,
    Table,
    TokenValues,
    cell_text,
)
from heedful.tasks.model_input import Axis

CELL_INCHES = 0.42
"""Side of a named cell of a heat map."""
CHARACTER_INCHES = 0.1
"""Width of a character of the labels of a heat map."""
DIGITS = 6
"""Decimal places of values, so that rounding errors do not extend the scale by a tenth."""
NARROWEST = 4.2
"""Minimum inches of a drawing's width, with its title and note."""
NARROWEST_PART = 0.24
"""Minimum inches of a row or column, or part of several, that has a name."""
SHORTEST_BAR = 0.8
"""Minimum inches of the longest bar."""
PANELS_PER_ROW = 4
"""Images per row."""
LONGEST_LABEL = 28
"""Maximum characters of a row's label."""
LONGEST_CELL = 18
"""Maximum characters of a table's cell."""
LARGEST_SIDE = 3.6
"""Inches of the larger side of a heat map without names."""
MUTED, PLAIN = "#c8ccd2", "#2f6ca6"
"""Colours of bars: of muted tokens, and of others if no number is negative."""


@dataclass(frozen=True)
class Layout:
    """How a drawing is drawn.

    Args:
        width, height: its size in inches, without title and note.
        draw: draws it in a part of a figure.
        note: above its note.
    """

    width: float
    height: float
    draw: Callable[[SubFigure], None]
    note: str = ""


def figure(
    drawings: Sequence[Drawing], axes: Mapping[str, Axis], *, title: str = "", note: str = ""
) -> Figure:
    """Draw drawings one below another.

    Args:
        drawings: the drawings; those that are not for images are left out.
        axes: the axes of the explanation.
        title: above them, one paragraph per line; long lines are wrapped.
        note: below them, in small type.

    Raises:
        RequestError: there is nothing to draw, or too much to be readable.
    """
    shown = [drawing for drawing in drawings if "image" in drawing.media]
    if not shown:
        raise RequestError(
            "the view has no values for this input (the answer is empty, or the filters are equal), so there "
            "is nothing to draw"
        )
    layouts = [_layout(drawing, axes) for drawing in shown]
    widths = [max(layout.width, NARROWEST) for layout in layouts]
    texts = [
        (
            wrap_lines(drawing.title, int(12 * width)),
            wrap_lines("\n".join(filter(None, (layout.note, drawing.note))), int(14 * width)),
        )
        for drawing, layout, width in zip(shown, layouts, widths, strict=True)
    ]
    heights = [
        layout.height + 0.2 * (_n_lines(above) + _n_lines(below)) + 0.2
        for layout, (above, below) in zip(layouts, texts, strict=True)
    ]
    full = max(widths)
    around = _n_lines(wrap_lines(title, int(11 * full))) + _n_lines(wrap_lines(note, int(14 * full)))
    whole = new_figure(full, sum(heights) + 0.22 * around)
    rows = whole.subfigures(len(shown), 1, height_ratios=heights, squeeze=False)[:, 0]
    for row, width, layout, (above, below) in zip(rows, widths, layouts, texts, strict=True):
        part = _middle(row, width / full)
        layout.draw(part)
        if above:
            part.suptitle(above, fontsize=10, parse_math=False)
        if below:
            part.supxlabel(below, fontsize=9, color="0.35", parse_math=False)
    return finish_figure(whole, title, note)


def _middle(row: SubFigure, share: float) -> SubFigure:
    """Return the middle part of a row, of this share of its width."""
    if share > 0.95:
        return row
    edge = (1 - share) / 2
    parts = row.subfigures(1, 3, squeeze=False, width_ratios=[edge, share, edge])
    middle: SubFigure = parts[0, 1]
    return middle


def _n_lines(text: str) -> int:
    return 1 + text.count("\n") if text else 0


@singledispatch
def _layout(drawing: Drawing, axes: Mapping[str, Axis]) -> Layout:
    raise NotImplementedError


# Bars


@_layout.register
def _(drawing: TokenValues, axes: Mapping[str, Axis]) -> Layout:
    """A horizontal bar per token, with its number at the end; an infinite one is as long as the longest."""
    rows = drawing.rows(axes)
    check_rows(len(rows))
    values = np.array([row.value for row in rows], dtype=float)
    limit = drawing.scale or float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    is_signed = bool((values < 0).any())
    labels = [shorten(row.label, LONGEST_LABEL) for row in rows]
    form = number_format(values)
    numbers = [f"{value:{form}}" for value in values]
    # The axis reaches beyond the longest bar by as much as its number needs.
    number_width = max((text_width(number, 8) for number in numbers), default=0.0) + 0.12
    label_width = max((text_width(label, 9) for label in labels), default=0.0) + 0.3
    width = max(6.0, label_width + 2 * (number_width + SHORTEST_BAR))
    longest_bar = (width - label_width) / (1 + is_signed) - number_width
    end = limit * (longest_bar + number_width) / longest_bar

    def draw(part: SubFigure) -> None:
        panel = part.add_subplot()
        shades = [to_rgba(PLAIN)] * len(rows)
        if is_signed:
            shades = [*map(tuple, matplotlib.colormaps[SIGNED](0.5 + 0.5 * values / limit))]
        shades = [to_rgba(MUTED) if row.is_muted else own for row, own in zip(rows, shades, strict=True)]
        bars = panel.barh(
            range(len(rows)),
            values.clip(-limit, limit),
            height=0.72,
            color=shades,
            edgecolor="0.6",
            linewidth=0.4 * is_signed,
        )
        panel.bar_label(bars, numbers, padding=3, fontsize=8, color="0.35")
        panel.axvline(0, color="0.6", linewidth=0.8)
        panel.set_xlim(-end if is_signed else 0, end)
        panel.set_ylim(len(rows) - 0.4, -0.6)
        panel.set_xticks([])
        label_rows(panel, labels)
        panel.set_xlabel(drawing.name, fontsize=9)

    return Layout(width, ROW_HEIGHT * len(rows) + 0.5, draw)


# Tables


@_layout.register
def _(drawing: Table, axes: Mapping[str, Axis]) -> Layout:
    """A grid of cells with their colours; the first column labels the rows."""
    columns = [shorten(name, LONGEST_LABEL) for name in drawing.columns[1:]]
    labels = [shorten(cell_text(row[0]), LONGEST_LABEL) for row in drawing.rows]
    cells = [row[1:] for row in drawing.rows]
    check_size(len(cells), len(columns))
    texts = [[_shortened_cell(cell) for cell in row] for row in cells]
    longest = max(map(len, (*columns, *(text for row in texts for text in row))), default=1)
    column_width = 0.078 * longest + 0.2
    margin = 0.085 * max(map(len, labels), default=1) + 0.5

    def draw(part: SubFigure) -> None:
        panel = part.add_subplot()
        backgrounds = np.array([[_background(cell) for cell in row] for row in cells])
        panel.imshow(backgrounds, aspect="auto", interpolation="nearest")
        for i, j in np.ndindex(len(cells), len(columns)):
            cell = cells[i][j]
            panel.text(
                j,
                i,
                texts[i][j],
                ha="center",
                va="center",
                fontsize=8.5,
                color=text_colour(backgrounds[i, j].tolist()),
                weight="bold" if isinstance(cell, Cell) and cell.is_emphasised else "normal",
                parse_math=False,
            )
        panel.xaxis.tick_top()
        panel.set_xticks(range(len(columns)), columns, fontsize=9)
        _draw_lines_between(panel, len(cells), len(columns))
        label_rows(panel, labels)
        panel.tick_params(axis="x", labelsize=9)
        panel.set_ylabel(drawing.columns[0], fontsize=9)

    return Layout(len(columns) * column_width + margin, 0.26 * len(cells) + 0.4, draw)


def _shortened_cell(cell: CellLike) -> str:
    """Return the text of a cell, of which not the probability is shortened."""
    if isinstance(cell, Cell) and cell.probability is not None:
        return f"{shorten(cell.text, LONGEST_CELL - 5)} {cell.probability:.2f}"
    return shorten(cell_text(cell), LONGEST_CELL)


def _background(cell: CellLike) -> tuple[float, float, float, float]:
    """Return the colour of a cell."""
    if not isinstance(cell, Cell):
        return to_rgba("white")
    share = cell.share if cell.probability is None else cell.probability
    return to_rgba(cell.colour or "white") if share is None else colours()(float(share))


def _draw_lines_between(panel: Axes, n_rows: int, n_columns: int) -> None:
    panel.set_xticks([i + 0.5 for i in range(n_columns - 1)], minor=True)
    panel.set_yticks([i + 0.5 for i in range(n_rows - 1)], minor=True)
    panel.grid(which="minor", color="0.85", linewidth=0.6)
    style_frame(panel)


# Numbers over an image


@_layout.register
def _(drawing: PatchValues, axes: Mapping[str, Axis]) -> Layout:
    """Panels beside the image, not on top of it, so that their colours are not confused with the image's."""
    image, panels = axes[drawing.axis].image, drawing.panels
    uniform = None if drawing.among is None else 1 / drawing.among
    is_signed = any(float(panel.values.min()) < 0 for panel in panels)
    limits = [max(uniform or 0.0, float(np.abs(panel.values).max())) for panel in panels]
    limits = [limit or 1.0 for limit in (limits if drawing.apart else [max(limits)] * len(panels))]
    n_panels = len(panels) + (image is not None)
    n_columns = min(PANELS_PER_ROW, n_panels)
    n_rows = -(-n_panels // n_columns)
    rows, columns = panels[0].values.shape
    height = 3.0 if n_panels <= 3 else 2.0
    longest = max(map(len, (printable(panel.label) for panel in panels)))
    width = max(height * columns / rows, 1.6)

    def draw(part: SubFigure) -> None:
        places = list(part.subplots(n_rows, n_columns, squeeze=False).ravel())
        for place in places[n_panels:]:
            place.set_axis_off()
        if image is not None:
            draw_photo(places[0], image, rows, columns)
        shown = places[n_panels - len(panels) : n_panels]
        for place, panel, limit in zip(shown, panels, limits, strict=True):
            drawn = _draw_panel(place, panel, limit, is_signed, int(9 * width))
            if drawing.apart:
                _draw_scale(
                    part,
                    drawn,
                    limit,
                    is_signed,
                    uniform,
                    ax=place,
                    location="bottom",
                    aspect=20,
                    shrink=0.85,
                )
        if not drawing.apart:
            shrink = 0.8 / n_rows**0.5
            _draw_scale(
                part, drawn, limits[0], is_signed, uniform, ax=places, shrink=shrink, aspect=16, pad=0.03
            )

    note = ""
    if uniform is not None:
        note = f"line in the colour bar: uniform attention, 1/{drawing.among} = {uniform:.2g}"
    extra = 0.25 + 0.2 * (longest > 9 * width) + 0.4 * drawing.apart
    return Layout(n_columns * (width + 0.15) + 1.0, n_rows * (height + extra), draw, note)


def _draw_panel(place: Axes, panel: PatchPanel, limit: float, is_signed: bool, line: int) -> AxesImage:
    low, cmap = (-limit, matplotlib.colormaps[SIGNED]) if is_signed else (0.0, colours())
    drawn = place.imshow(panel.values, cmap=cmap, vmin=low, vmax=limit, interpolation="nearest")
    set_title_without_ticks(place, wrap_lines(panel.label, line))
    return drawn


def _draw_scale(
    part: SubFigure, drawn: AxesImage, limit: float, is_signed: bool, uniform: float | None, **where: Any
) -> None:
    """Draw a colour bar, with a line at uniform attention."""
    ticks = [-limit, 0.0, limit] if is_signed else [0.0, limit / 2, limit]
    bar = part.colorbar(drawn, ticks=ticks, **where)
    bar.outline.set_visible(False)
    labels = [f"{tick:.2g}" for tick in ticks]
    if bar.orientation == "horizontal":
        bar.ax.set_xticklabels(labels, fontsize=8)
        first, _, last = bar.ax.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
    else:
        bar.ax.set_yticklabels(labels, fontsize=8)
    if uniform is not None:
        line = bar.ax.axvline if bar.orientation == "horizontal" else bar.ax.axhline
        line(uniform, color=UNIFORM_COLOUR, linewidth=2)


# Matrices


@_layout.register
def _(drawing: Heat, axes: Mapping[str, Axis]) -> Layout:
    """A heat map from 0 (white) to dark blue, or from -1 (red) to 1 (blue).

    The scale from 0 ends at the largest value, rounded up to a tenth if it is larger than that, because means
    of many heads would be pale on a scale up to 1.
    """
    values = drawing.values
    rows, columns = ([printable(name) for name in names] for names in (drawing.rows, drawing.columns))
    if drawing.has_named_cells:
        check_size(len(rows), len(columns))
    width, height = _heat_size(drawing)
    longest = max(map(len, [*columns, ""]))
    is_slanted = longest * CHARACTER_INCHES > width / max(1, len(columns))
    is_signed = bool(np.nanmin(values, initial=0.0) < 0)
    largest = round(float(np.nanmax(values, initial=0.0)), DIGITS)
    limit = 1.0 if is_signed else ceil(round(10 * largest, DIGITS)) / 10 if largest > 0.1 else largest or 1.0
    if drawing.scale is not None:
        limit = drawing.scale / drawing.largest
    norm = Normalize(-limit, limit) if is_signed else PowerNorm(drawing.power, vmin=0, vmax=limit)
    # The middle of the colours, unlike that of the values.
    ticks = [-limit, 0, limit] if is_signed else [0, limit * 0.5 ** (1 / drawing.power), limit]

    def draw(part: SubFigure) -> None:
        panel = part.add_subplot()
        cmap = matplotlib.colormaps[SIGNED] if is_signed else colours()
        image = panel.imshow(values, cmap=cmap, norm=norm, aspect="equal", interpolation="nearest")
        label_cells(panel, values.shape, columns, rows, is_slanted=is_slanted)
        if drawing.has_named_cells:
            _draw_lines_between(panel, len(rows), len(columns))
        shrink = min(0.8, 1.6 / height)
        bar = part.colorbar(image, ax=panel, ticks=ticks, shrink=shrink, aspect=14, pad=0.02)
        bar.set_ticklabels([f"{tick * drawing.largest:.3g}" for tick in ticks])
        bar.outline.set_visible(False)

    above = (0.06 * longest + 0.4) if is_slanted else 0.35
    return Layout(width + 0.085 * max(map(len, [*rows, ""])) + 1.4, height + above, draw)


def _heat_size(drawing: Heat) -> tuple[float, float]:
    """Return the width and height of a heat map's cells, in inches."""
    n_rows, n_columns = drawing.values.shape
    if drawing.has_named_cells:
        return max(1, n_columns) * CELL_INCHES, max(1, n_rows) * CELL_INCHES
    side = min(LARGEST_SIDE / max(n_rows, n_columns), CELL_INCHES)
    if drawing.rows and drawing.columns:
        parts = n_rows / len(drawing.rows), n_columns / len(drawing.columns)
        tile = min(max(7.2 / len(drawing.columns), 0.36), 0.9)
        side = max(tile / max(parts), NARROWEST_PART / min(parts))
    return n_columns * side, n_rows * side


# Images


@_layout.register
def _(drawing: Picture, axes: Mapping[str, Axis]) -> Layout:
    pixels = imread(BytesIO(drawing.png), format="png")
    rows, columns = pixels.shape[:2]
    width = min(max(drawing.width / 96, 2.0), 7.0)

    def draw(part: SubFigure) -> None:
        panel = part.add_subplot()
        panel.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="equal")
        panel.set_axis_off()

    return Layout(width, width * rows / columns, draw, drawing.text)
