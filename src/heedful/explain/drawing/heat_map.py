"""Draw explanations, attention as heat maps of words or over an image, and write figures as PNG or SVG.

Between words, rows are target words and columns are source words, as in Bahdanau et al. 2015, figure 3; each
row sums to 1. The figure in the paper is white on black; here large weights are dark on white.
"""

import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from heedful.errors import RequestError
from heedful.explain.drawing.canvas import (
    check_size,
    colours,
    draw_photo,
    finish_figure,
    new_figure,
    set_title_without_ticks,
    style_frame,
    wrap_lines,
)
from heedful.explain.drawing.matrix import Numbers, check_weights, printable
from heedful.explain.summary import AttentionMatrix, patch_attention, summary_matrix
from heedful.explain.views import VIEWS, check_image, view_module
from heedful.files import write_bytes

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

SUFFIXES = (".png", ".svg")
CELL_INCHES = 0.42  # of a cell
DIGITS = 6
"""Decimal places of weights, so that rounding errors do not extend the scale by a tenth."""
UNIFORM_COLOUR = "#c2410c"
"""Colour of the line at uniform attention, as on the page."""
PANELS_PER_ROW = 4
"""Images per row."""
# Without a fixed salt, ids in SVG files are random, and equal figures give different files.
SETTINGS: Any = {"svg.hashsalt": "heedful", "svg.fonttype": "path"}


def heat_map(
    source: Sequence[str], target: Sequence[str], weights: ArrayLike, *, title: str = "", note: str = ""
) -> Figure:
    """Draw ``weights [target words, source words]`` from 0 (white) to dark blue.

    The scale ends at the largest weight, rounded up to a tenth, because means of many heads would be pale on
    a scale up to 1.

    Args:
        source: a word per column.
        target: a word per row.
        weights: a matrix, or anything that numpy converts to one.
        title: above the map, one paragraph per line; long lines are wrapped.
        note: below the map, in small type.

    Raises:
        ValueError: the shape does not match the words, or a weight is not between 0 and 1.
    """
    matrix = check_weights(source, target, weights)
    scale_max = max(1, math.ceil(round(10 * matrix.max(initial=0.0), DIGITS))) / 10
    width, height = (max(1, len(words)) * CELL_INCHES for words in (source, target))
    columns, rows = ([printable(word) for word in words] for words in (source, target))
    margins = 0.085 * max(map(len, [*rows, ""])), 0.06 * max(map(len, [*columns, ""]))
    lines = wrap_lines(title, int(13 * (width + margins[0] + 1.2)))
    size = (max(width + margins[0] + 1.4, 3.2), height + margins[1] + 1.0 + 0.22 * (1 + lines.count("\n")))
    figure = new_figure(*size)
    axes = figure.add_subplot()
    image = axes.imshow(
        matrix, cmap=colours(), vmin=0, vmax=scale_max, aspect="equal", interpolation="nearest"
    )
    _label_cells(axes, columns, rows)
    bar = figure.colorbar(
        image,
        ax=axes,
        ticks=[0, scale_max / 2, scale_max],
        format="%g",
        shrink=min(0.6, 1.6 / height),
        aspect=14,
        pad=0.02,
    )
    bar.outline.set_visible(False)
    if lines:
        figure.suptitle(lines, fontsize=11, parse_math=False)
    if note:
        axes.set_xlabel(note, fontsize=9, color="0.35", parse_math=False)
    return finish_figure(figure)


def _label_cells(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Label rows and columns with words, those of columns above and slanted; draw lines between cells."""
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
        text.set_fontsize(11)
    axes.set_xticks([i + 0.5 for i in range(len(columns) - 1)], minor=True)
    axes.set_yticks([i + 0.5 for i in range(len(rows) - 1)], minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.6)
    style_frame(axes)


def attention_panels(
    maps: Sequence[tuple[str, ArrayLike]],
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
        maps: for each its title and the weights ``[rows, columns]`` (see `on_grid` in
            `heedful.explain.drawing.matrix`).
        image: a PNG.
        among: number of tokens that each row sums over: the colour bar marks uniform attention, 1 / among,
            and extends at least to it.
        title: above the panels.
        note: below the panels, in small type.

    Raises:
        ValueError: there are no maps, their sizes differ, or one is not a matrix of non-negative weights.
    """
    grids = [_check_grid(values) for _, values in maps]
    if len({grid.shape for grid in grids}) != 1:
        raise ValueError(f"all maps must have the same shape, got {[grid.shape for grid in grids]}")
    rows, columns = grids[0].shape
    n_panels = len(grids) + (image is not None)
    n_columns = min(PANELS_PER_ROW, n_panels)
    n_rows = -(-n_panels // n_columns)
    height = 3.0 if n_panels <= 2 else 2.0
    width = max(height * columns / rows, 1.2)
    uniform = None if among is None else 1 / among
    scale_max = max(uniform or 0.0, *(float(grid.max()) for grid in grids)) or 1.0
    figure = new_figure(n_columns * width + 1.2, n_rows * (height + 0.25) + 0.7)
    panels = list(figure.subplots(n_rows, n_columns, squeeze=False).ravel())
    for axes in panels[n_panels:]:
        axes.set_axis_off()
    if image is not None:
        draw_photo(panels[0], image, rows, columns)
    for axes, (name, _), grid in zip(panels[n_panels - len(grids) :], maps, grids, strict=False):
        drawing = axes.imshow(grid, cmap=colours(), vmin=0, vmax=scale_max, interpolation="nearest")
        set_title_without_ticks(axes, name)
    bar = figure.colorbar(drawing, ax=panels, shrink=0.8 / n_rows**0.5, aspect=16, pad=0.03)
    bar.outline.set_visible(False)
    notes = [note]
    if uniform is not None:
        bar.ax.axhline(uniform, color=UNIFORM_COLOUR, linewidth=2)
        notes.append(f"line in the colour bar: uniform attention, 1/{among} = {uniform:.2g}")
    return finish_figure(figure, title, "\n".join(filter(None, notes)))


def _check_grid(values: ArrayLike) -> Numbers:
    weights = np.asarray(values, dtype=float)
    # NaN fails the comparison.
    if weights.ndim != 2 or not weights.size or not bool((weights >= 0).all()):
        raise ValueError(f"attention must be a matrix of non-negative weights, got shape {weights.shape}")
    return weights


def figure_of(explanation: "Explanation", *, tokens: bool = False) -> Figure:
    """Draw the requested view; without a view, the mean attention or the head with the best known alignment.

    Args:
        explanation: the explanation.
        tokens: draw attention between tokens instead of words.

    Raises:
        RequestError: there are several views, or neither a view nor attention, or the figure would be too
            large to read.
    """
    names = [name for name in explanation.views if name in VIEWS]
    check_image(names)
    if names:
        return view_module(names[0]).figure(explanation, explanation.views[names[0]])
    matrix = summary_matrix(explanation)
    matrix = matrix if tokens else matrix.to_words()
    if matrix.keys.grid is not None:
        return _patch_panels(matrix, explanation.text)
    check_size(*matrix.weights.shape)
    return heat_map(
        matrix.keys.tokens, matrix.queries.tokens, matrix.weights, title=explanation.text, note=matrix.title
    )


def _patch_panels(matrix: AttentionMatrix, answer: str) -> Figure:
    """Draw attention to image patches: one panel, or one per word of a text that attends to the image.

    Raises:
        RequestError: there are too many words.
    """
    axis = matrix.keys
    if matrix.queries.grid is not None:
        name = "class token" if matrix.queries.before else "mean of all patches"
        maps = [(name, patch_attention(matrix))]
    else:
        check_size(len(matrix.queries.tokens), 1)
        maps = [(word, patch_attention(matrix, i)) for i, word in enumerate(matrix.queries.tokens)]
    return attention_panels(maps, axis.image, among=len(axis.tokens), title=answer, note=matrix.title)


def save(figure: Figure, path: Path | str) -> None:
    """Write a figure as PNG or SVG, depending on the suffix. Equal figures give equal bytes.

    Raises:
        RequestError: the suffix is different.
        WorkError: the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(f"{path}: the suffix of an image must be {' or '.join(SUFFIXES)}")
    metadata = {"Date": None} if suffix == ".svg" else {"Software": None}
    buffer = BytesIO()
    with _file_settings():
        figure.savefig(buffer, format=suffix[1:], metadata=metadata, facecolor="auto")
    write_bytes(path, buffer.getvalue())


_LOCK = threading.Lock()


@contextmanager
def _file_settings() -> Iterator[None]:
    """Apply `SETTINGS` while matplotlib writes a file.

    These settings are global to all threads, so only one thread writes at a time. Other settings that change
    meanwhile are kept.
    """
    with _LOCK, warnings.catch_warnings():
        # `finish_figure` has warned about characters without a font.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        previous = {name: matplotlib.rcParams[name] for name in SETTINGS}
        matplotlib.rcParams.update(SETTINGS)
        try:
            yield
        finally:
            matplotlib.rcParams.update(previous)
