"""Tables as text and in HTML, as terminals and notebooks show results, and the dialect of those in files."""

import html
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size


@dataclass(frozen=True)
class Dialect:
    """How a table is written.

    Args:
        separator: the character between fields.
        beginning: what precedes the header: a byte order mark, a line ``sep=;``, or both.
    """

    separator: str = ","
    beginning: str = ""


def terminal_width() -> int:
    """Return the terminal width, at least 40; 80 if there is no terminal."""
    return max(40, get_terminal_size((80, 24)).columns)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield the rows as lines with aligned columns; columns in `right` are right-aligned."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table whose first row is the header; the cells are escaped."""
    header, *body = rows
    lines = "".join(_line(row, "td") for row in body)
    return f"<table><thead>{_line(header, 'th')}</thead><tbody>{lines}</tbody></table>"


def _line(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
