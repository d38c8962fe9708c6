"""Tables of ``heedful explain --out words.csv``: a row for each word of each input, with its scores."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.explain_many import ExplainedInputs
from heedful.cli.tables import TableWriter
from heedful.errors import RequestError
from heedful.explain.views import VIEWS
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation
    from heedful.tasks.prediction import TaskInput

    Explain = Callable[[TaskInput], Explanation]

VIEWS_OF_WORDS = [name for name, view in VIEWS.items() if view.has_word_scores]
"""Names of the views that have a score for each word."""


def check_views(views: Sequence[str], out: Path) -> None:
    """Check that all views have scores of words.

    Raises:
        RequestError: there is none, or one has no scores of words.
    """
    for name in views or [""]:
        if name not in VIEWS_OF_WORDS:
            known = ", ".join(VIEWS_OF_WORDS)
            remedy = f"leave out --view {name}" if name else "add --view NAME"
            raise RequestError(
                f"--out {out}: a table has scores of words, which these views have: {known}; {remedy}"
            )


def rows_of(explain: "Explain", views: Sequence[str]) -> "Callable[[TaskInput], list[JsonObject]]":
    """Return a function that explains an input and returns the rows of its words, by view.

    The column ``weights`` has the first digits of the SHA-256 of the run's weights. The function raises
    `RequestError` if a view has no scores for the input.
    """
    from heedful.explain.provenance import DIGITS

    def rows(task_input: "TaskInput") -> list[JsonObject]:
        explanation = explain(task_input)
        weights = explanation.provenance.get("weights", "")[:DIGITS]
        return [
            {"view": view, **row, "weights": weights}
            for view in views
            for row in explanation.word_scores(view)
        ]

    return rows


def write_words(inputs: ExplainedInputs[list[JsonObject]]) -> None:
    """Write the scores of the words of inputs.

    Args:
        inputs: the inputs, with their rows (`rows_of`).

    Raises:
        WorkError: some inputs could not be explained; the table has the others.
        RequestError: none could be explained, or a field has the name of a column of the table.
    """
    with TableWriter(inputs.out) as table:
        for record, rows in inputs:
            if not isinstance(rows, Exception):
                for row in rows:
                    table.add_row(record.fields, row)
        inputs.check_some()
        table.write()
    inputs.finish()
