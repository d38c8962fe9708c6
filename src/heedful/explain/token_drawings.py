"""Draw values of tokens as bars, and the most probable answers at each depth.

`heedful.explain.heat_map.save` writes the figures. The drawn values are the given ones, without processing.
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
"""Inches per token."""
PREDICTED, GIVEN = "#2f6ca6", "#c8ccd2"
"""Colours of the bars of predicted and of given tokens."""
SIGNS = 14
"""Maximum characters of an answer in a cell."""


def check_rows(n: int) -> None:
    """Check that a drawing with one row per token is readable.

    Raises:
        RequestError: there are more than `MOST_CELLS` tokens.
    """
    if n > MOST_CELLS:
        raise RequestError(
            f"an image must show at most {MOST_CELLS} tokens, got {n}; write .html or .json, or shorten the "
            "input"
        )


def signed_bars(
    sides: Sequence[tuple[str, Sequence[str], Sequence[float]]], *, title: str = "", note: str = ""
) -> Figure:
    """Draw a value per token as a bar: positive (blue) to the right, negative (red) to the left.

    Args:
        sides: side by side, on one scale: for each its name, its tokens from top to bottom, and their values.
        title: above the bars.
        note: below the bars, in small type.

    Raises:
        ValueError: there are no sides, or the numbers of values and tokens differ.
    """
    if not sides or any(len(tokens) != len(values) for _, tokens, values in sides):
        raise ValueError("bars need at least one side, and a value for each token")
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


def loss_bars(
    tokens: Sequence[str],
    losses: Sequence[float],
    given: Sequence[bool],
    *,
    mean: float | None = None,
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw the loss of each token as a bar with its value; given tokens (a prompt) are grey.

    Args:
        tokens: from top to bottom.
        losses: losses in nats, ``- ln p``.
        given: whether each token was given instead of predicted.
        mean: position of a vertical line; or None.
        title: above the bars.
        note: below the bars, in small type.

    Raises:
        ValueError: there are no tokens, or the lengths differ.
    """
    if not tokens or not len(tokens) == len(losses) == len(given):
        raise ValueError("bars need at least one token, and a loss for each token")
    most = max(losses) or 1.0
    figure = blank(6.0, ROW * len(tokens) + 1.45)
    axes = figure.add_subplot()
    shades = [GIVEN if each else PREDICTED for each in given]
    bars = axes.barh(range(len(tokens)), losses, height=0.72, color=shades)
    numbers = [f"{loss:.2f}" for loss in losses]
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axes.bar_label(bars, numbers, padding=3, fontsize=8, color="0.35", bbox=ground)
    handles: list[Any] = [
        Patch(facecolor=shade, label=name)
        for shade, name, has in ((PREDICTED, "predicted", not all(given)), (GIVEN, "given", any(given)))
        if has
    ]
    if mean is not None:
        line = axes.axvline(mean, color="0.4", linewidth=1, linestyle="--", zorder=0)
        line.set_label(f"mean {mean:.2f}")
        handles.append(line)
    axes.set_xlim(0, 1.12 * most)
    axes.set_ylim(len(tokens) - 0.4, -0.6)
    _downwards(axes, tokens)
    axes.set_xlabel("loss (nats)", fontsize=9)
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
    predicted: Sequence[Sequence[str]],
    probabilities: Any,
    *,
    title: str = "",
    note: str = "",
) -> Figure:
    """Draw the most probable answers at each depth, in cells coloured by probability.

    Args:
        answers: the final answers, one per row.
        depths: names of the columns.
        predicted: most probable answers ``[answers][depths]``; bold if equal to the final answer.
        probabilities: ``[answers, depths]``, from 0 (white) to 1 (dark blue).
        title: above the table.
        note: below the table, in small type.

    Raises:
        ValueError: a shape is wrong, or there are no answers.
    """
    shares = np.asarray(probabilities, dtype=float)
    if not shares.size or shares.shape != (len(answers), len(depths)):
        raise ValueError(
            f"probabilities must be of shape ({len(answers)}, {len(depths)}), not empty; got {shares.shape}"
        )
    cells = [[shortened(one, SIGNS) for one in row] for row in predicted]
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
            weight="bold" if predicted[row][column] == answers[row] else "normal",
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
    """Label the rows with tokens."""
    axes.set_yticks(range(len(tokens)), [printable(token) for token in tokens], fontsize=9)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="x", labelsize=8)
    quiet(axes)
