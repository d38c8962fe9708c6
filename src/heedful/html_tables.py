"""Tables in HTML, as notebooks show results."""

import html
from collections.abc import Iterable, Sequence


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table whose first row is the header; the cells are escaped."""
    header, *body = rows
    lines = "".join(_line(row, "td") for row in body)
    return f"<table><thead>{_line(header, 'th')}</thead><tbody>{lines}</tbody></table>"


def _line(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
