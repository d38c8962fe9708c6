"""Draw attention as a heat map in the terminal: rows are target words, columns are source words.

The source words stand above the columns, one per line, each with a vertical line down to its column. A map
wider than the terminal is split into parts, one below the other.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TextIO

from numpy.typing import ArrayLike
from rich.cells import cell_len, set_cell_size

from heedful.explain.drawing.matrix import check_weights, printable

CELL = 3
LONGEST_ROW_LABEL = 22
LONGEST_LINK = 24
MOST_LINKS = 60  # lines that list the strongest weights: more scroll away
NO_WEIGHTS = "all weights below 0.005"
"""Shown for a token whose weights would all be rounded to 0.00."""
# From white to dark blue, each darker than the one before: indices into the 256-colour table.
COLOURS = (231, 195, 153, 117, 75, 33, 27, 26, 25, 18, 17)
BLOCKS = " ░▒▓█"
DIGITS = ".123456789#"


@dataclass(frozen=True)
class Style:
    """Style of a heat map; the cell of a weight is ``levels[round(weight * (len(levels) - 1))]``.

    Args:
        levels: cell contents from weight 0 to weight 1, each `CELL` columns wide.
        line: character of the lines from words to their columns.
        ellipsis: character at the end of a truncated word.
        legend: line that explains the levels.
        bar: character of bars.
        bold: what begins and what ends bold text.
    """

    levels: tuple[str, ...]
    line: str
    ellipsis: str
    legend: str
    bar: str = "█"
    bold: tuple[str, str] = ("", "")

    def level(self, weight: float) -> int:
        """Return the index into ``levels`` for a weight from 0 to 1; halves are rounded up."""
        return int(weight * (len(self.levels) - 1) + 0.5)


def _background(colour: int, width: int = CELL) -> str:
    return f"\x1b[48;5;{colour}m{' ' * width}\x1b[0m"


def _legend(levels: Sequence[str]) -> str:
    return f"0 {''.join(levels)} 1"


COLOUR = Style(
    tuple(_background(colour) for colour in COLOURS),
    "│",
    "…",
    _legend([_background(colour, 1) for colour in COLOURS]),
    bold=("\x1b[1m", "\x1b[0m"),
)
SHADES = Style(tuple(sign * CELL for sign in BLOCKS), "│", "…", _legend(BLOCKS))
ASCII = Style(tuple(sign.center(CELL) for sign in DIGITS), "|", "~", _legend(DIGITS), "#")


def choose_style(stream: TextIO, environment: Mapping[str, str] = os.environ) -> Style:
    """Return colours if the terminal supports 256 colours, otherwise block characters, otherwise ASCII.

    A non-empty ``NO_COLOR`` turns colours off (no-color.org).
    """
    try:
        "░▒▓█│…".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    terminal, depth = environment.get("TERM", ""), environment.get("COLORTERM", "")
    has_colours = "256" in terminal or depth in ("truecolor", "24bit")
    if environment.get("NO_COLOR") or not has_colours or not stream.isatty():
        return SHADES
    return COLOUR


def heat_map(
    source: Sequence[str],
    target: Sequence[str],
    weights: ArrayLike,
    *,
    style: Style = SHADES,
    width: int = 80,
) -> str:
    """Draw ``weights [target words, source words]``, values from 0 (white or empty) to 1 (dark).

    Args:
        source: a word per column.
        target: a word per row.
        weights: a matrix, or anything that numpy converts to one.
        style: see `choose_style`.
        width: columns of the terminal.

    Raises:
        ValueError: the shape does not match the words, or a weight is not between 0 and 1.
    """
    matrix = check_weights(source, target, weights)
    rows = [truncate(printable(word), LONGEST_ROW_LABEL, style.ellipsis) for word in target]
    margin = max((cell_len(label) for label in rows), default=0) + 1
    column_ranges = _split_columns(source, width - margin, style)
    lines = []
    for columns in column_ranges:
        lines += _column_labels([printable(source[c]) for c in columns], margin, width, style)
        for label, row in zip(rows, matrix, strict=True):
            cells = "".join(style.levels[style.level(row[c])] for c in columns)
            lines.append(f"{' ' * (margin - 1 - cell_len(label))}{label} {cells}".rstrip(" "))
        lines.append("")
    return "\n".join([*lines, f"{' ' * margin}{style.legend}"])


def _split_columns(source: Sequence[str], width: int, style: Style) -> list[range]:
    """Split the columns into parts of nearly equal size that fit, with space for the last word's name."""
    longest = min(max((cell_len(printable(word)) for word in source), default=0), width // 3)
    n_fitting = max(1, (width - longest) // CELL)
    n_parts = -(-len(source) // n_fitting)
    edges = [len(source) * i // n_parts for i in range(n_parts + 1)] if n_parts else []
    return [range(*edge) for edge in pairwise(edges)]


def _column_labels(words: Sequence[str], margin: int, width: int, style: Style) -> list[str]:
    """Return a line per word: vertical lines for the columns of earlier words, then the word."""
    lines = []
    for i, word in enumerate(words):
        vertical_lines = "".join(f" {style.line} " for _ in range(i))
        space = width - margin - CELL * i - 1
        lines.append(f"{' ' * margin}{vertical_lines} {truncate(word, space, style.ellipsis)}")
    return lines


def truncate(word: str, space: int, ellipsis: str) -> str:
    """Return a word, truncated with an ellipsis to at most ``space`` columns."""
    if cell_len(word) <= space:
        return word
    return set_cell_size(word, max(space - 1, 0)).rstrip() + ellipsis


def link_lines(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> list[str]:
    """Return a line per token, at most `MOST_LINKS`: the tokens with the largest weights, or `NO_WEIGHTS`."""
    tokens = [printable(token) for token, _ in rows]
    width = min(LONGEST_LINK, max(map(cell_len, tokens), default=0))
    lines = []
    for token, (_, strongest) in zip(tokens[:MOST_LINKS], rows, strict=False):
        links = "   ".join(f"{printable(key)} {weight:.2f}" for key, weight in strongest) or NO_WEIGHTS
        lines.append(f"  {token}{' ' * (width - cell_len(token))}  →  {links}")
    if len(rows) > MOST_LINKS:
        lines.append(f"  and {len(rows) - MOST_LINKS} more; --json and --out show all")
    return lines
