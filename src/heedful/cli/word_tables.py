"""Tables of ``heedful explain --out words.csv``: a row for each word of each input, with its scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.explain_many import Explain, ExplainedInputs
from heedful.cli.tables import TableWriter
from heedful.errors import RequestError
from heedful.explain.views import VIEWS

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation
    from heedful.tasks.prediction import TaskInput

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


def with_scores(explain: Explain, views: Sequence[str]) -> Explain:
    """Return a function that explains an input, and raises `RequestError` if a view has no scores for it."""

    def checked(task_input: "TaskInput") -> "Explanation":
        explanation = explain(task_input)
        for view in views:
            explanation.word_scores(view)
        return explanation

    return checked


def write_words(inputs: ExplainedInputs, views: Sequence[str]) -> None:
    """Write the scores of the words of inputs.

    The column ``weights`` has the first digits of the SHA-256 of the run's weights.

    Args:
        inputs: the inputs, explained with the views (`with_scores`).
        views: the views.

    Raises:
        WorkError: some inputs could not be explained; the table has the others.
        RequestError: none could be explained, or a field has the name of a column of the table.
    """
    from heedful.explain.provenance import DIGITS

    with TableWriter(inputs.out) as table:
        for record, found in inputs:
            if isinstance(found, Exception):
                continue
            weights = found.provenance.get("weights", "")[:DIGITS]
            for view in views:
                for row in found.word_scores(view):
                    table.add_row(record.fields, {"view": view, **row, "weights": weights})
        inputs.check_some()
        table.write()
    inputs.finish()
