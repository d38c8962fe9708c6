"""A heat map of attention in the terminal: rows are target words, columns source words.

The words of the columns stand above them like stairs, each with a line down to its column, so that they
read from left to right. A map that is too wide is cut into parts, one below the other.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.cells import cell_len, set_cell_size

from heedful.explain.matrix import checked, printable

CELL = 3
LONGEST_ROW_LABEL = 22
LONGEST_LINK = 24
NOTHING = "nothing stands out"
"""Of a token whose every weight would be shown as 0.00."""
# From white over light and dark blue, each darker than the one before: places in the 256-colour table.
COLOURS = (231, 195, 153, 117, 75, 33, 27, 26, 25, 18, 17)
BLOCKS = " ░▒▓█"
DIGITS = ".123456789#"


@dataclass(frozen=True)
class Style:
    """How a weight is drawn: ``levels[round(weight * (len(levels) - 1))]``.

    Args:
        levels: what fills a cell, from weight 0 to weight 1; each is `CELL` columns wide.
        line: leads from a word down to its column.
        ellipsis: where a word was cut.
        legend: says what the levels mean.
    """

    levels: tuple[str, ...]
    line: str
    ellipsis: str
    legend: str

    def level(self, weight: float) -> int:
        """The place in ``levels`` that shows a weight from 0 to 1; halves go up."""
        return int(weight * (len(self.levels) - 1) + 0.5)


def _background(colour: int, width: int = CELL) -> str:
    return f"\x1b[48;5;{colour}m{' ' * width}\x1b[0m"


def _scale(levels: Sequence[str]) -> str:
    return f"0 {''.join(levels)} 1"


COLOUR = Style(
    tuple(_background(colour) for colour in COLOURS),
    "│",
    "…",
    _scale([_background(colour, 1) for colour in COLOURS]),
)
SHADES = Style(tuple(sign * CELL for sign in BLOCKS), "│", "…", _scale(BLOCKS))
ASCII = Style(tuple(sign.center(CELL) for sign in DIGITS), "|", "~", _scale(DIGITS))


def choose_style(stream: Any, environment: Mapping[str, str] = os.environ) -> Style:
    """Colour at a terminal that has 256 of them, else shades of blocks, else plain ASCII.

    A ``NO_COLOR`` that is not empty is obeyed (no-color.org).
    """
    try:
        "░▒▓█│…".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    terminal, depth = environment.get("TERM", ""), environment.get("COLORTERM", "")
    is_able = "256" in terminal or depth in ("truecolor", "24bit")
    if environment.get("NO_COLOR") or not is_able or not stream.isatty():
        return SHADES
    return COLOUR


def heat_map(
    source: Sequence[str],
    target: Sequence[str],
    weights: Any,
    *,
    style: Style = SHADES,
    width: int = 80,
) -> str:
    """Draw ``weights [target words, source words]``, values from 0 to 1, white (or empty) to dark.

    Args:
        source: a word for each column.
        target: a word for each row.
        weights: any matrix that numpy reads.
        style: see `choose_style`.
        width: of the terminal.

    Raises:
        ValueError: another shape than the words say, or a weight that is not from 0 to 1.
    """
    matrix = checked(source, target, weights)
    rows = _fitted(target, LONGEST_ROW_LABEL, style)
    margin = max((cell_len(label) for label in rows), default=0) + 1
    parts = _parts(source, width - margin, style)
    drawn = []
    for columns in parts:
        drawn += _stairs([printable(source[c]) for c in columns], margin, width, style)
        for label, row in zip(rows, matrix, strict=True):
            cells = "".join(style.levels[style.level(row[c])] for c in columns)
            drawn.append(f"{' ' * (margin - 1 - cell_len(label))}{label} {cells}".rstrip(" "))
        drawn.append("")
    return "\n".join([*drawn, f"{' ' * margin}{style.legend}"])


def _parts(source: Sequence[str], room: int, style: Style) -> list[range]:
    """The columns of each part, nearly as many in each: as fit, with room for the last word's name."""
    longest = min(max((cell_len(printable(word)) for word in source), default=0), room // 3)
    fit = max(1, (room - longest) // CELL)
    count = -(-len(source) // fit)
    edges = [len(source) * i // count for i in range(count + 1)] if count else []
    return [range(*edge) for edge in pairwise(edges)]


def _stairs(words: Sequence[str], margin: int, width: int, style: Style) -> list[str]:
    """A line for each word: lines down to the columns of those before it, then the word."""
    lines = []
    for i, word in enumerate(words):
        before = "".join(f" {style.line} " for _ in range(i))
        room = width - margin - CELL * i - 1
        lines.append(f"{' ' * margin}{before} {_cut(word, room, style.ellipsis)}")
    return lines


def _fitted(words: Sequence[str], longest: int, style: Style) -> list[str]:
    return [_cut(printable(word), longest, style.ellipsis) for word in words]


def _cut(word: str, room: int, ellipsis: str) -> str:
    """The word, or as much of it as there is room for."""
    if cell_len(word) <= room:
        return word
    return set_cell_size(word, max(room - 1, 0)).rstrip() + ellipsis


def link_lines(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> list[str]:
    """A line for each token: those it is linked to, with their weights; or that nothing stands out."""
    width = min(LONGEST_LINK, max((len(token) for token, _ in rows), default=0))
    lines = []
    for token, best in rows:
        links = "   ".join(f"{printable(to)} {weight:.2f}" for to, weight in best) or NOTHING
        lines.append(f"  {printable(token):<{width}}  →  {links}")
    return lines
