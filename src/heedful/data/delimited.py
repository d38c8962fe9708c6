"""Tables as text: lines of separated fields (TSV, CSV), also of workbooks."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from heedful.data.file_hints import names_hint
from heedful.data.lines import (
    File,
    Location,
    Paths,
    Record,
    Rows,
    Source,
    located_lines,
    read_all,
    usable_rows,
)
from heedful.data.quoted import quoted_records
from heedful.data.spreadsheets import ERRORS, is_workbook, obeying_hint, sheet_rows
from heedful.errors import DataError
from heedful.identifiers import identifier, positions_of

SEPARATORS = ("\t", ",", ";", "|")
"""Common separators, for hints in messages."""


class TsvSource(Source):
    """Lines of separated fields (TSV, CSV), or the first visible sheet of an Excel workbook.

    Args:
        paths: one file or several, read one after another; plain or compressed.
        columns: the field of each column: its number (from 0; -1 is the last) or, with ``header``, its name.
        header: whether the first line of every file names the fields.
        separator: the single character between fields; a first line such as ``sep=;``, which Excel reads as
            a hint, takes precedence.
        quotes: whether fields may be in double quotes, as in CSV; otherwise quotes are text.

    With ``kind: csv``, the defaults are those of spreadsheets: a header, commas and quotes.
    """

    kind: Literal["tsv", "csv"] = "tsv"
    paths: Paths
    columns: dict[str, int | str] = Field(min_length=1)
    header: bool = False
    separator: str = Field(default="\t", min_length=1, max_length=1)
    quotes: bool = False

    _is_recognised: bool = PrivateAttr(default=False)

    @model_validator(mode="before")
    @classmethod
    def _as_spreadsheets_write(cls, settings: object) -> object:
        if isinstance(settings, Mapping) and settings.get("kind") == "csv":
            return {"header": True, "separator": ",", "quotes": True, **settings}
        return settings

    @field_validator("separator", mode="before")
    @classmethod
    def _is_one_character(cls, separator: object) -> object:
        if not isinstance(separator, str) or len(separator) == 1:
            return separator
        remedy = "for other files, use JSON lines (kind: jsonl)"
        if separator in ("\\t", "tab", "TAB"):
            remedy = 'write "\\t" in double quotes, or leave the key out: a tab is the default'
        elif len(inner := separator.strip("“”„‘’'\"")) == 1:
            remedy = f"write {json.dumps(inner)} in straight quotes"
        raise ValueError(f"expected one character, got {separator!r}; {remedy}")

    @model_validator(mode="after")
    def _names_need_a_header(self) -> "TsvSource":
        names = [name for name in self.columns.values() if isinstance(name, str)]
        if names and not self.header:
            raise ValueError(
                f"columns: field {names[0]!r} is a name, which requires a header; set `header: true`, or use "
                "its number"
            )
        return self

    def as_recognised(self) -> Self:
        """Return the source as one whose settings were recognised: messages do not advise to change them."""
        source = self.model_copy()
        source._is_recognised = True
        return source

    def open(self, root: Path) -> Rows:
        """Yield the rows of files of separated fields."""
        return read_all(self.paths, root, self._rows)

    def _rows(self, file: File) -> Rows:
        return usable_rows(self.records_of(file, self.columns))

    def records(
        self, root: Path, columns: Collection[str], optional: Collection[str] = ()
    ) -> Iterator[Record]:
        """Yield the records of the files; an optional column is read if the header has its name."""
        return read_all(self.paths, root, partial(self.records_of, columns=columns, optional=optional))

    def records_of(
        self, file: File, columns: Collection[str], optional: Collection[str] = ()
    ) -> Iterator[Record]:
        """Yield the records of a file that are not blank, with the cells of some columns."""
        header, records = self.header_and_records(file)
        numbers = self.field_numbers(header, file)
        read = {column: numbers[column] for column in columns}
        positions = {column: positions_of(column, header) for column in optional}
        read |= {column: found[0] for column, found in positions.items() if found}
        for location, record in _without_blank_end(records, header):
            if _is_blank(record, header, read.values()):
                continue
            if problem := self.problem(location, record, header, read):
                fields = _named_fields(record, header, numbers, n_kept=len(record))
                yield Record(location, fields, error=DataError(problem))
                continue
            cells = {column: record[number] for column, number in read.items()}
            last = max((number % len(record) for number in read.values()), default=0)
            n_kept = max(len(header), 1 + last)
            yield Record(location, _named_fields(record, header, numbers, n_kept), cells)

    def header_and_records(self, file: File) -> tuple[list[str], Iterator[tuple[Location, list[str]]]]:
        """Return the names of the fields, empty without a header, and the records after it.

        Raises:
            DataError: as `field_lists`.
        """
        records = self.field_lists(file)
        return (next(records)[1] if self.header else []), records

    def field_numbers(self, header: list[str], file: File) -> dict[str, int]:
        """Return the number of the field of each column.

        Raises:
            DataError: if the header does not name a field, or names it more than once.
        """
        return {column: self._number(field, header, file) for column, field in self.columns.items()}

    def problem(
        self, location: Location, record: Sequence[str], header: Sequence[str], numbers: Mapping[str, int]
    ) -> str | None:
        """Return why a record does not have these fields, or has more than the header; or None."""
        if (missing := first_missing(record, numbers.values())) is not None:
            name = header[missing] if 0 <= missing < len(header) else ""
            return too_few_fields(location, record, missing, name) + self._hint(location, record)
        if problem := shared_field(location, record, numbers, self._hint(location, record)):
            return problem
        if self.header and any(field.strip() for field in record[len(header) :]):
            counts = f"the header names {len(header)} fields, got {len(record)}"
            hint = f"; a {self.separator!r} inside a field must be in double quotes" if self.quotes else ""
            return f"{location}: {counts}{hint or self._quotes_hint(record)}"
        if (failed := next((n for n in numbers.values() if record[n] in ERRORS), None)) is not None:
            field = header[failed] if 0 <= failed < len(header) else f"number {failed}"
            return (
                f"{location}: the field {field} is {record[failed]}, an error of a spreadsheet; correct its "
                "formula, or remove the row"
            )
        return None

    def field_lists(self, file: File) -> Iterator[tuple[Location, list[str]]]:
        """Yield the fields of each line of a file, or each row of a workbook, the header included.

        Raises:
            DataError: if the file is unreadable, or quotes do not match.
        """
        if is_workbook(file):
            return sheet_rows(file)
        located, separator = obeying_hint(located_lines(file), self.separator)
        if self.quotes:
            return quoted_records(located, file.name, separator)
        return ((location, line.split(separator)) for location, line in located)

    def _number(self, field: int | str, header: list[str], file: File) -> int:
        if isinstance(field, int):
            return field
        positions = positions_of(field, header)
        if not positions:
            hint = self._fitting_hint(header) or self._separator_hint(header) or names_hint(field, header)
            raise DataError(f"{file.name}:1: the header has no field {field!r}{hint}")
        if len(positions) > 1:
            raise DataError(
                f"{file.name}:1: the header has the field {field!r} {len(positions)} times; "
                "use the number of the intended one (from 0), or rename it"
            )
        return positions[0]

    def _hint(self, location: Location, record: Sequence[str]) -> str:
        """Return a hint for a record that lacks a field."""
        if self._is_recognised:
            return ""
        # After the first line, a missing field is more likely the fault of that line.
        hint = self._fitting_hint(record) if location.line <= 1 + self.header else ""
        return hint or self._separator_hint(record) or self._quotes_hint(record)

    def _fitting_hint(self, record: Sequence[str]) -> str:
        """Return a hint if another common separator gives the required fields."""
        line = self.separator.join(record)
        others = (other for other in SEPARATORS if other != self.separator and other in line)
        fitting = next((other for other in others if self.fits(line, other)), None)
        if fitting is None:
            return ""
        quotes = " and `quotes: true`" if '"' in line and not self.quotes else ""
        return (
            f"; the separator is {self.separator!r}, and the fields seem to be separated by {fitting!r}; "
            f"set `separator: {json.dumps(fitting)}`{quotes}"
        )

    def _separator_hint(self, record: Sequence[str]) -> str:
        """Return a hint if the line was not split and contains another common separator."""
        other = (
            next((separator for separator in SEPARATORS if separator in record[0]), None)
            if len(record) == 1
            else None
        )
        if other is None:
            return ""
        return f"; the separator is {self.separator!r}; if fields are separated by {other!r}, set `separator`"

    def fits(self, line: str, separator: str | None = None) -> bool:
        """Whether a line has the required fields if it is split by a separator, by default its own."""
        fields = [field.strip().strip('"') for field in line.split(separator or self.separator)]
        names = [field for field in self.columns.values() if isinstance(field, str)]
        numbers = [field for field in self.columns.values() if isinstance(field, int)]
        has_names = {*map(identifier, names)} <= {*map(identifier, fields)}
        return has_names and (
            not numbers or (first_missing(fields, numbers) is None and not _sharing(fields, numbers))
        )

    def _quotes_hint(self, record: Sequence[str]) -> str:
        """Return a hint if a quoted field may have been split."""
        if self.quotes or self._is_recognised or not any(field.startswith('"') for field in record):
            return ""
        return f"; if fields that contain {self.separator!r} or a line end are in quotes, set `quotes: true`"


Located = tuple[Location, list[str]]


def _without_blank_end(records: Iterator[Located], header: Sequence[str]) -> Iterator[Located]:
    """Yield the records up to the last that has more than separators, below a header of several names.

    Spreadsheets write such records below a table; within it, they are rows of empty texts.
    """
    blank: list[Located] = []
    for located in records:
        if len(header) > 1 and not any(map(str.strip, located[1])):
            blank.append(located)
        else:
            yield from blank
            blank = []
            yield located


def _is_blank(record: Sequence[str], header: Sequence[str], numbers: Collection[int]) -> bool:
    """Whether a line is blank; in a table of one field, an empty line is an empty text."""
    has_one_field = len(header) == 1 or (not header and {*numbers} <= {0, -1})
    return not record or (len(record) == 1 and not record[0] and not has_one_field)


def _named_fields(
    record: Sequence[str], header: Sequence[str], numbers: Mapping[str, int], n_kept: int
) -> dict[str, str]:
    """Return the fields of a record by name: that of the header, or of its column, or its number.

    Args:
        record: the fields.
        header: the names of the fields; empty: there is no header.
        numbers: the number of the field of each column.
        n_kept: how many fields of a record below a header are kept. Blank ones after those of the header are
            not, unless a column is read from them.
    """
    n_fields = len(record)
    if header:
        return dict(zip(_distinct_names(header, n_fields), record[:n_kept], strict=False))
    columns = {n % n_fields: column for column, n in numbers.items() if -n_fields <= n < n_fields}
    return {columns.get(number, str(number)): field for number, field in enumerate(record)}


def _distinct_names(header: Sequence[str], n_fields: int) -> list[str]:
    """Return a name for each field; a repeated one gets a suffix, ``.1``, as in pandas."""
    names: dict[str, None] = {}
    for name in (*header, *map(str, range(len(header), n_fields))):
        candidates = (f"{name}.{n}" if n else name for n in range(len(names) + 1))
        names[next(candidate for candidate in candidates if candidate not in names)] = None
    return list(names)


def first_missing(record: Sequence[str], numbers: Collection[int]) -> int | None:
    """Return the number of a field that a record does not have, if any; negative ones count from its end."""
    missing = (number for number in (max(numbers), min(numbers)) if not -len(record) <= number < len(record))
    return next(missing, None)


def shared_field(
    location: Location, record: Sequence[str], numbers: Mapping[str, int], hint: str = ""
) -> str | None:
    """Return the message for a record in which different numbers are the same field; None if none are.

    Args:
        location: of the record.
        record: has a field of every number.
        numbers: of the field of each column; negative ones count from the end.
        hint: the remedy; by default, to add a field.
    """
    if not (sharing := _sharing(record, numbers.values())):
        return None
    columns = " and ".join(f"{column} (number {n})" for column, n in numbers.items() if n in sharing)
    n = len(record)
    remedy = hint or "; add the missing field, or remove the line"
    return f"{location}: {columns} are the same field, got {n} field{'s' * (n > 1)}{remedy}"


def _sharing(record: Sequence[str], numbers: Collection[int]) -> set[int]:
    """Return the first two different numbers of the same field; nothing if each has its own."""
    if min(numbers) >= 0 or max(numbers) < 0:
        return set()
    own: dict[int, int] = {}
    for number in numbers:
        if (other := own.setdefault(number % len(record), number)) != number:
            return {other, number}
    return set()


def too_few_fields(location: Location, record: Sequence[str], number: int, name: str = "") -> str:
    """Return the message for a record that has no field of this number, or of this name."""
    n = len(record)
    field = f"field number {number} (from {'the end' if number < 0 else '0'})"
    return f"{location}: {field}{f', {name},' if name else ''} is required, got {n} field{'s' * (n > 1)}"
