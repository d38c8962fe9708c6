"""The inputs of a verb from a file, read as the training data of the run are."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from heedful.data.lines import File, LocatedRow, Record
from heedful.data.spreadsheets import is_workbook
from heedful.data.user_files import Form, form_of, input_records
from heedful.data.user_tables import Wanted, dialect_of
from heedful.errors import DataError
from heedful.runs.loading import LoadedRun
from heedful.runs.prepare import check_sizes, check_written_lists, join_lists
from heedful.tables import Dialect
from heedful.tasks.task_info import Columns

FORMS: dict[Form, str] = {"table": "a table", "jsonl": "JSON lines", "conll": "CoNLL", "squad": "SQuAD"}
"""Formats that are recognised by content, for messages."""


def wanted_columns(run: LoadedRun, columns: Columns, names: Mapping[str, str] | None = None) -> Wanted:
    """Return what is read from a file for the inputs of a run; the user names the fields in ``names``."""
    return Wanted(
        columns.inputs, columns.optional_inputs, run.recipe.data.train, names or {}, columns.trained_as
    )


def input_form(run: LoadedRun, columns: Columns, file: File, names: Mapping[str, str] | None = None) -> Form:
    """Return the format of a file of inputs; arguments as of `read_inputs`."""
    return form_of(file, wanted_columns(run, columns, names))


def input_dialect(
    run: LoadedRun, columns: Columns, file: File, form: Form, names: Mapping[str, str] | None = None
) -> Dialect:
    """Return the dialect of a table of inputs, or the usual one; arguments as of `read_inputs`.

    Raises:
        DataError: the table has other columns, or cannot be read.
    """
    if form != "table" or is_workbook(file) or not file.can_be_read_again:
        return Dialect()
    return dialect_of(file.path, wanted_columns(run, columns, names))


def read_inputs(
    run: LoadedRun, columns: Columns, file: File, form: Form, names: Mapping[str, str] | None = None
) -> Iterator[Record]:
    """Yield an input for each record of a file; lists are joined with spaces where the task reads one text.

    Raises:
        DataError: the first record is in the wrong format, or the file cannot be read further.
    """
    for record in input_records(file, wanted_columns(run, columns, names), form):
        yield record if record.error is not None else _joined(record, columns, has_cells=form in FORMS)


def _joined(record: Record, columns: Columns, *, has_cells: bool) -> Record:
    try:
        located = LocatedRow(record.row, record.location)
        check_sizes(located, columns)
        if has_cells:
            check_written_lists(located, columns)
        row = join_lists(located, columns).row
    except DataError as error:
        return replace(record, error=error)
    return replace(record, row=row)
