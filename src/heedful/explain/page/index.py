"""The page that lists the pages of several explanations."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING
from urllib.parse import quote

from heedful.explain.page.build import (
    answer_html,
    asset,
    csp_hash,
    escape,
    head_html,
    input_text,
    provenance_html,
    quoted_html,
)

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

LONGEST = 300
"""Maximum characters of an input."""


@dataclass(frozen=True)
class Entry:
    """A line of the list.

    Args:
        name: of the page, without its suffix.
        explanation: what is on the page; None if the input could not be explained.
        error: why it could not.
    """

    name: str
    explanation: "Explanation | None"
    error: str = ""


def index_page(entries: Sequence[Entry]) -> str:
    """Return an HTML document with a link to each page, its input, its answer and its notes."""
    first = next(entry.explanation for entry in entries if entry.explanation is not None)
    style = asset("page.css")
    return Template(asset("index.html")).substitute(
        head=head_html(first, f"default-src 'none'; style-src {csp_hash(style)}", style),
        run=escape(first.run),
        task=escape(first.task),
        rows="".join(map(_row, entries)),
        provenance=provenance_html(first),
    )


def _row(entry: Entry) -> str:
    if (explanation := entry.explanation) is None:
        cells = [f"<bdi>{escape(entry.name)}</bdi>", "", "", f"not explained: {escape(entry.error)}"]
    else:
        answer = explanation.answer
        cells = [
            f'<a href="{quote(entry.name)}.html"><bdi>{escape(entry.name)}</bdi></a>',
            quoted_html(input_text(explanation.input), LONGEST),
            answer_html(answer, explanation.task),
            escape("; ".join(answer.get("notes", ()))),
        ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
