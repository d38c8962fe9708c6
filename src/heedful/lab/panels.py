"""Panels as values: curves, bars and levels, so that a test can hold what is drawn against the numbers.

matplotlib is loaded when a picture is made, and its global state is left alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from heedful.lab import drawing
from heedful.lab.drawing import COLOURS, SMALL, finish

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = tuple[Sequence[float], Sequence[float]]
"""x and y values."""

# Told apart in grey.
STYLES = ("-", "--", "-.", ":")
INCHES = (4.8, 3.5)  # of a panel
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
    width, height = INCHES
    figure, axes = drawing.panels(*(panel.title for panel in panels), width=width, height=height)
    for each, panel in zip(axes, panels, strict=True):
        _fill(each, panel)
    return figure


def _fill(axes: Any, panel: Panel) -> None:
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
    axes.set_axisbelow(True)
    legend = len(panel.curves) + len(panel.levels) > 1
    finish(axes, panel.x, panel.y, logarithmic=panel.log, legend=legend)


def _has_place(x: float, y: float, log: str) -> bool:
    return ("x" not in log or x > 0) and ("y" not in log or y > 0)
