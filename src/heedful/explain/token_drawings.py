"""Images of what is told of each token: numbers as bars, and what every depth would have answered. Like
`heedful.explain.heat_map`, whose `save` writes them; what is drawn is the very numbers that were given.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from heedful.errors import RequestError
from heedful.explain.canvas import SIGNED, blank, finished, legible, quiet, shortened, titled
from heedful.explain.heat_map import MOST_CELLS, colours
from heedful.explain.matrix import printable

ROW = 0.24
"""Inches from a token to the next."""
COST, GIVEN = "#2f6ca6", "#c8ccd2"
"""The colours of bars: of what was answered, and of what was given."""
SIGNS = 14
"""Of an answer in a cell, at most."""


def check_rows(n: int) -> None:
    """Refuse so many tokens below each other that nobody could read them.

    Raises:
        RequestError: there are more than `MOST_CELLS`.
    """
    if n > MOST_CELLS:
        raise RequestError(
            f"a drawing of {n} tokens could not be read: take .html or .json, or a shorter input"
        )


def signed_bars(
    sides: Sequence[tuple[str, Sequence[str], Sequence[float]]], *, title: str = "", note: str = ""
) -> Figure:
    """A number for each token as a bar, to the right above zero (blue), to the left below (red).

    Args:
        sides: beside each other, on one scale: of each its name, its tokens from above, and their numbers.
        title: stands above.
        note: stands below, small.

    Raises:
        ValueError: there are none, or a side has another number of numbers than of tokens.
    """
    if not sides or any(len(tokens) != len(values) for _, tokens, values in sides):
        raise ValueError("bars need as many numbers as tokens")
    most = max((abs(value) for _, _, values in sides for value in values), default=0.0) or 1.0
    longest = max(len(tokens) for _, tokens, _ in sides)
    figure = blank(4.0 * len(sides), ROW * longest + 1.4)
    for axes, (name, tokens, values) in zip(
        figure.subplots(1, len(sides), squeeze=False)[0], sides, strict=True
    ):
        shades = matplotlib.colormaps[SIGNED](0.5 + 0.5 * np.asarray(values, dtype=float) / most)
        axes.barh(range(len(tokens)), values, color=shades, edgecolor="0.6", linewidth=0.4)
        axes.axvline(0, color="0.6", linewidth=0.8)
        axes.set_xlim(-1.05 * most, 1.05 * most)
        axes.set_ylim(longest - 0.4, -0.6)
        _downwards(axes, tokens)
        axes.set_title(name, fontsize=10)
    titled(figure, title, note)
    return finished(figure)


def cost_bars(
    tokens: Sequence[str],
    costs: Sequence[float],
    given: Sequence[bool],
    *,
    mean: float | None = None,
    title: str = "",
    note: str = "",
) -> Figure:
    """What each token cost, as a bar with its number; what was given (a prompt) is grey.

    Args:
        tokens: from above.
        costs: in nats, ``- ln p``.
        given: whether each was given, not answered.
        mean: where a line stands.
        title: stands above.
        note: stands below, small.

    Raises:
        ValueError: there are none, or not as many of each.
    """
    if not tokens or not len(tokens) == len(costs) == len(given):
        raise ValueError("bars need as many costs as tokens, and one token at least")
    most = max(costs) or 1.0
    figure = blank(6.0, ROW * len(tokens) + 1.45)
    axes = figure.add_subplot()
    shades = [GIVEN if each else COST for each in given]
    bars = axes.barh(range(len(tokens)), costs, height=0.72, color=shades)
    numbers = [f"{cost:.2f}" for cost in costs]
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axes.bar_label(bars, numbers, padding=3, fontsize=8, color="0.35", bbox=ground)
    handles: list[Any] = [
        Patch(facecolor=shade, label=name)
        for shade, name, has in ((COST, "answered", not all(given)), (GIVEN, "given", any(given)))
        if has
    ]
    if mean is not None:
        line = axes.axvline(mean, color="0.4", linewidth=1, linestyle="--", zorder=0)
        line.set_label(f"mean {mean:.2f}")
        handles.append(line)
    axes.set_xlim(0, 1.12 * most)
    axes.set_ylim(len(tokens) - 0.4, -0.6)
    _downwards(axes, tokens)
    axes.set_xlabel("cost in nats", fontsize=9)
    axes.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        borderaxespad=0.2,
        ncols=len(handles),
        fontsize=8,
        frameon=False,
    )
    titled(figure, title, note)
    return finished(figure)


def depth_table(
    answers: Sequence[str],
    depths: Sequence[str],
    said: Sequence[Sequence[str]],
    probabilities: Any,
    *,
    title: str = "",
    note: str = "",
) -> Figure:
    """What every depth would have answered, in cells with the colour of its probability.

    Args:
        answers: what was answered, a row each.
        depths: the names of the columns.
        said: ``[answers][depths]``; bold where it is what was answered.
        probabilities: ``[answers, depths]``, from 0 (white) to 1 (dark blue).
        title: stands above.
        note: stands below, small.

    Raises:
        ValueError: other shapes, or nothing was answered.
    """
    shares = np.asarray(probabilities, dtype=float)
    if not shares.size or shares.shape != (len(answers), len(depths)):
        raise ValueError(f"probabilities of shape {shares.shape} of {len(answers)} answers")
    cells = [[shortened(one, SIGNS) for one in row] for row in said]
    longest = max(len(text) for text in [*depths, *(one for row in cells for one in row)])
    rows = [shortened(answer, 2 * SIGNS) for answer in answers]
    width = len(depths) * (0.078 * longest + 0.2) + 0.085 * max(map(len, rows)) + 0.3
    figure = blank(max(width, 4.2), 0.26 * len(rows) + 1.7)
    axes, below = figure.subplots(2, 1, height_ratios=[0.26 * len(rows), 0.09])
    image = axes.imshow(shares, cmap=colours(), vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for (row, column), share in np.ndenumerate(shares):
        axes.text(
            column,
            row,
            cells[row][column],
            ha="center",
            va="center",
            fontsize=8.5,
            color=legible(colours()(share)),
            weight="bold" if said[row][column] == answers[row] else "normal",
            parse_math=False,
        )
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(depths)), depths, fontsize=9)
    axes.set_xticks([i + 0.5 for i in range(len(depths) - 1)], minor=True)
    axes.set_yticks([i + 0.5 for i in range(len(rows) - 1)], minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.6)
    _downwards(axes, rows)
    bar = figure.colorbar(image, cax=below, orientation="horizontal", ticks=[0, 0.5, 1], format="%g")
    bar.outline.set_visible(False)
    below.tick_params(labelsize=8, length=0)
    titled(figure, title, note)
    return finished(figure)


def _downwards(axes: Any, tokens: Sequence[str]) -> None:
    """Tokens at the left."""
    axes.set_yticks(range(len(tokens)), [printable(token) for token in tokens], fontsize=9)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="x", labelsize=8)
    quiet(axes)
