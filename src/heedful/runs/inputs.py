"""The inputs of a verb from a file, read as the training data of the run are."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeVar

from heedful.data.lines import File, LocatedRow, Record
from heedful.data.spreadsheets import is_workbook
from heedful.data.user_files import Form, form_of, input_records
from heedful.data.user_tables import Wanted, dialect_of
from heedful.errors import DataError, nearest
from heedful.runs.loading import LoadedRun
from heedful.runs.prepare import check_sizes, check_written_lists, join_lists
from heedful.tables import Dialect
from heedful.tasks.generation.output_constraints import CONSTRAINT_KEYS
from heedful.tasks.task_info import Columns

Answer = TypeVar("Answer")

FORMS: dict[Form, str] = {"table": "a table", "jsonl": "JSON lines", "conll": "CoNLL", "squad": "SQuAD"}
"""Formats that are recognised by content, for messages."""


def wanted_columns(run: LoadedRun, columns: Columns, names: Mapping[str, str] | None = None) -> Wanted:
    """Return what is read from a file for the inputs of a run; the user names the fields in ``names``."""
    return Wanted(
        columns.inputs,
        columns.optional_inputs,
        run.recipe.data.train,
        names or {},
        columns.trained_as,
        run.task.known_tags,
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
    misspelt = _misspelt_keys(run, columns, form)
    for record in input_records(file, wanted_columns(run, columns, names), form):
        if record.error is None and (problem := misspelt(record)):
            record = replace(record, error=DataError(problem))
        yield record if record.error is not None else _joined(record, columns, has_cells=form in FORMS)


_CLOSE = 0.85
"""The least similarity of a key with one that it misspells: one letter in six differs."""


def _misspelt_keys(run: LoadedRun, columns: Columns, form: Form) -> Callable[[Record], str]:
    """Return a function that describes the first key of a record that misspells a missing optional one.

    Other keys are the user's own.
    """
    constraints = CONSTRAINT_KEYS if form == "jsonl" and run.task.info.writes else ()
    optional = (*columns.optional_inputs, *constraints) if form in ("jsonl", "table") else ()
    known_misspellings: dict[str, str] = {}

    def misspelt(record: Record) -> str:
        for key in record.fields if optional else ():
            if key not in known_misspellings:
                is_own = key in optional or key in record.row
                close = [] if is_own else get_close_matches(key, optional, n=1, cutoff=_CLOSE)
                known_misspellings[key] = close[0] if close else ""
            meant = known_misspellings[key]
            if meant and meant not in record.fields:
                return f"{record.location}: unknown key {key!r}{nearest(key, [meant])}; rename it"
        return ""

    return misspelt


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


def answered(
    blocks: Iterable[Sequence[Record]],
    columns: Columns,
    answer: Callable[[list[Any]], Iterable[Answer]],
    failed: Callable[[str], Answer],
) -> Iterator[tuple[Record, Answer]]:
    """Yield each input with its answer, or with the error of an invalid input, block by block.

    Args:
        blocks: the inputs.
        columns: the columns of an input.
        answer: returns the answers to valid inputs.
        failed: returns the answer to an invalid input, from its error.
    """
    for block in blocks:
        answers = iter(answer([columns.input_of(record.row) for record in block if record.error is None]))
        for record in block:
            yield record, next(answers) if record.error is None else failed(str(record.error))
