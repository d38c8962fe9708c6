"""Tables in Markdown, for the generated pages."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table; a ``|`` within a cell must be escaped."""
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))
