r"""Rows with their locations, the base of data sources, and lines of text files, plain or compressed.

A line ends only at ``\n``: U+2028, U+0085, vertical tabs and form feeds are text, so that files that are
line-aligned for other tools stay aligned. One ``\r`` before the ``\n`` and a byte order mark at the start of
a file are dropped.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar, Generic, NamedTuple, Self, TypeVar

from pydantic import Field, NonNegativeInt, PositiveInt

from heedful import limits
from heedful.config import Config
from heedful.data.encodings import conversion_hint, looks_like_utf16
from heedful.data.opening import Content, decompression, opened
from heedful.data.signatures import N_HEAD, recognised
from heedful.errors import DataError, nearest
from heedful.files import require_end
from heedful.limits import line_too_long
from heedful.typing import JsonMapping, JsonObject

Row = JsonObject
"""The value of each column: a text, a list of texts, or a `heedful.data.images.LazyImage`."""


class WholeRow(dict[str, Any]):
    """The columns of a row, with all fields of its record.

    Args:
        columns: those that a task reads.
        fields: all that the record has, under the names of the file; None: they are not known.
    """

    def __init__(self, columns: Row, fields: JsonMapping | None) -> None:
        super().__init__(columns)
        self.fields = fields


class PartialRow(WholeRow):
    """The cells of a row of Python that can be read; of the others, only those that a task reads are errors.

    Args:
        columns: the columns.
        read: returns the cell of a column, or raises `DataError`.

    Attributes:
        unreadable: the message for each column without a cell.
    """

    def __init__(self, columns: Iterable[str], read: Callable[[str], object]) -> None:
        super().__init__({}, None)
        self.unreadable: dict[str, str] = {}
        for column in columns:
            try:
                self[column] = read(column)
            except DataError as error:
                self.unreadable[column] = str(error)


def fields_of(row: Row) -> JsonMapping | None:
    """Return all fields of the record of a row; None if it is no `WholeRow`, or they are not known."""
    return row.fields if isinstance(row, WholeRow) else None


def read_cells(columns: Iterable[str], read: Callable[[str], object], *, all_needed: bool) -> Row:
    """Return a row of the cells that ``read`` returns: of all columns, or a `PartialRow`."""
    return {column: read(column) for column in columns} if all_needed else PartialRow(columns, read)


T = TypeVar("T")
RowT = TypeVar("RowT", bound=Mapping)

N_SAMPLED = 10_000
"""The number of lines that are read again to guess the encoding of a file."""

_BLOCK = 1 << 20
"""Bytes that `read_bytes` reads at one time."""

_VARIABLE = re.compile(r"\$(?:HEEDFUL_DATA\b|\{HEEDFUL_DATA\})")


class Location(NamedTuple):
    """A location in a corpus, as a string ``train.en:17``. Lines count from 1; 0 is the whole file.

    Args:
        name: of the corpus.
        line: the line.
        is_list: whether it is a list of values instead of a file; then it is written ``inputs[16]``, from 0.
    """

    name: str
    line: int = 0
    is_list: bool = False

    def __str__(self) -> str:
        if self.is_list:
            return f"{self.name}[{self.line - 1}]"
        return f"{self.name}:{self.line}" if self.line else self.name


class LocatedRow(NamedTuple, Generic[RowT]):
    """A row and its location."""

    row: RowT
    location: Location


Rows = Iterator[LocatedRow[Row]]


def with_cells(located: LocatedRow[Row], cells: JsonMapping) -> LocatedRow[Row]:
    """Return a row with other cells in some columns; its class and attributes stay (`WholeRow`)."""
    row = copy(located.row)
    row.update(cells)
    return located._replace(row=row)


@dataclass(frozen=True)
class Record:
    """A record of a file as verbs answer it, whether it can be used or not.

    Args:
        location: where it is.
        fields: all that it has, under the names of the file.
        row: the columns that were asked for; without those that cannot be read.
        error: why the record cannot be used, or None.
    """

    location: Location
    fields: JsonMapping = field(default_factory=dict)
    row: Row = field(default_factory=dict)
    error: DataError | None = None


class HeaderError(DataError):
    """A user's table does not have the fields that are read."""


class EmptyLineError(DataError):
    """A line without text, in place of several texts."""


class ValueRefusedError(DataError):
    """A record is in the right format but has a value that cannot be read or written back."""


Paths = str | Annotated[list[str], Field(min_length=1)]
"""One path, or several that are read one after another."""


class Source(Config):
    """Settings of every source.

    Args:
        skip: the number of rows to skip at the beginning.
        limit: the maximum number of rows after those.
    """

    group_column: ClassVar[str | None] = None
    """A column: consecutive rows with the same value in it count as one and are never separated."""
    fixed_columns: ClassVar[tuple[str, ...]] = ()
    """The columns, if no setting names them; a file of another format needs them too."""

    skip: NonNegativeInt = 0
    limit: PositiveInt | None = None

    def open(self, root: Path) -> Rows:
        """Yield all rows, before ``skip`` and ``limit``.

        Missing files are reported at once, other errors when they are reached.

        Args:
            root: the folder that relative paths are resolved against, that of the recipe.

        Raises:
            DataError: if a file is missing or unreadable, or its content is not as configured.
        """
        raise NotImplementedError

    def open_whole(self, root: Path) -> Rows:
        """Yield all rows like `open`: a `WholeRow` each if their records have more than these columns."""
        return self.open(root)

    def records(
        self, root: Path, columns: Collection[str], optional: Collection[str] = ()
    ) -> Iterator[Record]:
        """Yield all records as verbs answer them: with every field, and an error if one cannot be used.

        Args:
            root: as of `open`.
            columns: the columns that every record must have.
            optional: columns that are read from records that have them.

        Raises:
            DataError: as `open`; of sources whose records do not fail one by one, any error.
        """
        for row, location in self.open_whole(root):
            cells = {column: row[column] for column in (*columns, *optional) if column in row}
            fields = fields_of(row)
            if fields is None:
                fields = {key: cell for key, cell in row.items() if is_json(cell)}
            yield Record(location, fields, cells)


def is_json(cell: object) -> bool:
    """Return whether a cell is a text or a list of texts, not an image."""
    return isinstance(cell, str | list)


class File(NamedTuple):
    """An existing file or folder: its path, and its name in messages."""

    path: Path
    name: str

    @property
    def can_be_read_again(self) -> bool:
        """Whether it is a regular file, not a pipe or standard input."""
        return self.path.is_file()

    def location(self, line: int) -> Location:
        """Return the location of a line, from 1."""
        return Location(self.name, line)


class Stream(File):
    """Lines that can be read only once, such as standard input."""

    raw: Iterable[bytes]

    @classmethod
    def of(cls, name: str, raw: Iterable[bytes]) -> Self:
        """Return a stream of lines with their ends."""
        stream = cls(Path("-"), name)
        stream.raw = raw
        return stream

    @property
    def can_be_read_again(self) -> bool:
        """Whether it is a regular file: no."""
        return False


class ValueList(Stream):
    """The values of a list, each as a line of JSON, such as the inputs of a request."""

    def location(self, line: int) -> Location:
        """Return the location of a value, from 1."""
        return Location(self.name, line, is_list=True)


OF_SYSTEMS = {"__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir"}
"""Files and folders that operating systems and archives leave in the folders of others, in lower case."""


def is_hidden(name: str) -> bool:
    """Whether the name of a file or folder begins with a dot, or is one of `OF_SYSTEMS`."""
    return name.startswith(".") or name.lower() in OF_SYSTEMS


def files_in(folder: File) -> list[File]:
    """Return the files of a folder and its subfolders sorted by name, but for hidden ones (`is_hidden`)."""
    paths = [(path, path.relative_to(folder.path)) for path in sorted(folder.path.rglob("*"))]
    return [
        File(path, str(Path(folder.name) / relative))
        for path, relative in paths
        if path.is_file() and not any(map(is_hidden, relative.parts))
    ]


def expand(path: str) -> str:
    """Replace ``$HEEDFUL_DATA``, ``${HEEDFUL_DATA}`` and a leading ``~`` in a path.

    Raises:
        DataError: if the path contains the variable and it is not set.
    """
    folder = os.environ.get("HEEDFUL_DATA", "")
    if _VARIABLE.search(path) and not folder:
        raise DataError(
            f"{path}: the environment variable HEEDFUL_DATA is not set; "
            "set it to the folder that contains the corpora"
        )
    return os.path.expanduser(_VARIABLE.sub(lambda _: folder, path))


def find(recipe_path: str, root: Path) -> File:
    """Find a file by its path in a recipe; a relative path is resolved against ``root``.

    Raises:
        DataError: if there is no such file (the message suggests the nearest name in its folder), or it is
            neither a regular file nor a pipe.
    """
    name = expand(recipe_path)
    path = root / name
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file")
    if not path.exists():
        raise DataError(_missing_message(path))
    require_end(path)
    return File(path, name)


def _missing_message(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path}: no such file (no folder {folder})"
    return f"{path}: no such file{nearest(path.name, (entry.name for entry in folder.iterdir()))}"


def find_all(paths: Paths, root: Path) -> list[File]:
    """Find one or several files (see `find`)."""
    return [find(path, root) for path in ([paths] if isinstance(paths, str) else paths)]


def usable_rows(records: Iterator[Record]) -> Rows:
    """Yield the rows of records.

    Raises:
        DataError: that of the first record that cannot be used.
    """
    for record in records:
        if record.error is not None:
            raise record.error
        yield LocatedRow(WholeRow(record.row, record.fields), record.location)


def read_all(paths: Paths, root: Path, read: Callable[[File], Iterable[T]]) -> Iterator[T]:
    """Yield what is read of one or several files, which are found at once and read when reached."""
    return chain.from_iterable(map(read, find_all(paths, root)))


def located_lines(file: File) -> Iterator[tuple[Location, str]]:
    """Yield the lines of a UTF-8 file with their locations; a compressed file is decompressed.

    Raises:
        DataError: if the file is empty, cannot be read, is damaged, or is not lines in UTF-8.
    """
    location = None
    for location, line in lines_or_errors(file):
        if isinstance(line, DataError):
            raise line
        yield location, line
    if location is None:
        raise DataError(f"{file.name}: the file is empty")


def lines_or_errors(file: File) -> Iterator[tuple[Location, str | DataError]]:
    """Yield the lines of a file with their locations; in place of one that is not UTF-8, the error.

    Raises:
        DataError: if the file cannot be read further, or its beginning is UTF-16 or that of another format.
    """
    hinted: File | None = file
    for line_number, raw in enumerate(raw_lines(file), start=1):
        location = file.location(line_number)
        try:
            yield location, decoded(raw, location, hinted)
        except DataError as error:
            if line_number == 1 and (looks_like_utf16(raw) or recognised(raw) is not None):
                raise
            hinted = None  # the first message suggests an encoding
            yield location, ValueRefusedError(str(error))


def lines(file: File) -> Iterator[str]:
    """Yield the lines of a file, as `located_lines` does."""
    return (line for _, line in located_lines(file))


def decoded(raw: bytes, location: Location, file: File | None = None) -> str:
    """Decode a line and strip its end.

    Args:
        raw: the line.
        location: where it is.
        file: its file, of which more is read for a better message; None: none, as for standard input.

    Raises:
        DataError: if it is not UTF-8.
    """
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(_not_utf8(location, raw, error, file)) from None
    line = line.removesuffix("\n").removesuffix("\r")
    return line.removeprefix("\ufeff") if location.line == 1 else line


def read_text(file: File) -> str:
    r"""Read a whole UTF-8 file; line ends become ``\n``, and a byte order mark is dropped.

    Raises:
        DataError: as for `located_lines`.
    """
    raw = read_bytes(file, "text")
    if b"\n" not in raw and raw.count(b"\r") > 1:  # as in `raw_lines`
        raw = raw.replace(b"\r", b"\n")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line_number, start = raw.count(b"\n", 0, error.start) + 1, raw.rfind(b"\n", 0, error.start) + 1
        line = raw[start:].partition(b"\n")[0]
        error.start -= start
        raise DataError(_not_utf8(Location(file.name, line_number), line, error, file)) from None
    if not text:
        raise DataError(f"{file.name}: the file is empty")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def raw_lines(file: File, content: Content = "lines") -> Iterator[bytes]:
    r"""Yield undecoded lines with their ends; a compressed file is decompressed (see `opened`).

    If there is no ``\n`` at the beginning of a file, but several ``\r``, as old programs on a Mac write, then
    these end lines.

    Args:
        file: the file.
        content: what it should contain.

    Raises:
        DataError: if the file cannot be read, is damaged, or does not contain what it should.
    """
    if isinstance(file, Stream):
        yield from file.raw
        return
    with opened(file.path, file.name, content) as stream:
        head = stream.peek(N_HEAD)  # type: ignore[attr-defined]
        ends_in_returns = b"\n" not in head and head.count(b"\r") > 1
        yield from (_ended_by_returns if ends_in_returns else bounded_lines)(stream, file.name)


def _ended_by_returns(stream: BinaryIO, name: str) -> Iterator[bytes]:
    r"""Yield what ``\r`` separates, with ``\n`` instead."""
    rest, number = b"", 1
    while block := stream.read(N_HEAD):
        *whole, rest = (rest + block).split(b"\r")
        yield from (line + b"\n" for line in whole)
        number += len(whole)
        if len(rest) > limits.LONGEST_LINE:
            raise line_too_long(name, number)
    if rest:
        yield rest


def bounded_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a stream with their ends.

    Raises:
        DataError: if a line is longer than `heedful.limits.LONGEST_LINE`.
    """
    for number, raw in enumerate(iter(partial(stream.readline, limits.LONGEST_LINE + 1), b""), 1):
        if len(raw) > limits.LONGEST_LINE:
            raise line_too_long(name, number)
        yield raw


def read_bytes(file: File, content: Content = "bytes") -> bytes:
    """Read a whole file, decompressed.

    Raises:
        DataError: if it cannot be read, is damaged, or has more than `heedful.limits.LONGEST_DOCUMENT` bytes.
    """
    with opened(file.path, file.name, content) as stream:
        # At most a block is decompressed beyond the limit.
        blocks, n_bytes = list[bytes](), 0
        while block := stream.read(_BLOCK):
            blocks.append(block)
            n_bytes += len(block)
            if n_bytes > limits.LONGEST_DOCUMENT:
                raise DataError(
                    f"{file.name}: has more than {limits.LONGEST_DOCUMENT >> 20:,} MiB, and is read "
                    "whole; split it into several files"
                )
    return b"".join(blocks)


def _not_utf8(location: Location, raw: bytes, error: UnicodeDecodeError, file: File | None) -> str:
    hint = "convert it to UTF-8"
    if file is not None and not isinstance(file, Stream):
        # A pipe cannot be read again.
        is_file = file.can_be_read_again
        beginning = islice(raw_lines(file, "text"), N_SAMPLED) if is_file else ()
        hint = conversion_hint(
            (*beginning, raw), file.name, decompression(file.path, file.name) if is_file else ""
        )
    elif location.line == 1 and looks_like_utf16(raw):
        hint = "it looks like UTF-16; convert it to UTF-8"
    elif location.line == 1 and (reason := recognised(raw)) is not None:
        return f"{location.name}: {reason}"
    return f"{location}: byte {error.start + 1} of the line is not UTF-8; {hint}"
