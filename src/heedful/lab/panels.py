"""Panels as values: curves, bars and levels, so that a test can hold what is drawn against the numbers.

matplotlib is loaded when a picture is made, and its global state is left alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = tuple[Sequence[float], Sequence[float]]
"""x and y values."""

# Told apart by those who see no red or no green (Okabe and Ito 2008); styles, in grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
STYLES = ("-", "--", "-.", ":")
INCHES = (4.8, 3.5)  # of a panel
SMALL = 9.0  # points of a label
FEW = 20  # points of a curve that are marked one by one


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Args:
        title: stands above.
        x, y: what the axes show, with units.
        curves: by name.
        bars: heights by name.
        levels: horizontal lines by name: what a formula says.
        log: which axes are logarithmic. There, a value of 0 has no place and is left out.
    """

    title: str
    x: str = ""
    y: str = ""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    bars: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    log: Literal["", "x", "y", "xy"] = ""


def draw(*panels: Panel) -> "Figure":
    """The panels from left to right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = INCHES
    figure = Figure(figsize=(width * len(panels), height), dpi=144, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _fill(axes, panel)
    return figure


def _fill(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=11, loc="left", parse_math=False)
    axes.set_xlabel(panel.x, fontsize=SMALL, parse_math=False)
    axes.set_ylabel(panel.y, fontsize=SMALL, parse_math=False)
    axes.tick_params(labelsize=SMALL)
    for number, (name, (xs, ys)) in enumerate(panel.curves.items()):
        points = [(x, y) for x, y in zip(xs, ys, strict=True) if _has_place(x, y, panel.log)]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=name,
            color=COLOURS[number % len(COLOURS)],
            linestyle=STYLES[number % len(STYLES)],
            linewidth=1.6,
            marker="o" if len(points) <= FEW else "",
            markersize=4,
        )
    if panel.bars:
        axes.bar(range(len(panel.bars)), list(panel.bars.values()), color=COLOURS[0], width=0.6)
        axes.set_xticks(range(len(panel.bars)), list(panel.bars), fontsize=SMALL)
    for number, (name, y) in enumerate(panel.levels.items(), len(panel.curves) + bool(panel.bars)):
        axes.axhline(y, label=name, color=COLOURS[number % len(COLOURS)], linestyle=":", linewidth=1.6)
    if "x" in panel.log:
        axes.set_xscale("log")
    if "y" in panel.log:
        axes.set_yscale("log")
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if len(panel.curves) + len(panel.levels) > 1:
        axes.legend(frameon=False, fontsize=SMALL)


def _has_place(x: float, y: float, log: str) -> bool:
    return ("x" not in log or x > 0) and ("y" not in log or y > 0)
