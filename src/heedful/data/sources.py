"""All data sources, those that combine others, and the source for a user's own file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, NonNegativeInt, field_validator

from heedful.data.annotated import ConllSource, IdxSource, SquadSource
from heedful.data.corpora import open_corpus, require_corpus
from heedful.data.file_hints import listed, looks_like_data
from heedful.data.folders import CaptionedFolderSource, FolderSource, SegmentedFolderSource
from heedful.data.functions import PythonSource
from heedful.data.hub import DatasetsSource
from heedful.data.lines import File, LocatedRow, Location, Row, Rows, Source
from heedful.data.memory import MemorySource
from heedful.data.parquet import is_parquet, parquet_source
from heedful.data.text import SEPARATORS, TEXT, FilesSource, JsonlSource, TextSource, TsvSource
from heedful.errors import DataError, RequestError, nearest
from heedful.files import has_suffix

T = TypeVar("T")


class BuiltInSource(Source):
    """A corpus that is included in the package: no download, always the same.

    Args:
        name: the corpus, a key of `heedful.data.corpora.CORPORA`.
        split: ``train``, ``valid`` or ``test``.
        seed: the seed of a generated corpus; published scores refer to 0.
        columns: maps each column to one of the corpus: ``{text: source}`` takes one side of a translation
            corpus. Empty: all columns of the corpus under their own names.
    """

    kind: Literal["built-in"] = "built-in"
    name: str
    split: Literal["train", "valid", "test"]
    seed: NonNegativeInt = 0
    columns: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _exists(cls, name: str) -> str:
        try:
            require_corpus(name)
        except RequestError as error:
            raise ValueError(str(error)) from None
        return name

    def open(self, root: Path) -> Rows:
        """Yield the rows, located by row number."""
        label = f"{self.name}/{self.split}"
        rows = open_corpus(self.name, self.split, seed=self.seed)
        return (LocatedRow(self._select(row, label), Location(label, n)) for n, row in enumerate(rows, 1))

    def _select(self, row: Row, label: str) -> Row:
        for column in self.columns.values():
            if column not in row:
                raise DataError(f"{label}: no column {column!r}{nearest(column, row)}")
        return {name: row[column] for name, column in self.columns.items()} if self.columns else row


_OneSource = (
    FilesSource
    | TextSource
    | TsvSource
    | JsonlSource
    | ConllSource
    | SquadSource
    | DatasetsSource
    | BuiltInSource
    | IdxSource
    | FolderSource
    | CaptionedFolderSource
    | SegmentedFolderSource
    | MemorySource
    | PythonSource
)


class BesideSource(Source):
    """Join row n of every source into one row, for columns that are in different files.

    Args:
        sources: the sources, each with its own columns.
    """

    kind: Literal["beside"] = "beside"
    sources: list[Annotated[_OneSource, Field(discriminator="kind")]] = Field(min_length=2)

    def open(self, root: Path) -> Rows:
        """Yield the joined rows of the sources, located by the first source."""
        return self._joined([open_source(source, root) for source in self.sources])

    def _joined(self, sources: Sequence[Rows]) -> Rows:
        for number, parts in enumerate(zip_longest(*sources), start=1):
            if None in parts:
                exhausted = parts.index(None)
                raise DataError(
                    "sources joined by kind=beside must have the same number of rows: "
                    f"source {exhausted + 1} ({self.sources[exhausted].kind}) ends after {number - 1:,}"
                )
            row: Row = {}
            for part in parts:
                if duplicates := row.keys() & part.row.keys():
                    raise DataError(f"{part.location}: column {min(duplicates)!r} is also in another source")
                row |= part.row
            yield LocatedRow(row, parts[0].location)


class ChainSource(Source):
    """Concatenate the rows of several sources, to train on several corpora.

    Args:
        sources: the sources, each with the columns of the task and its own ``skip`` and ``limit``.
    """

    kind: Literal["chain"] = "chain"
    sources: list[Annotated[_OneSource | BesideSource, Field(discriminator="kind")]] = Field(min_length=2)

    def open(self, root: Path) -> Rows:
        """Yield the rows of the sources in order; missing files of any source are reported at once."""
        return chain.from_iterable([open_source(source, root) for source in self.sources])


SourceConfig = Annotated[_OneSource | BesideSource | ChainSource, Field(discriminator="kind")]


def list_columns(config: object) -> Iterator[str]:
    """Yield the columns of a source, or of its sources, whose lists are kept as lists (`JsonlSource`)."""
    yield from getattr(config, "lists", ())
    for source in getattr(config, "sources", ()):
        yield from list_columns(source)


def open_source(config: Source, root: Path) -> Rows:
    """Yield the rows of a source, from ``skip`` on, at most ``limit``.

    Args:
        config: one of `SourceConfig`.
        root: the folder that relative paths are resolved against, that of the recipe.

    Raises:
        DataError: if a file is missing (at once), its content is not as configured, or ``skip`` skips all
            rows (when reached).
    """
    rows, column = config.open(root), config.group_column
    groups: Iterator[tuple[LocatedRow[Row], ...]]
    if column is None:
        groups = ((row,) for row in rows)
    else:
        groups = (tuple(group) for _, group in groupby(rows, lambda row: row.row[column]))
    return chain.from_iterable(islice(_after_skipped(groups, config), config.limit))


def _after_skipped(groups: Iterator[T], config: Source) -> Iterator[T]:
    n_skipped = sum(1 for _ in islice(groups, config.skip))
    is_empty = True
    for group in groups:
        is_empty = False
        yield group
    if is_empty and n_skipped:
        unit = f"{config.group_column or 'row'}s"
        raise DataError(f"skip: {config.skip} leaves no rows: there are only {n_skipped:,} {unit}")


USER_TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
"""Suffixes of files that `user_table` reads, all but the last also with ``.gz`` after them."""

UserTable = TsvSource | JsonlSource | ConllSource | SquadSource | DatasetsSource
"""The sources that can read a user's file."""

SPREADSHEET_SEPARATORS = (",", ";")
"""Separators of tables with quotes, as spreadsheets write them."""


class HeaderError(DataError):
    """The first line of a user's table does not name the columns."""


def is_user_table(file: str) -> bool:
    """Whether a file is one that `user_table` reads, by its name."""
    return is_parquet(file) or has_suffix(file, *USER_TABLES[:-1])


def user_table(
    path: Path, columns: Sequence[str], like: object = None, names: Mapping[str, str] | None = None
) -> UserTable:
    """Return the source for a user's file: JSON lines, Parquet, or a table whose header names the columns.

    Fields are found by the names that ``like`` gives to the columns, if the file has them, or else by the
    columns' own names.

    Args:
        path: the file.
        columns: the required columns.
        like: the source of the run's data. If it is a `ConllSource` or `SquadSource`, the file has the same
            format, unless it is JSON lines or Parquet. If it is a `TsvSource`, these are tried in order: its
            separator with a header that names the columns; tabs, then commas and semicolons with quotes, with
            such a header (tabs last if the file is named ``.csv``); its own format.
        names: the field of each column, if the user names it.

    Raises:
        HeaderError: if the first line of the file does not name the columns.
        DataError: if a Parquet file does not have the fields, or cannot be read.
    """
    names = names or {}
    is_jsonl = has_suffix(path.name, ".jsonl")
    has_fields = is_jsonl or is_parquet(path.name)
    if isinstance(like, ConllSource | SquadSource) and not has_fields and not names:
        return like.model_copy(update={"paths": str(path.resolve()), "skip": 0, "limit": None})
    namings = [{**naming, **names} for naming in (field_names(like), {column: column for column in columns})]
    complete = [naming for naming in namings if naming.keys() >= {*columns}]
    by_name = [{column: naming[column] for column in columns} for naming in complete]
    if is_parquet(path.name):
        return parquet_source(path, by_name)
    return _json_lines(path, by_name, like) if is_jsonl else _header_table(path, by_name, like, names)


def field_names(source: object) -> dict[str, str]:
    """Return the names of the fields of each column, in the sources whose fields have names."""
    if isinstance(source, BesideSource):
        return {column: name for part in source.sources for column, name in field_names(part).items()}
    if isinstance(source, ChainSource):
        return field_names(source.sources[0])
    if isinstance(source, JsonlSource):
        return {**source.columns, **source.lists}
    if isinstance(source, MemorySource):
        return {**source.columns}
    if isinstance(source, TsvSource | DatasetsSource | PythonSource):
        return {column: name for column, name in source.columns.items() if isinstance(name, str)}
    return {}


def _json_lines(path: Path, namings: Sequence[dict[str, str]], like: object) -> JsonlSource:
    """Return a source with the first naming whose fields the first line has, or else with the first."""
    kept_lists = {*list_columns(like)}
    sources = [
        JsonlSource(
            paths=str(path.resolve()),
            columns={column: name for column, name in naming.items() if column not in kept_lists},
            lists={column: name for column, name in naming.items() if column in kept_lists},
        )
        for naming in namings
    ]
    return next((source for source in sources if reads_first(source)), sources[0])


def reads_first(source: Source) -> bool:
    """Return whether the first row of a source can be read."""
    try:
        return next(source.open(Path()), None) is not None
    except DataError:
        return False


def _header_table(
    path: Path, namings: Sequence[Mapping[str, str]], like: object, names: Mapping[str, str]
) -> TsvSource:
    """Return the first format in which the header has the names of a naming, or else that of the run."""
    fields: dict[str, int | str] = {**namings[0]}
    formats = [TsvSource(paths=str(path.resolve()), columns=fields, header=True)]
    formats += [
        formats[0].model_copy(update={"separator": text, "quotes": True}) for text in SPREADSHEET_SEPARATORS
    ]
    run_format = None
    if isinstance(like, TsvSource):
        run_format = like.model_copy(update={"paths": formats[0].paths, "skip": 0, "limit": None})
        formats.insert(0, run_format.model_copy(update={"header": True}))
    if has_suffix(path.name, ".csv"):
        formats.sort(key=lambda table_format: table_format.separator == "\t")
    candidates = [
        table_format.model_copy(update={"columns": {**naming}})
        for naming in namings
        for table_format in formats
    ]
    if not path.is_file():
        return candidates[0]
    source = next((candidate for candidate in candidates if _has_header(path, candidate)), None)
    if source is None and run_format is not None and not names and not field_names(run_format):
        source = run_format  # its fields have numbers
    if source is None:
        expected = " and ".join(namings[0].values())
        others = (formats[-1].model_copy(update={"separator": other, "quotes": True}) for other in SEPARATORS)
        other = next((other.separator for other in others if _has_header(path, other)), None)
        header = _longest_header(path)
        if other is None and len(header) > 1 and not looks_like_data(header):
            raise HeaderError(f"{path}:1: {_missing_columns(header, namings[0], names)}")
        remedy = "add one" if other is None else f"replace {other!r}"
        raise HeaderError(
            f"{path}:1: expected a header with the columns {expected}, separated by tabs, commas or "
            f"semicolons; {remedy}, or use JSON lines (.jsonl)"
        )
    return source


def _longest_header(path: Path) -> list[str]:
    """Return the first record of a file, split by the separator that gives the most fields."""
    headers: list[list[str]] = [[]]
    for separator in SEPARATORS:
        source = TsvSource(paths=str(path), columns={TEXT: 0}, separator=separator, quotes=True)
        with suppress(DataError):
            headers.append(next(source.records(File(path, path.name)))[1])
    return max(headers, key=len)


def _missing_columns(header: Sequence[str], naming: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Return which columns a header has, and which are needed."""
    for name in names.values():
        if name not in header:
            return f"no column {name!r}{nearest(name, header)}; it has {listed(header)}"
    needed = " and ".join(naming.values())
    return (
        f"has the columns {listed(header)}, but the run reads {needed}; if this line is a row, add a header"
    )


def _has_header(path: Path, like: TsvSource) -> bool:
    """Whether the first line of a file names the columns."""
    try:
        _, first = next(like.records(File(path, path.name)))
    except DataError:
        if not like.quotes:
            raise
        return False  # a quote may be text in this file
    return {*like.columns.values()} <= {*first}
