"""Tables of ``heedful explain --out words.csv``: a row for each word of each input, with its scores."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.answers import with_location
from heedful.cli.output import log
from heedful.cli.tables import TableWriter
from heedful.errors import DataError, RequestError, WorkError
from heedful.explain.views import VIEWS

if TYPE_CHECKING:
    from heedful.data.lines import Record
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


def write_words(
    inputs: Iterable[tuple["Record", "TaskInput"]],
    explain: Callable[["TaskInput"], "Explanation"],
    views: Sequence[str],
    out: Path,
) -> None:
    """Write the scores of the words of inputs; an input that cannot be explained is logged.

    The column ``weights`` has the first digits of the SHA-256 of the run's weights.

    Args:
        inputs: each with its record.
        explain: explains an input with the views.
        views: the views.
        out: the table.

    Raises:
        WorkError: some inputs could not be explained; the table has the others.
        RequestError: none could be explained, or a field has the name of a column of the table.
    """
    from heedful.explain.provenance import DIGITS

    n, failures = 0, list[Exception]()
    with TableWriter(out) as table:
        for record, task_input in inputs:
            n += 1
            try:
                if record.error is not None:
                    raise record.error
                explanation = explain(task_input)
            except (DataError, RequestError) as error:
                failures.append(error)
                log(f"heedful: {with_location(error, record.location)}")
                continue
            weights = explanation.provenance.get("weights", "")[:DIGITS]
            for view in views:
                for row in explanation.word_scores(view):
                    table.add_row(record.fields, {"view": view, **row, "weights": weights})
        if not n:
            raise RequestError(f"--out {out}: there is no input")
        if len(failures) == n:
            raise failures[0]
        table.write()
    log(f"wrote {out}")
    if failures:
        raise WorkError(f"{len(failures)} of {n} inputs could not be explained")
