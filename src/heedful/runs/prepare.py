"""Prepare the data of a training: fit tokenizers, store token ids, report which rows were kept."""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from heedful.artifacts.run_folder import RunFolder
from heedful.data.annotated import SKIPPED_COMMENTS, note_comments
from heedful.data.findings import Findings, shared_rows
from heedful.data.images import LazyImage, with_images
from heedful.data.lines import PartialRow, with_cells
from heedful.data.memory import MemorySource
from heedful.data.report import DataReport
from heedful.data.sources import LocatedRow, Row, Source, list_columns, open_source
from heedful.data.splitting import PartSource
from heedful.data.store import RowDigest, TokenStore
from heedful.errors import DamagedError, DataError, RequestError, quoted
from heedful.identifiers import identifier
from heedful.limits import too_large
from heedful.recipes.schema import Recipe
from heedful.runs.data_report import DataReportRecord, read_data_report, write_data_report
from heedful.runs.left_out import UnseenLabels, left_out
from heedful.runs.required_files import NOT_FILES, errors_named, find_sources, sources_of
from heedful.tasks.base import Log, PreparedData, Task
from heedful.tasks.inputs.coverage import spelling_notes
from heedful.tasks.inputs.labels import LABEL
from heedful.tasks.inputs.processor import COLUMNS
from heedful.tasks.inputs.words import TAGS, WORDS
from heedful.tasks.registry import task_for
from heedful.tasks.seq2seq import REFERENCES
from heedful.tasks.task_info import Columns
from heedful.training import distribution
from heedful.typing import JsonObject

MOST_TEST_ROWS = 20_000
"""Rows of a test set that are compared with the training rows, which takes a second."""


def rows_of(
    recipe: Recipe, source: Source, *, training: bool = False, whole: bool = False
) -> Iterator[LocatedRow]:
    """Yield the rows of a source, each with all columns that the recipe's task reads.

    Args:
        recipe: the recipe.
        source: the source.
        training: whether they are training data, which may need more columns.
        whole: whether rows have the fields of their records (`Source.open_whole`).

    Raises:
        DataError: a row lacks a column, or has a list in a column of single values.
    """
    columns, root = task_for(recipe).columns, recipe.folder
    required = columns.required + (columns.training if training else ())
    if unused := set(list_columns(source)) - {*columns.list_valued}:
        raise DataError(
            f"lists: the task {recipe.task.kind} needs a text in the column {min(unused)!r}; move it from "
            "lists to columns, where the items of a list are joined with spaces"
        )
    is_given = isinstance(getattr(source, "source", source), MemorySource)
    for row in open_source(source, root, whole=whole):
        check_sizes(row, columns)
        check_written_lists(row, columns)
        if isinstance(row.row, PartialRow):
            for column in (*required, *columns.names):
                if column in row.row.unreadable:
                    raise DataError(row.row.unreadable[column])
        for column in required:
            if column not in row.row:
                remedy = f"; give its name in the rows: columns={{{column!r}: …}}" if is_given else ""
                raise DataError(
                    f"{row.location}: no column {column!r}; the row has the columns "
                    f"{', '.join(sorted(row.row))}{remedy}"
                )
            if isinstance(row.row[column], LazyImage) and column not in columns.images:
                raise DataError(f"{row.location}: column {column!r}: expected text, got an image")
        named = _with_compared_names(join_lists(row, columns, is_given=is_given), columns)
        yield with_images(named, columns.images, root)


def check_sizes(row: LocatedRow[Row], columns: Columns) -> None:
    """Refuse a text that is too long, before anything is done with it.

    Raises:
        DataError: there is one.
    """
    for column, cell in row.row.items():
        if problem := too_large(cell, columns.longest_text):
            raise DataError(f"{row.location}: {column} {problem}")


_WRITTEN_LIST = re.compile(r"""\[\s*(?:(['"]).*\1|[-+]?\d+(?:[\s,]+[-+]?\d+)+)[\s,]*\]""", re.DOTALL)
"""A list of texts or of numbers, as Python, JSON and NumPy write it: ``['a', 'b']``, ``["a"]``, ``[0 1]``."""

_ITEMS = {
    WORDS: "words separated by blanks",
    TAGS: "tags separated by blanks",
    LABEL: "labels separated by task.separator",
}


def check_written_lists(row: LocatedRow[Row], columns: Columns) -> None:
    """Refuse a list that a program wrote as text: its brackets and quotes would be parts of the items.

    Raises:
        DataError: there is one, in a column in which the task reads lists.
    """
    for column in columns.list_valued:
        cell = row.row.get(column)
        if isinstance(cell, str) and _WRITTEN_LIST.fullmatch(cell.strip()):
            raise DataError(
                f"{row.location}: {column}: expected {_ITEMS.get(column, 'a text')}, or a list, got a list "
                f"written as text: {quoted(cell)}; write only its items, or save the lists as JSON lines or "
                "Parquet"
            )


def join_lists(row: LocatedRow[Row], columns: Columns, *, is_given: bool = False) -> LocatedRow[Row]:
    """Join lists with spaces, in columns in which the task reads one text.

    Raises:
        DataError: a column of single values has several, or a program gave several texts in place of one.
    """
    lists = [
        column
        for column, cell in row.row.items()
        if isinstance(cell, list) and column not in columns.list_valued
    ]
    if not lists:
        return row
    for column in lists:
        n = len(row.row[column])
        if n != 1 and column in columns.single_valued:
            raise DataError(f"{row.location}: column {column!r} must have one {column}, got a list of {n}")
        if n > 1 and is_given and column in columns.names:
            has_references = REFERENCES in columns.names and column == columns.required[-1]
            further = f"give further ones in the column {REFERENCES!r}"
            remedy = further if has_references else "join them, or give a row for each"
            raise DataError(
                f"{row.location}: column {column!r}: expected one text, got a list of {n}; {remedy}"
            )
    return with_cells(row, {column: " ".join(row.row[column]) for column in lists})


def _with_compared_names(row: LocatedRow[Row], columns: Columns) -> LocatedRow[Row]:
    """Return a row whose labels or tags are written as they are compared (`heedful.identifiers`)."""
    for column in {LABEL, TAGS} & {*columns.required}:
        cell = row.row[column]
        if isinstance(cell, str | list):
            compared = identifier(cell) if isinstance(cell, str) else [*map(identifier, cell)]
            if compared != cell:
                return with_cells(row, {column: compared})
    return row


def prepare(recipe: Recipe, folder: RunFolder, log: Log) -> PreparedData:
    """Fit or load the processor, tokenise the data once, and write the data report.

    Files of the same recipe that are already in the run's folder are reused, so a resumed run reads the same
    tokens as before. Token ids that are missing or damaged are made again; by the first process, for which
    the others wait.

    Raises:
        DataError: if the data cannot be used, or are not those that the run was started with.
        DamagedError: if another process finds no intact token ids.
    """
    old_report = read_data_report(folder)
    if old_report is None:
        find_sources(sources_of(recipe.data), recipe.folder)
    task = _fitted_task(recipe, folder, log)
    if old_report is not None and (stored := _stored_data(recipe, folder, task, old_report)) is not None:
        return stored
    if not distribution.is_first():
        raise DamagedError(f"{folder.cache}: changed while the processes of the run started; start it again")
    for note in left_out(recipe):
        log(note)
    log(task.info.encoding_message)
    findings = Findings(
        *_compared_columns(task.columns),
        _lacks_header(recipe.data.train),
        numeric=task.columns.numeric,
        split=task.split_labels,
    )
    sets: dict[str, _EncodedSet] = {}
    for part in ("valid", "train"):
        sets[part] = _encode(recipe, folder, task, part, findings)
        try:
            _check_digest(part, sets[part].digest, old_report)
        except DataError:
            shutil.rmtree(folder.cache)
            raise
        for line in sets[part].report.lines():
            log(f"{part}: {line}" if line.startswith("rows") else line)
    reports = {part: {**s.report.to_dict(), "sha256": s.digest.hexdigest()} for part, s in sets.items()}
    write_data_report(folder, reports)
    train, valid = sets["train"], sets["valid"]
    spelling = spelling_notes(train.report, task.processor.tokenizers, is_trained=recipe.start is None)
    for note in (
        *valid.notes,
        *findings.notes(train.report.n_empty),
        *spelling,
        *_cut_rows(reports),
        *_shared_rows(recipe, task.columns, sets),
    ):
        log(note)
    return PreparedData(task, train.store, valid.store, valid.rows, train.report.longest)


def _fitted_task(recipe: Recipe, folder: RunFolder, log: Log) -> Task:
    """Return the task with its processor: the one in the folder, else one fitted to the training rows."""
    task = task_for(recipe)
    if task.Processor.files(folder)[-1].exists():
        task.load(folder)
        return task
    log(task.info.fitting_message if recipe.start is None else f"starting from {recipe.start.run}")
    with errors_named("data.train"):
        task.fit_processor(lambda: rows_of(recipe, recipe.data.sets.train, training=True))
    task.save(folder)
    return task


def _stored_data(
    recipe: Recipe, folder: RunFolder, task: Task, report: DataReportRecord
) -> PreparedData | None:
    """Return the data that are already in the folder; None if token ids are missing or damaged."""
    key = task.processor.fingerprint
    train, valid = (
        TokenStore.open(folder.cache / part, key, _n_ids(task, part)) for part in ("train", "valid")
    )
    if train is None or valid is None:
        return None
    rows: list[LocatedRow[Row]] = []
    if task.keeps_rows and distribution.is_first():  # only the first process validates
        digest = RowDigest()
        read = digest.through(rows_of(recipe, recipe.data.sets.valid))
        rows = list(_with_seen_labels(recipe, task, read, task.new_report())[0])
        _check_digest("valid", digest, report)
    return PreparedData(task, train, valid, rows)


def _stored_columns(task: Task, part: str) -> tuple[str, ...]:
    """Return the columns of ``train`` or ``valid`` that are stored."""
    return task.columns.required + (task.columns.training if part == "train" else ())


def _n_ids(task: Task, part: str) -> dict[str, int]:
    """Return the number of distinct ids of each stored column."""
    n_ids = task.n_ids()
    return {
        column: n_ids if isinstance(n_ids, int) else n_ids[column] for column in _stored_columns(task, part)
    }


@dataclass(frozen=True)
class _EncodedSet:
    """A data set that was encoded: its ids, what was counted, notes, and its rows if the task keeps them."""

    store: TokenStore
    report: DataReport
    digest: RowDigest
    rows: list[LocatedRow[Row]]
    notes: list[str]


def _encode(recipe: Recipe, folder: RunFolder, task: Task, part: str, findings: Findings) -> _EncodedSet:
    """Encode the rows of ``train``, which also go through the findings, or of ``valid``."""
    training = part == "train"
    report, digest, kept = task.new_report(), RowDigest(), list[LocatedRow[Row]]()
    all_rows = rows_of(recipe, getattr(recipe.data.sets, part), training=training)
    rows = digest.through(note_comments(all_rows, partial(report.note, SKIPPED_COMMENTS)))
    unseen = None
    if training:
        rows = findings.through(rows)
    else:
        rows, unseen = _with_seen_labels(recipe, task, rows, report)
        if task.keeps_rows:
            rows = _collect_rows(rows, kept)
    encoded = task.encode(rows, report)
    with errors_named(f"data.{part}"):
        ids = (row.row for row in encoded)
        n_ids = _n_ids(task, part)
        store = TokenStore.build(ids, [*n_ids], folder.cache / part, task.processor.fingerprint, n_ids=n_ids)
    return _EncodedSet(store, report, digest, kept, [*unseen.notes()] if unseen else [])


def _with_seen_labels(
    recipe: Recipe, task: Task, rows: Iterator[LocatedRow[Row]], report: DataReport
) -> tuple[Iterator[LocatedRow[Row]], UnseenLabels | None]:
    """Return the validation rows; of those that ``data.split`` took, only rows of labels in the training."""
    if not isinstance(recipe.data.sets.valid, PartSource):
        return rows, None
    unseen = UnseenLabels(task, report)
    return unseen.without(rows), unseen


def _lacks_header(source: object) -> bool:
    return getattr(source, "header", None) is False


def _compared_columns(columns: Columns) -> tuple[tuple[str, str] | None, str | None]:
    """Return the columns of a pair of texts that should differ, and that of classes, if a task has them."""
    has_pair = set(COLUMNS) <= set(columns.required)
    of_classes = {*columns.required} - {*columns.numeric}
    label = next((column for column in (LABEL, TAGS) if column in of_classes), None)
    return COLUMNS if has_pair else None, label


def _cut_rows(reports: JsonObject) -> Iterator[str]:
    for part, report in reports.items():
        for reason, tally in report["truncated"].items():
            if report["kept"] == tally["count"] > 1:
                yield f"data.{part}: every row was truncated ({reason}); check the limit"


def _shared_rows(recipe: Recipe, columns: Columns, sets: Mapping[str, _EncodedSet]) -> Iterator[str]:
    """Yield a note for each other set with rows that are also training rows; running text repeats lines.

    A training needs no test sets: only files of texts are read, as far as they can be.
    """
    if len(columns.required) == 1:
        return
    others = {"data.valid": sets["valid"].digest}
    for name, source in recipe.data.sets.test.items():
        if source.kind not in NOT_FILES | {"beside", "chain", "python"} and not columns.images:
            digest = others[f"data.test.{name}"] = RowDigest()
            with suppress(RequestError):
                for _ in digest.through(islice(rows_of(recipe, source), MOST_TEST_ROWS)):
                    pass
    for key, digest in others.items():
        if note := shared_rows(sets["train"].digest.row_hashes, digest.row_hashes):
            yield f"{key}: {note}"


def check_rows(recipe: Recipe, folder: RunFolder, part: str) -> None:
    """Compare the rows of ``train`` or ``valid`` with the data report of the run, if it has one.

    Args:
        recipe: the recipe of the run.
        folder: the run's folder.
        part: ``train`` or ``valid``.

    Raises:
        DataError: they are not those that the run was started with.
    """
    report = read_data_report(folder)
    if report is None:
        return
    digest, source = RowDigest(), getattr(recipe.data.sets, part)
    for row in rows_of(recipe, source, training=part == "train"):
        digest.update(row.row)
    _check_digest(part, digest, report)


def _check_digest(part: str, digest: RowDigest, report: DataReportRecord | None) -> None:
    """Compare rows that were read again with the data report of the run, if it has one."""
    if report is not None and getattr(report, part).sha256 != digest.hexdigest():
        raise DataError(
            f"data.{part}: the rows have changed since the run was started; restore them, or start a new run"
        )


def _collect_rows(rows: Iterator[LocatedRow[Row]], into: list[LocatedRow[Row]]) -> Iterator[LocatedRow[Row]]:
    """Yield the rows and append them to a list."""
    for row in rows:
        into.append(row)
        yield row
