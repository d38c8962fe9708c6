"""Panels, curves and matrices: what the pictures of the experiments are made of.

matplotlib is loaded when a picture is made, and its global state is left alone.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL = 9.0  # points of a label
# Told apart in grey, and by those who see no red or no green (Okabe and Ito 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
MARKERS = "osD^vP*"


def panels(*titles: str, width: float = 4.4, height: float = 3.4) -> "tuple[Figure, list[Axes]]":
    """A figure with a panel for each title, side by side.

    Args:
        titles: above the panels.
        width: of a panel, in inches.
        height: of a panel, in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * len(titles), height), dpi=144, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for each, title in zip(axes, titles, strict=True):
        each.set_title(title, fontsize=11, loc="left", parse_math=False)
        each.tick_params(labelsize=SMALL)
    return figure, axes


def label(axes: "Axes", x: str, y: str) -> None:
    """Say what the axes of a panel are."""
    axes.set_xlabel(x, fontsize=SMALL, parse_math=False)
    axes.set_ylabel(y, fontsize=SMALL, parse_math=False)


def finish(
    axes: "Axes", x: str, y: str, *, logarithmic: Literal["", "x", "y", "xy"] = "", legend: bool = False
) -> None:
    """What every panel of curves ends in: scales, a grid, open sides, a legend, and what the axes are."""
    if "x" in logarithmic:
        axes.set_xscale("log")
    if "y" in logarithmic:
        axes.set_yscale("log")
    axes.grid(color="0.9", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if legend:
        axes.legend(fontsize=SMALL, frameon=False)
    label(axes, x, y)


def curves(
    axes: "Axes",
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    x_label: str,
    y_label: str,
    logarithmic: Literal["", "x", "y", "xy"] = "",
    marks: bool = True,
) -> None:
    """A curve over ``x`` for each name.

    Args:
        axes: the panel.
        x: where the values were taken.
        lines: values by the names of the curves, as long as ``x``.
        x_label: what goes to the right, with units.
        y_label: what goes up, with units.
        logarithmic: which of the axes are; values of 0 are left out there.
        marks: show the single values.
    """
    for (name, values), colour, marker in zip(lines.items(), cycle(COLOURS), cycle(MARKERS), strict=False):
        style: dict[str, Any] = {"marker": marker, "markersize": 4} if marks else {}
        axes.plot(x, values, color=colour, linewidth=1.6, label=name, **style)
    finish(axes, x_label, y_label, logarithmic=logarithmic, legend=len(lines) > 1)


def bars(axes: "Axes", values: Mapping[str, float], *, x_label: str, logarithmic: bool = False) -> None:
    """A horizontal bar for each name, the first at the top."""
    names = list(values)
    axes.barh(names, [values[name] for name in names], color=COLOURS[0], height=0.6)
    axes.invert_yaxis()
    if logarithmic:
        axes.set_xscale("log")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    label(axes, x_label, "")


def matrix(
    axes: "Axes",
    values: Any,
    *,
    x_label: str = "",
    y_label: str = "",
    limits: tuple[float, float] | None = None,
    square: bool = True,
) -> None:
    """A heat map with its scale: blue for numbers from 0 on, red to blue where some are or may be negative.

    Args:
        axes: the panel.
        values: ``[rows, columns]``, anything that numpy reads; the first row is at the top.
        x_label: what columns are.
        y_label: what rows are.
        limits: of the colours; those of the values by default, about 0 where some are negative.
        square: cells are; else they fill the panel.
    """
    import numpy as np

    array = np.asarray(values, dtype=float)
    signed = array.min() < 0 or (limits is not None and limits[0] < 0)
    most = float(np.abs(array).max()) or 1.0
    low, high = limits or ((-most, most) if signed else (0.0, most))
    image = axes.imshow(
        array,
        cmap="RdBu" if signed else "Blues",
        vmin=low,
        vmax=high,
        aspect="equal" if square else "auto",
        interpolation="nearest",
    )
    axes.locator_params(integer=True)
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.ax.tick_params(labelsize=SMALL)
    label(axes, x_label, y_label)
