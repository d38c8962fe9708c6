"""Draw each kind of drawing in the terminal: numbers as text, with bars, and the strongest of many."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import singledispatch

import numpy as np
from rich.cells import cell_len

from heedful.explain.drawing.matrix import Numbers, number_format, printable, strongest_links
from heedful.explain.drawing.terminal import SHADES, Style, heat_map, link_lines, truncate
from heedful.explain.drawings import (
    Cell,
    CellLike,
    Drawing,
    Heat,
    PatchValues,
    Picture,
    Table,
    TokenValues,
    cell_text,
)
from heedful.tasks.model_input import Axis

BAR = 20
"""Columns of the longest bar."""
LONGEST_CELL = 60
"""Maximum columns of a table's cell."""
N_PATCHES = 4
"""Number of strongest patches, of positive and of negative ones."""
LARGEST_GRID = 24
"""Maximum rows or columns of a grid that is drawn as a heat map."""
FILES = "--out FILE.html, .svg or .png"
_NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]\d+)?%?|-?inf|-|")

Axes = Mapping[str, Axis]


def lines(drawing: Drawing, axes: Axes, *, style: Style = SHADES, width: int = 80) -> list[str]:
    """Return a drawing as lines: its title, its content, and its note.

    Args:
        drawing: the drawing.
        axes: the axes of the explanation.
        style: see `heedful.explain.drawing.terminal.choose_style`.
        width: columns of the terminal.
    """
    note = textwrap.wrap(printable(drawing.note), max(width - 2, 30))
    content = [*_content(drawing, axes, style, width), *note]
    return [printable(drawing.title), *(f"  {line}".rstrip(" ") for line in content)]


@singledispatch
def _content(drawing: Drawing, axes: Axes, style: Style, width: int) -> list[str]:
    raise NotImplementedError


@_content.register
def _(drawing: TokenValues, axes: Axes, style: Style, width: int) -> list[str]:
    rows = drawing.rows(axes)
    columns = [[row.value for row in rows]]
    columns += [[row.others[i] for row in rows] for i in range(len(drawing.others))]
    names = [drawing.name, *drawing.others] if drawing.others else [""]
    texts = []
    for name, column in zip(names, columns, strict=True):
        form = number_format(column)
        numbers = [name, *(f"{value:{form}}" for value in column)]
        width_of_column = max(map(len, numbers))
        texts.append([text.rjust(width_of_column) for text in numbers])
    labels = [f"({printable(row.label)})" if row.is_muted else printable(row.label) for row in rows]
    header, *lines_of_numbers = ["  ".join(row) for row in zip(*texts, strict=True)]
    bars = zip(lines_of_numbers, _bars(columns[0], style, drawing.scale), labels, strict=True)
    return [*([header] if drawing.others else []), *("  ".join(parts) for parts in bars)]


def _bars(values: Sequence[float], style: Style, scale: float | None = None) -> list[str]:
    """Return a bar for each number; left and right of a line if one is negative.

    Args:
        values: the numbers.
        style: that of the bars.
        scale: the number of the longest bar; None: the largest.
    """
    largest = scale or max((abs(value) for value in values if np.isfinite(value)), default=0.0) or 1.0
    is_signed = min(values, default=0.0) < 0
    longest = BAR // 2 if is_signed else BAR
    bars = [style.bar * round(longest * min(abs(value) / largest, 1.0)) for value in values]
    if not is_signed:
        return [bar.ljust(longest) for bar in bars]
    empty = " " * longest
    return [
        f"{bar.rjust(longest)}{style.line}{empty}"
        if value < 0
        else f"{empty}{style.line}{bar.ljust(longest)}"
        for value, bar in zip(values, bars, strict=True)
    ]


@_content.register
def _(drawing: Table, axes: Axes, style: Style, width: int) -> list[str]:
    names = [printable(name) for name in drawing.columns]
    texts = [[printable(cell_text(cell)) for cell in row] for row in drawing.rows]
    first = max(map(cell_len, (names[0], *(row[0] for row in texts))), default=0)
    limit = max(min(LONGEST_CELL, width - first - 4), 8)
    columns = [[names[i], *(row[i] for row in texts)] for i in range(len(names))]
    columns = [[truncate(text, limit, style.ellipsis) for text in column] for column in columns]
    widths = [max(map(cell_len, column)) for column in columns]
    output: list[str] = []
    for part in _split(widths, width - 2):
        output += [""] * bool(output)
        for n in range(len(texts) + 1):
            cells = [
                _aligned(columns[i], n, widths[i], style, drawing.rows[n - 1][i] if n else None) for i in part
            ]
            output.append("  ".join(cells).rstrip())
    return output


def _split(widths: Sequence[int], width: int) -> list[list[int]]:
    """Split columns into parts that fit; each begins with the first column."""
    parts = [[0]]
    for i in range(1, len(widths)):
        if len(parts[-1]) > 1 and sum(widths[j] + 2 for j in parts[-1]) + widths[i] > width:
            parts.append([0])
        parts[-1].append(i)
    return parts


def _aligned(column: Sequence[str], n: int, width: int, style: Style, cell: CellLike) -> str:
    """Return a cell of a column, to the right if all below its name are numbers; bold if emphasised."""
    space = " " * (width - cell_len(column[n]))
    begin, end = style.bold if isinstance(cell, Cell) and cell.is_emphasised else ("", "")
    text = f"{begin}{column[n]}{end}"
    return space + text if all(map(_NUMBER.fullmatch, column[1:])) else text + space


@_content.register
def _(drawing: PatchValues, axes: Axes, style: Style, width: int) -> list[str]:
    panels = [(printable(panel.label), panel.values) for panel in drawing.panels]
    is_signed = any(values.min() < 0 for _, values in panels)
    links: list[tuple[str, str]] = []
    for label, values in panels:
        if is_signed:
            links += [(f"{label}, {name}", _strongest(values, sign)) for name, sign in _SIGNS.items()]
        else:
            links.append((label, _strongest(values)))
    longest = max(cell_len(label) for label, _ in links)
    output = [f"{label}{' ' * (longest - cell_len(label))}  {patches}" for label, patches in links]
    if is_signed or len(panels) > 1 or max(panels[0][1].shape) > LARGEST_GRID:
        return ["strongest patches (row,column):", *output]
    values = panels[0][1]
    rows, columns = ([str(i + 1) for i in range(n)] for n in values.shape)
    grid = heat_map(columns, rows, values / (values.max() or 1.0), style=style, width=width - 2)
    return [*grid.splitlines(), "strongest patches (row,column); the first is 1 in the map:", *output]


_SIGNS = {"positive": 1.0, "negative": -1.0}


def _strongest(values: Numbers, sign: float | None = None) -> str:
    """Return the places and values of the largest numbers, of those with this sign."""
    magnitudes = values * (sign or 1.0)
    order = np.argsort(-magnitudes, axis=None, kind="stable")[:N_PATCHES]
    places = [np.unravel_index(int(n), values.shape) for n in order if magnitudes.flat[int(n)] > 0]
    form = ".3g" if sign is None else "+.3g"
    return "   ".join(f"{r + 1},{c + 1} {values[r, c]:{form}}" for r, c in places) or "none"


@_content.register
def _(drawing: Heat, axes: Axes, style: Style, width: int) -> list[str]:
    if drawing.has_named_cells:
        links = link_lines(strongest_links(drawing.rows, drawing.columns, np.nan_to_num(drawing.values)))
        return [line.removeprefix("  ") for line in links]
    rows, columns = drawing.values.shape
    return [f"{rows} x {columns} values; {FILES} draws them"]


@_content.register
def _(drawing: Picture, axes: Axes, style: Style, width: int) -> list[str]:
    return [printable(drawing.text), f"{FILES} draws the image"]
