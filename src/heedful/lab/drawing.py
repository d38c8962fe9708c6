"""Panels as plain values, and the figure drawn from them.

A result holds panels: numbers with names, so that tests can compare what is drawn with what was measured.
matplotlib is imported when a figure is drawn, and its global state is left unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from heedful.typing import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import ColorType

Points = tuple[Sequence[float], Sequence[float]]
"""x and y values."""

SMALL = 9.0  # font size of labels, in points
# Distinguishable in greyscale and with red-green colour blindness (Okabe and Ito 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
# Colour maps: for non-negative values, and for values that are or may be negative.
ONE_SIGN, TWO_SIGNS = "Blues", "RdBu"
STYLES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*"
FEW = 20  # curves with at most so many points get markers
NAMED = 8  # at most so many distinct x values on a logarithmic axis are labelled one by one
MAX_UPRIGHT = 40  # characters of bar names that fit side by side


@dataclass(frozen=True)
class Curves:
    """Curves in one pair of axes.

    Args:
        title: title of the panel.
        x, y: axis labels, with units.
        lines: curves by name; a single curve may have an empty name.
        levels: horizontal lines by name, such as values given by a formula.
        places: vertical lines by name, such as updates at which something happens.
        log: logarithmic axes. Values of 0 are left out on them.
        limits: lower and upper end of the y axis; None: chosen automatically.
        inches: width and height.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    levels: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, float] = field(default_factory=dict)
    log: Literal["", "x", "y", "xy"] = ""
    limits: tuple[float | None, float | None] = (None, None)
    inches: tuple[float, float] = (4.8, 3.5)

    def fill(self, axes: "Axes") -> None:
        """Draw the curves into the axes."""
        styles = zip(cycle(COLOURS), cycle(STYLES), cycle(MARKERS), strict=False)
        for (name, (xs, ys)), (colour, style, marker) in zip(self.lines.items(), styles, strict=False):
            points = [(x, y) for x, y in zip(xs, ys, strict=True) if self._has_place(x, y)]
            marks: JsonObject = {"marker": marker, "markersize": 4} if len(points) <= FEW else {}
            x, y = [x for x, _ in points], [y for _, y in points]
            axes.plot(x, y, label=name, color=colour, linestyle=style, linewidth=1.6, **marks)
        _levels(axes.axhline, self.levels, len(self.lines))
        for name, place in self.places.items():
            axes.axvline(place, label=name, color="0.4", linestyle="--", linewidth=1)
        if "x" in self.log:
            axes.set_xscale("log")
        self._name_places(axes)
        if "y" in self.log:
            axes.set_yscale("log")
        if self.limits != (None, None):
            axes.set_ylim(*self.limits)
        axes.grid(color="0.9", linewidth=0.6)
        _finish(axes, self.x, self.y, legend=len(self.lines) + len(self.levels) + len(self.places) > 1)

    def _name_places(self, axes: "Axes") -> None:
        """Put ticks at whole numbers only if all x are whole; label a few logarithmic x values exactly."""
        places = sorted({x for xs, _ in self.lines.values() for x in xs if "x" not in self.log or x > 0})
        if "x" not in self.log:
            axes.locator_params("x", integer=all(float(x).is_integer() for x in places))
        elif 0 < len(places) <= NAMED:
            axes.set_xticks(places, [f"{x:,.6g}" for x in places])
            axes.minorticks_off()

    def _has_place(self, x: float, y: float) -> bool:
        return ("x" not in self.log or x > 0) and ("y" not in self.log or y > 0)


Place = tuple[float, float]
"""A point in a figure: distance from the left and from the bottom, in points."""

# Position of a name beside its dot: the offset in points, and the anchor of the text.
BESIDE: dict[str, tuple[Place, Literal["left", "center", "right"], Literal["bottom", "center", "top"]]] = {
    "right": ((6, 0), "left", "center"),
    "left": ((-6, 0), "right", "center"),
    "above": ((0, 6), "center", "bottom"),
    "below": ((0, -6), "center", "top"),
}


def choose_sides(dots: Mapping[str, Place], size: Place) -> dict[str, str]:
    """Choose the side of each dot for its name: the first on which it hits no name, dot or edge.

    Args:
        dots: position of each dot.
        size: size of the panel, in points.
    """
    occupied = [(x - 4, y - 4, x + 4, y + 4) for x, y in dots.values()]
    chosen_sides = {}
    for name, place in dots.items():
        boxes = {side: box_beside(name, place, side) for side in BESIDE}
        free = [
            side
            for side, (left, bottom, right, top) in boxes.items()
            if left >= 0 and right <= size[0] and bottom >= 0 and top <= size[1]
            if not any(left < r and l < right and bottom < t and b < top for l, b, r, t in occupied)
        ]
        chosen_sides[name] = (free or ["right"])[0]
        occupied.append(boxes[chosen_sides[name]])
    return chosen_sides


def box_beside(name: str, place: Place, side: str) -> tuple[float, float, float, float]:
    """Return the approximate left, lower, right and upper edge of a name beside a dot."""
    width, height = 0.55 * SMALL * len(name), 1.2 * SMALL
    (dx, dy), across, up = BESIDE[side]
    left = place[0] + dx - width * {"left": 0.0, "center": 0.5, "right": 1.0}[across]
    bottom = place[1] + dy - height * {"bottom": 0.0, "center": 0.5, "top": 1.0}[up]
    return left, bottom, left + width, bottom + height


@dataclass(frozen=True)
class Dots:
    """Dots with their names beside them, in groups.

    Args:
        title: title of the panel.
        x, y: axis labels, with units.
        points: x and y by name, for each group.
        levels: horizontal lines by name, for items without an x value.
        log: whether the x axis is logarithmic.
        inches: width and height.
    """

    title: str
    x: str
    y: str
    points: Mapping[str, Mapping[str, tuple[float, float]]]
    levels: Mapping[str, float] = field(default_factory=dict)
    log: bool = False
    inches: tuple[float, float] = (4.8, 3.5)

    def fill(self, axes: "Axes") -> None:
        """Draw the dots into the axes."""
        if self.log:
            axes.set_xscale("log")
        axes.margins(0.2, 0.1)  # for names
        for (group, points), colour, marker in zip(
            self.points.items(), cycle(COLOURS), cycle(MARKERS), strict=False
        ):
            xs, ys = zip(*points.values(), strict=True)
            axes.plot(xs, ys, label=group, color=colour, linestyle="", marker=marker, markersize=6)
        _levels(axes.axhline, self.levels, len(self.points))
        self._name(axes)
        axes.grid(color="0.9", linewidth=0.6)
        _finish(axes, self.x, self.y, legend=False)
        if len(self.points) + len(self.levels) > 1:  # below the axes, where it covers no name
            axes.legend(
                fontsize=SMALL, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2
            )

    def _name(self, axes: "Axes") -> None:
        """Write the names, assuming that the axes are about a tenth narrower and lower than the panel."""
        dots = {name: place for points in self.points.values() for name, place in points.items()}
        width, height = (72 * 0.87 * inches for inches in self.inches)
        axes.autoscale_view()  # positions are unknown before
        scale = axes.transData + axes.transAxes.inverted()
        shares = scale.transform(list(dots.values()))
        places = {name: (x * width, y * height) for name, (x, y) in zip(dots, shares, strict=True)}
        for name, side in choose_sides(places, (width, height)).items():
            offset, across, up = BESIDE[side]
            axes.annotate(
                name,
                dots[name],
                offset,
                textcoords="offset points",
                ha=across,
                va=up,
                fontsize=SMALL,
                parse_math=False,
            )


@dataclass(frozen=True)
class Bars:
    """A bar for each name: vertical, or horizontal if the names are long, with the first at the top.

    Args:
        title: title of the panel.
        x, y: labels of the name axis and of the value axis, with units.
        heights: values by name.
        levels: reference lines by name, such as values given by a formula.
        log: whether the value axis is logarithmic.
        inches: width and height.
    """

    title: str
    x: str
    y: str
    heights: Mapping[str, float]
    levels: Mapping[str, float] = field(default_factory=dict)
    log: bool = False
    inches: tuple[float, float] = (4.8, 3.5)

    @property
    def horizontal(self) -> bool:
        """Whether the bars are horizontal, with names below each other."""
        return sum(map(len, self.heights)) > MAX_UPRIGHT

    def fill(self, axes: "Axes") -> None:
        """Draw the bars into the axes."""
        names, heights = list(self.heights), list(self.heights.values())
        numbers = range(len(names))
        axes.set_axisbelow(True)
        if self.horizontal:
            axes.barh(numbers, heights, color=COLOURS[0], height=0.6)
            axes.set_yticks(numbers, names, fontsize=SMALL)
            axes.invert_yaxis()
            _levels(axes.axvline, self.levels, 1)
            if self.log:
                axes.set_xscale("log")
            axes.grid(axis="x", color="0.9", linewidth=0.6)
            _finish(axes, self.y, self.x, legend=bool(self.levels))
            return
        axes.bar(numbers, heights, color=COLOURS[0], width=0.6)
        axes.set_xticks(numbers, names, fontsize=SMALL)
        _levels(axes.axhline, self.levels, 1)
        if self.levels:
            axes.margins(y=0.2)  # keeps the legend off the highest line
        if self.log:
            axes.set_yscale("log")
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        _finish(axes, self.x, self.y, legend=bool(self.levels))


@dataclass(frozen=True)
class Matrix:
    """A heat map with a colour bar: blue for non-negative values, red to blue if values can be negative.

    Args:
        title: title of the panel.
        x, y: meaning of columns and rows.
        values: ``[rows, columns]``; the first row is at the top.
        limits: range of the colours; by default that of the values, symmetric about 0 if some are negative.
        columns, rows: labels, if any.
        square: whether cells are square; otherwise they fill the panel.
        inches: width and height.
    """

    title: str
    x: str
    y: str
    values: Sequence[Sequence[float]]
    limits: tuple[float, float] | None = None
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    square: bool = True
    inches: tuple[float, float] = (4.4, 3.6)

    def fill(self, axes: "Axes") -> None:
        """Draw the heat map into the axes."""
        import numpy as np

        array = np.asarray(self.values, dtype=float)
        signed = array.min() < 0 or (self.limits is not None and self.limits[0] < 0)
        largest = float(np.abs(array).max()) or 1.0
        low, high = self.limits or ((-largest, largest) if signed else (0.0, largest))
        image = axes.imshow(
            array,
            cmap=TWO_SIGNS if signed else ONE_SIGN,
            vmin=low,
            vmax=high,
            aspect="equal" if self.square else "auto",
            interpolation="nearest",
        )
        axes.locator_params(integer=True)
        if self.columns:
            axes.set_xticks(range(len(self.columns)), list(self.columns), rotation=45, ha="right")
        if self.rows:
            axes.set_yticks(range(len(self.rows)), list(self.rows))
        figure = axes.get_figure()
        assert figure is not None
        scale = figure.colorbar(image, ax=axes, shrink=0.8)
        scale.ax.tick_params(labelsize=SMALL)
        _label(axes, self.x, self.y)


Panel = Curves | Dots | Bars | Matrix


Name = TypeVar("Name", bound=str)


def curves_over(xs: Sequence[float], lines: Mapping[Name, Sequence[float]]) -> dict[str, Points]:
    """Return curves that share their x values, by name."""
    return {name: (xs, ys) for name, ys in lines.items()}


def numbered_curves(lines: Mapping[Name, Sequence[float]]) -> dict[str, Points]:
    """Return curves over 1, 2, 3 …, by name."""
    return {name: (range(1, len(ys) + 1), ys) for name, ys in lines.items()}


def curves_of_columns(
    rows: Sequence[Mapping[str, float]], x: str, lines: Mapping[str, str] | Sequence[str]
) -> dict[str, Points]:
    """Return curves over the column ``x`` of a table: columns by the names of curves, or under their own."""
    columns = lines if isinstance(lines, Mapping) else {name: name for name in lines}
    xs = [row[x] for row in rows]
    return {name: (xs, [row[column] for row in rows]) for name, column in columns.items()}


def draw(*panels: Panel) -> "Figure":
    """Draw panels from left to right, all as high as the highest."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    widths, heights = zip(*(panel.inches for panel in panels), strict=True)
    size = sum(widths), max(heights)
    figure = Figure(figsize=size, dpi=144, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    (row,) = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)
    for axes, panel in zip(row, panels, strict=True):
        axes.set_title(panel.title, fontsize=11, loc="left", parse_math=False)
        axes.tick_params(labelsize=SMALL)
        panel.fill(axes)
    return figure


def _levels(line: Callable[..., object], levels: Mapping[str, float], first: int) -> None:
    """Draw dotted lines, in the colours from index ``first`` on."""
    for number, (name, value) in enumerate(levels.items(), first):
        line(value, label=name, color=COLOURS[number % len(COLOURS)], linestyle=":", linewidth=1.6)


def _finish(axes: "Axes", x: str, y: str, *, legend: bool) -> None:
    """Hide the top and right spines, add a legend, and label the axes."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if legend:
        for text in axes.legend(fontsize=SMALL, frameon=False).get_texts():
            text.set_parse_math(False)
    _label(axes, x, y)


def _label(axes: "Axes", x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=SMALL, parse_math=False)
    axes.set_ylabel(y, fontsize=SMALL, parse_math=False)


# Image files of the gallery: in a version for light and one for dark pages

# Text and card colours of dark pages; keep in step with gallery.css.
INK, CARD = "#e8e6e1", "#1d2024"
# Heat maps on dark pages: zero has the colour of the background, as on light pages.
DARK_COLOURS = {
    ONE_SIGN: (CARD, "#2f5f9e", "#cfe3ff"),
    TWO_SIGNS: ("#ffb3ad", "#b5504a", CARD, "#4670b8", "#b5cdff"),
}


@dataclass(frozen=True)
class SavedFigure:
    """An image in the gallery folder: ``NAME.png``, ``NAME.dark.png``, ``NAME.svg``.

    Args:
        name: file name without suffix.
        width, height: size of both PNG files, in pixels.
        first: share of the width taken by the first panel.
    """

    name: str
    width: int
    height: int
    first: float


def save_figure(panels: Sequence[Panel], folder: Path, name: str) -> SavedFigure:
    """Draw one or more panels and write the files.

    Raises:
        WorkError: a file cannot be written.
    """
    from heedful.explain.drawing.heat_map import save

    figure = draw(*panels)
    for suffix in (".svg", ".png"):
        save(figure, folder / f"{name}{suffix}")
    first = _share_of_first(figure)
    darken(figure)
    save(figure, folder / f"{name}.dark.png")
    return SavedFigure(name, *figure.canvas.get_width_height(), first)


def _share_of_first(figure: "Figure") -> float:
    """Return the left edge of the second panel, labels included, as a share of the width; 1 for one panel."""
    panels = [axes for axes in figure.get_axes() if axes.get_label() != "<colorbar>"]
    if len(panels) < 2:
        return 1.0
    second = panels[1].get_tightbbox()
    assert second is not None
    return second.x0 / figure.bbox.width


def darken(figure: "Figure") -> None:
    """Recolour a figure for dark pages: white becomes `CARD`, black becomes `INK`, greys are interpolated.

    Colours that distinguish curves stay, since they are visible on both backgrounds. Zero in heat maps gets
    the colour `CARD`.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

    for axes in figure.get_axes():
        axes.tick_params(which="both", colors=INK)  # those that are made later, too
    for artist in figure.findobj():
        if isinstance(artist, AxesImage):
            artist.set_cmap(LinearSegmentedColormap.from_list("dark", DARK_COLOURS[artist.get_cmap().name]))
        elif isinstance(artist, Text | Line2D):
            artist.set_color(_on_dark(artist.get_color()))
        elif isinstance(artist, Patch):
            artist.set_facecolor(_on_dark(artist.get_facecolor()))
            artist.set_edgecolor(_on_dark(artist.get_edgecolor()))


def _on_dark(colour: "ColorType") -> "ColorType":
    """Return the colour for dark pages: greys are mapped to the range from `CARD` to `INK`; others stay."""
    from matplotlib.colors import to_rgb, to_rgba

    *rgb, opacity = to_rgba(colour)
    if max(rgb) - min(rgb) > 0.02:
        return colour
    ink, card = to_rgb(INK), to_rgb(CARD)
    red, green, blue = (dark + rgb[0] * (light - dark) for dark, light in zip(ink, card, strict=True))
    return red, green, blue, opacity
