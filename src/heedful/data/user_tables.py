"""Tables of a user: which columns are wanted, and the format in which the first line of a file has them."""

import codecs
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from heedful.data.delimited import SEPARATORS, TsvSource, first_missing
from heedful.data.file_hints import listed, looks_like_data
from heedful.data.functions import PythonSource
from heedful.data.hub import DatasetsSource
from heedful.data.json_lines import JsonlSource
from heedful.data.lines import File, HeaderError, Location, Source, decoded, located_lines, raw_lines
from heedful.data.memory import MemorySource
from heedful.data.quoted import quotes_fields
from heedful.data.sources import BesideSource, ChainSource
from heedful.data.spreadsheets import obeying_hint
from heedful.data.text import TEXT
from heedful.errors import DataError, nearest
from heedful.files import has_suffix
from heedful.identifiers import positions_of
from heedful.tables import Dialect

SPREADSHEET_SEPARATORS = (",", ";")
"""Separators of tables with quotes, as spreadsheets write them."""


@dataclass(frozen=True)
class Wanted:
    """The columns that are read from a user's file, and how they are found.

    Args:
        columns: the required columns.
        optional: columns that are read from records that have them.
        like: the source of the run's training data; None: unknown.
        names: the field of each column, if the user names it: a name or, if no field has this name, a number.
        trained_as: the column of the training data that a column is, if it has another name there.
        known_tags: the tags of the run, if it has some; lines of CoNLL with them are no comments.
    """

    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()
    like: object = None
    names: Mapping[str, str] = field(default_factory=dict)
    trained_as: Mapping[str, str] = field(default_factory=dict)
    known_tags: Set[str] = frozenset()

    @property
    def required(self) -> tuple[str, ...]:
        """The required columns, and those that the user names."""
        return tuple(dict.fromkeys((*self.columns, *self.names)))

    def remedy(self, begin: str, name: str = "NAME", columns: Collection[str] = ()) -> str:
        """Return how to name columns that the user does not name; empty if there are none.

        Args:
            begin: the beginning of the text.
            name: what to write for each.
            columns: which, by default all.
        """
        unnamed = (column for column in columns or self.required if column not in self.names)
        options = " ".join(f"--column {column}={name}" for column in unnamed)
        return f"{begin}: {options} (in Python, the argument columns)" if options else ""

    def namings(self) -> list[dict[str, str]]:
        """Return maps from the required columns to names of fields; the first that a file has applies."""
        trained = {column: self.trained_as.get(column, column) for column in self.required}
        of_run, own = field_names(self.like), {column: column for column in self.required}
        by_run = {column: of_run[name] for column, name in trained.items() if name in of_run}
        namings = [{**naming, **self.names} for naming in (by_run, own, trained)]
        complete = [naming for naming in namings if naming.keys() >= {*self.required}]
        return [{column: naming[column] for column in self.required} for naming in complete]


N_RECORDS = 100
"""Number of records from which the format of a table without a header is recognised."""

NAME_COLUMNS = "; to name its columns"
"""The beginning of a remedy (`Wanted.remedy`)."""


def field_number(name: str) -> int | None:
    """Return the number that a user gives in place of the name of a field; None if it is a name."""
    return int(name) if re.fullmatch(r"-?[0-9]{1,4}", name) else None


def single_sources(source: object) -> Iterator[Source]:
    """Yield the sources that a source combines, or itself."""
    if isinstance(source, BesideSource | ChainSource):
        for part in source.sources:
            yield from single_sources(part)
    elif isinstance(source, Source):
        yield source


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


# Formats ----------------------------------------------------------------------------------------------------


def user_tsv(path: Path, wanted: Wanted, likes: Sequence[Source]) -> TsvSource:
    """Return the format of a table: with a header that names the columns, or else one of numbered fields.

    Args:
        path: the file; if it does not exist, the format in which it is looked for is returned.
        wanted: the columns.
        likes: the sources of the run's data.

    Raises:
        HeaderError: if there is none.
    """
    if not path.is_file():
        return _formats(path, likes)[0].model_copy(update={"columns": {**wanted.namings()[0]}})
    source = with_header(path, wanted, likes) or without_header(path, wanted, likes)
    if source is None:
        raise HeaderError(f"{path}:1: {_header_problem(path, wanted)}")
    if _is_plain(source) and not any(map(_is_plain, likes)) and is_quoted_tsv(path):
        source = source.model_copy(update={"quotes": True})
    return source.as_recognised()


def _is_plain(source: Source) -> bool:
    """Whether a source has fields between tabs, in which quotes are text."""
    return isinstance(source, TsvSource) and source.separator == "\t" and not source.quotes


def is_quoted_tsv(path: Path) -> bool:
    """Whether a table with tabs quotes its fields, as Excel's "Text (tab delimited)" does."""
    with suppress(DataError):  # reading the file raises it
        lines, separator = obeying_hint(located_lines(File(path, str(path))), "\t")
        return separator == "\t" and quotes_fields((line for _, line in lines), separator)
    return False


def with_header(path: Path, wanted: Wanted, likes: Sequence[Source]) -> TsvSource | None:
    """Return the first format in which the header has the names of a naming, or None."""
    formats = _formats(path, likes)
    for naming in wanted.namings():
        for table_format in formats:
            if (columns := _fields_in(_first_record(path, table_format), naming, wanted)) is not None:
                return table_format.model_copy(update={"columns": columns})
    return None


def _fields_in(
    first: Sequence[str], naming: Mapping[str, str], wanted: Wanted
) -> dict[str, int | str] | None:
    """Return the field of each column if a record is a header that has them; None if it is not.

    A number of the user is the name of a field, if there is such a name. If all are numbers of fields, a
    record with a name of the run is a header.
    """
    columns: dict[str, int | str] = {**naming}
    for column, name in wanted.names.items():
        if (number := field_number(name)) is not None and not _is_name(name, number, first):
            columns[column] = number
    names = [name for name in columns.values() if isinstance(name, str)]
    of_run = (*field_names(wanted.like).values(), *wanted.required)
    is_header = all if names else any
    return columns if is_header(positions_of(name, first) for name in names or of_run) else None


def _is_name(name: str, number: int, first: Sequence[str]) -> bool:
    """Whether a number is a name in a header: all names are numbers, or no field has this number."""
    is_field = -len(first) <= number < len(first)
    return bool(positions_of(name, first)) and (
        not is_field or all(field_number(field) is not None for field in first if field.strip())
    )


def without_header(path: Path, wanted: Wanted, likes: Sequence[Source]) -> TsvSource | None:
    """Return the format of a table whose fields have numbers, those of the run and of the user; or None."""
    like = _format_like(path, likes)
    if not wanted.names:
        has_numbers = like is not None and not field_names(like)
        return like if has_numbers and not _is_of_another_format(path, like) else None
    columns = {} if like is None else {c: n for c, n in like.columns.items() if isinstance(n, int)}
    for column, name in wanted.names.items():
        if (number := field_number(name)) is None:
            return None
        columns[column] = number
    if not columns.keys() >= {*wanted.required}:
        return None
    read = {column: columns[column] for column in wanted.required}
    formats = [each.model_copy(update={"header": False, "columns": read}) for each in _formats(path, likes)]
    return max(formats, key=lambda each: _fit(_first_records(path, each), read.values()))


def _is_of_another_format(path: Path, like: TsvSource | None) -> bool:
    """Whether only another separator splits the first line."""
    return like is None or (len(_first_record(path, like)) == 1 and len(longest_record(path)) > 1)


def _fit(records: Sequence[Sequence[str]], numbers: Collection[int]) -> tuple[bool, bool, bool]:
    """Return whether records have the fields of some numbers, several and equally many, not parts of texts.

    After a separator that is a sign of a text, a field begins with a blank.
    """
    counts = {*map(len, records)}
    has_fields = all(first_missing(record, numbers) is None for record in records)
    is_text = any(field.startswith(" ") for record in records for field in record[1:])
    return has_fields, len(counts) == 1 and 1 not in counts, not is_text


def _formats(path: Path, likes: Sequence[Source]) -> list[TsvSource]:
    """Return the formats of a table with a header in the order in which they are tried."""
    plain = TsvSource(paths=str(path), columns={TEXT: 0}, header=True)
    quoted = [plain.model_copy(update={"separator": text, "quotes": True}) for text in SPREADSHEET_SEPARATORS]
    formats = [plain, plain.model_copy(update={"quotes": True}), *quoted]
    if (like := _format_like(path, likes)) is not None:
        formats.insert(0, like.model_copy(update={"header": True}))
    if has_suffix(path.name, ".csv", ".tsv"):
        of_name = has_suffix(path.name, ".tsv")
        formats.sort(key=lambda table_format: (table_format.separator == "\t") != of_name)
    return formats


def _format_like(path: Path, likes: Sequence[Source]) -> TsvSource | None:
    """Return the run's own format for a file; None if its data are not tables."""
    like = next((like for like in likes if isinstance(like, TsvSource)), None)
    if like is None:
        return None
    return like.model_copy(update={"paths": str(path), "skip": 0, "limit": None})


def dialect_of(path: Path, wanted: Wanted) -> Dialect:
    """Return the dialect of a table, for another that the same program opens; without tabs.

    Raises:
        DataError: as of `user_tsv`, or the file cannot be read.
    """
    file = File(path, str(path))
    first = next(raw_lines(file), b"")
    decoded(first, Location(file.name, 1), file)  # the message on a wrong encoding
    own = user_tsv(path, wanted, [*single_sources(wanted.like)])
    lines, separator = obeying_hint(located_lines(file), own.separator)
    mark = "\ufeff" if first.startswith(codecs.BOM_UTF8) else ""
    hint = "" if next(lines, (Location(""),))[0].line == 1 else f"sep={separator}\n"
    return Dialect(beginning=mark) if separator == "\t" else Dialect(separator, mark + hint)


def _first_record(path: Path, table_format: TsvSource) -> Sequence[str]:
    """Return the fields of the first line; none if a quote may be text in this file."""
    return next(iter(_first_records(path, table_format, 1)), ())


def _first_records(path: Path, table_format: TsvSource, n: int = N_RECORDS) -> Sequence[Sequence[str]]:
    """Return the fields of the first lines that are not blank; none if a quote may be text in this file."""
    try:
        records = table_format.field_lists(File(path, str(path)))
        return [record for _, record in islice(records, n) if any(map(str.strip, record)) or n == 1]
    except DataError:
        if not table_format.quotes:
            raise
        return []


def longest_record(path: Path) -> list[str]:
    """Return the first record of a file, split by the separator that gives the most fields."""
    records: list[list[str]] = [[]]
    for separator in SEPARATORS:
        source = TsvSource(paths=str(path), columns={TEXT: 0}, separator=separator, quotes=True)
        with suppress(DataError):
            records.append(next(source.field_lists(File(path, path.name)))[1])
    return max(records, key=len)


# Messages ---------------------------------------------------------------------------------------------------


def _header_problem(path: Path, wanted: Wanted) -> str:
    """Return why the first line of a file is not a header with the columns, and the remedies."""
    first, naming = longest_record(path), wanted.namings()[0]
    other = next((text for text in SEPARATORS if _has_header_in(path, text, naming)), None)
    if other is None and len(first) > 1 and not looks_like_data(first):
        return _missing_columns(first, naming, wanted)
    remedy = "add one" if other is None else f"replace {other!r}"
    if other is None and len(first) >= len(naming):
        remedy += wanted.remedy(", count its fields from 0", "N")
    return (
        f"expected a header with the columns {' and '.join(naming.values())}, separated by tabs, commas or "
        f"semicolons; {remedy}, or use JSON lines (.jsonl)"
    )


def _has_header_in(path: Path, separator: str, naming: Mapping[str, str]) -> bool:
    """Whether the first line names the columns if it is split by a separator."""
    source = TsvSource(paths=str(path), columns={TEXT: 0}, separator=separator, quotes=True)
    first = _first_record(path, source)
    return all(positions_of(name, first) for name in naming.values())


def _missing_columns(header: Sequence[str], naming: Mapping[str, str], wanted: Wanted) -> str:
    """Return which columns a header has, which are needed, and how to name them."""
    names = {column: name for column, name in naming.items() if column in wanted.names}
    numbers = {column for column, name in names.items() if field_number(name) is not None}
    for column, name in names.items():
        if column not in numbers and not positions_of(name, header):
            return f"no column {name!r}{nearest(name, header)}; it has {listed(header)}"
    missing = [c for c, name in naming.items() if c not in numbers and not positions_of(name, header)]
    has_none = len(missing) == len(naming)
    reads = f"{'reads' if has_none else 'also reads'} {' and '.join(naming[column] for column in missing)}"
    remedy = wanted.remedy(NAME_COLUMNS, columns=missing)
    if has_none and remedy:
        remedy += "; if this line is a row, write the numbers of fields, from 0, as NAME"
    return f"has the columns {listed(header)}, but the run {reads}{remedy}"
