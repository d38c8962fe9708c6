"""JSON lines: one object a line, whose fields may be in others."""

import json
import math
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from heedful.data.file_hints import listed, other_format
from heedful.data.lines import (
    File,
    Location,
    Paths,
    Record,
    Row,
    Rows,
    Source,
    ValueRefusedError,
    lines_or_errors,
    read_all,
    usable_rows,
)
from heedful.data.strict_json import parse_strictly, without_nan
from heedful.errors import DataError, nearest, type_name
from heedful.identifiers import found_in
from heedful.typing import JsonObject


class JsonlSource(Source):
    """One JSON object a line.

    Args:
        paths: one file or several, read one after another; plain or compressed.
        columns: the field of each column: ``text``, or a dotted path, ``translation.en``, ``answers.0``. A
            list of texts is joined with spaces; a list of words or tags stays a list.
        lists: columns whose list of texts stays a list, for example several references.
    """

    kind: Literal["jsonl"] = "jsonl"
    paths: Paths
    columns: dict[str, str] = Field(min_length=1)
    lists: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _columns_are_distinct(self) -> "JsonlSource":
        if duplicates := self.columns.keys() & self.lists.keys():
            raise ValueError(f"column {min(duplicates)!r} must be in either columns or lists, got both")
        return self

    def open(self, root: Path) -> Rows:
        """Yield the rows of files of JSON lines."""
        return read_all(self.paths, root, self._rows)

    def _rows(self, file: File) -> Rows:
        return usable_rows(self.records_of(file, (*self.columns, *self.lists)))

    def records(
        self, root: Path, columns: Collection[str], optional: Collection[str] = ()
    ) -> Iterator[Record]:
        """Yield the objects of the files; an optional column is read from objects that have its name."""
        return read_all(self.paths, root, partial(self.records_of, columns=columns, optional=optional))

    def records_of(
        self, file: File, columns: Collection[str], optional: Collection[str] = ()
    ) -> Iterator[Record]:
        """Yield the objects of a file, with the cells of some columns; blank lines are skipped."""
        for location, line in lines_or_errors(file):
            if isinstance(line, DataError):
                yield Record(location, error=line)
            elif line.strip():
                yield self._record(line, location, columns, optional)

    def _record(
        self, line: str, location: Location, columns: Collection[str], optional: Collection[str]
    ) -> Record:
        fields: JsonObject = {}
        cells: Row = {}
        error = None
        try:
            fields = record_of(line, location)
            read = [*columns, *(column for column in optional if column in fields)]
            cells = {column: self._cell(fields, column, location) for column in read}
        except DataError as raised:
            error = raised
        return Record(location, without_nan(fields), cells, error)

    def _cell(self, fields: JsonObject, column: str, location: Location) -> str | list[str]:
        if column in self.lists:
            return texts_at(fields, self.lists[column], location)
        return field_at(fields, self.columns.get(column, column), location)


def record_of(line: str, location: Location) -> JsonObject:
    """Parse the JSON object of a line.

    Raises:
        DataError: if the line is not a JSON object, or has a value that is refused.
    """
    try:
        record = parse_strictly(line)
    except ValueRefusedError as error:
        raise ValueRefusedError(f"{location}: {error}") from None
    except json.JSONDecodeError as error:
        problem = other_format(line, location)
        problem = (
            problem or f"{location}: invalid JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        )
        raise DataError(problem) from None
    if not isinstance(record, dict):
        raise DataError(other_format(line, location) or f"{location}: not a JSON object")
    return record


def field_at(record: object, path: str, location: Location) -> str | list[str]:
    """Return the text of the field ``path``, or the texts of a list (for example words or sentences).

    Numbers and booleans are converted as in JSON; NaN and infinite numbers are errors.

    Raises:
        DataError: if there is no such field, or a value is not text.
    """
    value = _value_at(record, path, location)
    if isinstance(value, list):
        return [_text(part, f"{path}.{number}", location) for number, part in enumerate(value)]
    return _text(value, path, location)


def texts_at(record: object, path: str, location: Location) -> list[str]:
    """Return the texts of the field ``path`` as a list, of one entry if it is a single text.

    Raises:
        DataError: if there is no such field, or a value is not text.
    """
    field = field_at(record, path, location)
    return field if isinstance(field, list) else [field]


def has_field(record: object, path: str) -> bool:
    """Whether a record has the field ``path``."""
    return missing_field(record, path, Location("")) is None


def missing_field(record: object, path: str, location: Location) -> str | None:
    """Return the message for a record that does not have the field ``path``; None if it has."""
    try:
        _value_at(record, path, location)
    except DataError as error:
        return str(error)
    return None


def _value_at(value: object, path: str, location: Location) -> object:
    if isinstance(value, dict) and path in value:  # a name may itself contain a dot
        return value[path]
    for name in path.split("."):
        if isinstance(value, dict) and (key := name if name in value else found_in(name, value)) is not None:
            value = value[key]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            fields = list(value) if isinstance(value, dict) else []
            hint = f"{nearest(name, fields)}; there are {listed(fields)}" if fields else ""
            raise DataError(f"{location}: no field {path!r}{hint}")
    return value


def _text(value: object, path: str, location: Location) -> str:
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    if not isinstance(value, str):
        kind = "an object" if isinstance(value, dict) else type_name(value)
        if value is None or isinstance(value, float):  # of rows in Python, NaN is a missing value
            kind = f"{json.dumps(value)}; remove such rows"
        raise ValueRefusedError(f"{location}: field {path!r} must be text, got {kind}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can contain lone surrogates
        raise ValueRefusedError(
            f"{location}: field {path!r} contains half of a surrogate pair at character {error.start + 1}"
        ) from None
    return value
