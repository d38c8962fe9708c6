"""Prepare the data of a training: fit tokenizers, store token ids, report which rows were kept."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

from heedful.artifacts.run_folder import RunFolder, read_json, write_json
from heedful.data.findings import Findings, shared_rows
from heedful.data.images import LazyImage, with_images
from heedful.data.memory import MemorySource
from heedful.data.sources import LocatedRow, Row, Source, list_columns, open_source
from heedful.data.store import RowDigest, TokenStore
from heedful.errors import DamagedError, DataError, RequestError
from heedful.recipes.schema import Recipe
from heedful.runs.required_files import NOT_FILES, errors_named, find_sources, sources_of
from heedful.tasks.base import Log, PreparedData
from heedful.tasks.inputs.labels import LABEL
from heedful.tasks.inputs.processor import COLUMNS
from heedful.tasks.inputs.words import TAGS
from heedful.tasks.registry import task_for
from heedful.tasks.task_info import Columns
from heedful.training import distribution
from heedful.typing import JsonObject

MOST_TEST_ROWS = 20_000
"""Rows of a test set that are compared with the training rows, which takes a second."""


def rows_of(recipe: Recipe, source: Source, *, training: bool = False) -> Iterator[LocatedRow]:
    """Yield the rows of a source, each with all columns that the recipe's task reads.

    Args:
        recipe: the recipe.
        source: the source.
        training: whether they are training data, which may need more columns.

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
    for row in open_source(source, root):
        for column in required:
            if column not in row.row:
                is_given = isinstance(getattr(source, "source", source), MemorySource)
                remedy = f"; give its name in the rows: columns={{{column!r}: …}}" if is_given else ""
                raise DataError(
                    f"{row.location}: no column {column!r}; the row has the columns "
                    f"{', '.join(sorted(row.row))}{remedy}"
                )
            if isinstance(row.row[column], LazyImage) and column not in columns.images:
                raise DataError(f"{row.location}: column {column!r}: expected text, got an image")
        yield with_images(_join_lists(row, columns), columns.images, root)


def _join_lists(row: LocatedRow[Row], columns: Columns) -> LocatedRow[Row]:
    """Join lists with spaces, in columns in which the task reads one text."""
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
    return LocatedRow({**row.row, **{column: " ".join(row.row[column]) for column in lists}}, row.location)


def prepare(recipe: Recipe, folder: RunFolder, log: Log) -> PreparedData:
    """Fit or load the processor, tokenise the data once, and write the data report.

    Files of the same recipe that are already in the run's folder are reused, so a resumed run reads the same
    tokens as before. Token ids that are missing or damaged are made again; by the first process, for which
    the others wait.

    Raises:
        DataError: if the data cannot be used, or are not those that the run was started with.
        DamagedError: if another process finds no intact token ids.
    """
    old_report = read_json(folder.data_report) if folder.data_report.exists() else None
    if old_report is None:
        find_sources(sources_of(recipe.data), recipe.folder)
    task, sets = task_for(recipe), recipe.data.sets
    if task.Processor.files(folder)[-1].exists():
        task.load(folder)
    else:
        log(task.info.fitting_message if recipe.start is None else f"starting from {recipe.start.run}")
        with errors_named("data.train"):
            task.fit_processor(lambda: rows_of(recipe, sets.train, training=True))
        task.save(folder)
    key, n_ids = task.processor.fingerprint, task.n_ids()
    valid_rows: list[LocatedRow[Row]] = []
    train, valid = (TokenStore.open(folder.cache / part, key) for part in ("train", "valid"))
    if train is not None and valid is not None and old_report is not None:
        if task.keeps_rows and distribution.is_first():  # only the first process validates
            digest = RowDigest()
            valid_rows = list(digest.through(rows_of(recipe, sets.valid)))
            _check_digest("valid", digest, old_report)
        return PreparedData(task, train, valid, valid_rows)
    if not distribution.is_first():
        raise DamagedError(f"{folder.cache}: changed while the processes of the run started; start it again")
    log(task.info.encoding_message)
    reports: JsonObject = {}
    stores, longest = {}, None
    findings, digests = Findings(*_compared_columns(task.columns), _lacks_header(recipe.data.train)), {}
    for part, source in (("valid", sets.valid), ("train", sets.train)):
        report, digest, training = task.new_report(), RowDigest(), part == "train"
        digests[part] = digest
        rows = digest.through(rows_of(recipe, source, training=training))
        rows = findings.through(rows) if training else rows
        if part == "valid" and task.keeps_rows:
            rows = _collect_rows(rows, valid_rows)
        encoded = task.encode(rows, report)
        with errors_named(f"data.{part}"):
            ids = (row.row for row in encoded)
            columns = task.columns.required + (task.columns.training if training else ())
            stores[part] = TokenStore.build(ids, columns, folder.cache / part, key, n_ids=n_ids)
        try:
            _check_digest(part, digest, old_report)
        except DataError:
            shutil.rmtree(folder.cache)
            raise
        longest = report.longest  # in the end, of the training data
        reports[part] = {**report.to_dict(), "sha256": digest.hexdigest()}
        for line in report.lines():
            log(f"{part}: {line}" if line.startswith("rows") else line)
    write_json(folder.data_report, {"version": 1, **reports})
    for note in (*findings.notes(), *_cut_rows(reports), *_shared_rows(recipe, task.columns, digests)):
        log(note)
    return PreparedData(task, stores["train"], stores["valid"], valid_rows, longest)


def _lacks_header(source: object) -> bool:
    return getattr(source, "header", None) is False


def _compared_columns(columns: Columns) -> tuple[tuple[str, str] | None, str | None]:
    """Return the columns of a pair of texts that should differ, and that of classes, if a task has them."""
    has_pair = set(COLUMNS) <= set(columns.required)
    label = next((column for column in (LABEL, TAGS) if column in columns.required), None)
    return COLUMNS if has_pair else None, label


def _cut_rows(reports: JsonObject) -> Iterator[str]:
    for part, report in reports.items():
        for reason, tally in report["truncated"].items():
            if report["kept"] == tally["count"] > 1:
                yield f"data.{part}: every row was truncated ({reason}); check the limit"


def _shared_rows(recipe: Recipe, columns: Columns, digests: Mapping[str, RowDigest]) -> Iterator[str]:
    """Yield a note for each other set with rows that are also training rows; running text repeats lines.

    A training needs no test sets: only files of texts are read, as far as they can be.
    """
    if len(columns.required) == 1:
        return
    others = {"data.valid": digests["valid"]}
    for name, source in recipe.data.sets.test.items():
        if source.kind not in NOT_FILES | {"beside", "chain", "python"} and not columns.images:
            digest = others[f"data.test.{name}"] = RowDigest()
            with suppress(RequestError):
                for _ in digest.through(islice(rows_of(recipe, source), MOST_TEST_ROWS)):
                    pass
    for key, digest in others.items():
        if note := shared_rows(digests["train"].row_hashes, digest.row_hashes):
            yield f"{key}: {note}"


def _check_digest(part: str, digest: RowDigest, report: JsonObject | None) -> None:
    """Compare rows that were read again with the data report of the run, if it has one."""
    if report is not None and report[part]["sha256"] != digest.hexdigest():
        raise DataError(
            f"data.{part}: the rows have changed since the run was started; restore them, or start a new run"
        )


def _collect_rows(rows: Iterator[LocatedRow[Row]], into: list[LocatedRow[Row]]) -> Iterator[LocatedRow[Row]]:
    """Yield the rows and append them to a list."""
    for row in rows:
        into.append(row)
        yield row
