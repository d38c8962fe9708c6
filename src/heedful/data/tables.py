"""Several columns in one file: tab-separated values and JSON lines."""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from heedful.data.files import Paths, in_turn
from heedful.data.lines import LocatedRow, Location, Row, TextFile, lines
from heedful.data.range import Ranged
from heedful.errors import DataError, nearest
from heedful.files import parse_json

Index = Annotated[int, Field(ge=0)]

SEPARATORS = ("\t", ",", ";", "|")
"""Those in use, for messages."""

LONGEST_FIELD = 2**31 - 1
"""Characters: an article may be one field, and Python's own limit is 131,072."""


class TsvSource(Ranged):
    """Lines of fields.

    Args:
        paths: one file or several, read one after another; plain or ``.gz``.
        columns: for each column, the number of its field (from 0) or, with ``header``, its name.
        header: whether the first line of every file names the fields.
        separator: the one character between fields.
        quotes: whether fields may stand in double quotes, as in CSV; otherwise a quote is text.
    """

    kind: Literal["tsv"] = "tsv"
    paths: Paths
    columns: dict[str, Index | str] = Field(min_length=1)
    header: bool = False
    separator: str = Field(default="\t", min_length=1, max_length=1)
    quotes: bool = False

    @model_validator(mode="after")
    def _names_need_a_header(self) -> "TsvSource":
        named = [name for name in self.columns.values() if isinstance(name, str)]
        if named and not self.header:
            raise ValueError(f"field {named[0]!r} is given by name: set `header: true`, or give its number")
        return self


class JsonlSource(Ranged):
    """One JSON object a line.

    Args:
        paths: one file or several, read one after another; plain or ``.gz``.
        columns: for each column, the field: ``text``, or dotted, ``translation.en``, ``answers.0``. A list
            of texts is joined by spaces, one of words or of tags stays as it is.
        lists: columns whose field holds a list of texts that stays one: several references, say.
    """

    kind: Literal["jsonl"] = "jsonl"
    paths: Paths
    columns: dict[str, str] = Field(min_length=1)
    lists: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _once(self) -> "JsonlSource":
        if twice := self.columns.keys() & self.lists.keys():
            raise ValueError(f"the column {min(twice)!r} stands under columns and under lists")
        return self


def open_tsv(config: TsvSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """The rows of files of separated fields.

    Raises:
        DataError: a file is missing or unreadable, a line has too few fields, or one that the header does not
            name, or the header lacks one.
    """
    return in_turn(config.paths, root, lambda file: _tsv_rows(file, config))


def open_jsonl(config: JsonlSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """The rows of files of JSON lines.

    Raises:
        DataError: a file is missing or unreadable, or a line is not an object with the fields wanted.
    """
    return in_turn(config.paths, root, lambda file: _jsonl_rows(file, config))


def _tsv_rows(file: TextFile, config: TsvSource) -> Iterator[LocatedRow[Row]]:
    records = records_of(file, config)
    header = next(records)[1] if config.header else []
    fields = {column: _number(field, header, file, config) for column, field in config.columns.items()}
    needed = max(fields.values()) + 1
    for where, record in records:
        if len(record) < needed:
            hint = _other_separator(record, config) or _quotes(record, config)
            raise DataError(too_few(where, record, needed - 1) + hint)
        if config.header and any(field.strip() for field in record[len(header) :]):
            named = f"{len(record)} fields, but the header names {len(header)}"
            raise DataError(f"{where}: {named}{_quotes(record, config)}")
        yield LocatedRow({column: record[number] for column, number in fields.items()}, where)


def too_few(where: Location, record: Sequence[str], number: int) -> str:
    """What is wrong with a record that has no field of this number."""
    return (
        f"{where}: {len(record)} field{'s' * (len(record) > 1)}, but field number {number} (from 0) is wanted"
    )


def _number(field: int | str, header: list[str], file: TextFile, config: TsvSource) -> int:
    if isinstance(field, int):
        return field
    if field not in header:
        raise DataError(
            f"{file.name}:1: the header has no field {field!r}"
            f"{nearest(field, header) or _other_separator(header, config)}"
        )
    if header.count(field) > 1:
        raise DataError(
            f"{file.name}:1: the header has the field {field!r} {header.count(field)} times; "
            "give the number of the one that is meant (from 0), or another name"
        )
    return header.index(field)


def _other_separator(record: list[str], config: TsvSource) -> str:
    """A hint where nothing was split, since something else stands between the fields."""
    other = next((sign for sign in SEPARATORS if sign in record[0]), None) if len(record) == 1 else None
    if other is None:
        return ""
    between = f"; the separator is {config.separator!r}: where {other!r} stands between fields"
    return f"{between}, set `separator` to it"


def _quotes(record: list[str], config: TsvSource) -> str:
    """A hint where quotes may have held together what was split."""
    if config.quotes or not any(field.startswith('"') for field in record):
        return ""
    held = f"a field with {config.separator!r} or a line end in it"
    return f"; where {held} stands in quotes, set `quotes: true`"


def records_of(file: TextFile, config: TsvSource) -> Iterator[tuple[Location, list[str]]]:
    """The fields of each line of a file, a header's too, split as ``config`` says.

    Raises:
        DataError: the file is unreadable, or quotes do not match.
    """
    if config.quotes:
        yield from _quoted_records(file, config.separator)
    else:
        for number, line in enumerate(lines(file), start=1):
            yield Location(file.name, number), line.split(config.separator)


def _quoted_records(file: TextFile, separator: str) -> Iterator[tuple[Location, list[str]]]:
    """A record may run over several lines; it is located by its first."""
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader((line + "\n" for line in lines(file)), delimiter=separator, strict=True)
    first = 1
    try:
        for record in reader:
            yield Location(file.name, first), record
            first = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{file.name}:{first}: the quotes of this record do not match ({error})") from None


def _jsonl_rows(file: TextFile, config: JsonlSource) -> Iterator[LocatedRow[Row]]:
    for number, line in enumerate(lines(file), start=1):
        where = Location(file.name, number)
        record = record_of(line, where)
        row: Row = {column: field_at(record, path, where) for column, path in config.columns.items()}
        row |= {column: texts_at(record, path, where) for column, path in config.lists.items()}
        yield LocatedRow(row, where)


def record_of(line: str, where: Location) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        DataError: there is none.
    """
    try:
        record = parse_json(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:
        raise DataError(f"{where}: not JSON that can be read ({error})") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: not a JSON object")
    return record


def field_at(record: Any, path: str, where: Location) -> str | list[str]:
    """The text of the field ``path``, or the texts of a list (the words or the sentences of a document, say).

    Numbers and booleans are written as in JSON; NaN and what is infinite are none.

    Raises:
        DataError: there is no such field, or something in it is no text.
    """
    value = _value_at(record, path, where)
    if isinstance(value, list):
        return [_text(part, f"{path}.{number}", where) for number, part in enumerate(value)]
    return _text(value, path, where)


def _text(value: Any, path: str, where: Location) -> str:
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    if not isinstance(value, str):
        raise DataError(f"{where}: field {path!r} holds {_found(value)}")
    if not value.isascii():
        _check_unicode(value, path, where)
    return value


def _found(value: Any) -> str:
    """What there is in place of a text; NaN is how some programs write that there is nothing."""
    if value is None or isinstance(value, float):
        return f"{json.dumps(value)}, not text: leave such rows out"
    name = "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
    return f"{name}, not text"


def texts_at(record: Any, path: str, where: Location) -> list[str]:
    """The texts of the field ``path``, a list of them, or one that is a list of itself alone.

    Raises:
        DataError: there is no such field, or something in it is no text.
    """
    found = field_at(record, path, where)
    return found if isinstance(found, list) else [found]


def _value_at(value: Any, path: str, where: Location) -> Any:
    if isinstance(value, dict) and path in value:  # a name may itself contain a dot
        return value[path]
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise DataError(f"{where}: no field {path!r}{_nearest_field(name, value)}")
    return value


def _nearest_field(name: str, value: Any) -> str:
    names: Iterable[str] = value if isinstance(value, dict) else ()
    return nearest(name, names)


def _check_unicode(text: str, path: str, where: Location) -> None:
    """Half of a surrogate pair can be written in JSON, but it is no text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: field {path!r} holds half of a surrogate pair at character {error.start + 1}"
        ) from None
