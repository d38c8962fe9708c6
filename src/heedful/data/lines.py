r"""Lines of text files, plain or gzip, each with its location.

A line ends only at ``\n``: U+2028, U+0085, vertical tabs and form feeds are text, so that files that are
line-aligned for other tools stay aligned. One ``\r`` before the ``\n`` and a byte order mark at the start of
a file are dropped.
"""

import gzip
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from heedful.errors import DataError, nearest
from heedful.files import require_end
from heedful.typing import JsonObject

Row = JsonObject
"""The value of each column: a text, a list of texts, or a `heedful.data.images.LazyImage`."""

RowT = TypeVar("RowT", bound=Mapping)

_VARIABLE = re.compile(r"\$(?:HEEDFUL_DATA\b|\{HEEDFUL_DATA\})")


class Location(NamedTuple):
    """A location in a corpus, as a string ``train.en:17``. Lines count from 1; 0 is the whole file."""

    name: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


class LocatedRow(NamedTuple, Generic[RowT]):
    """A row and its location."""

    row: RowT
    where: Location


class TextFile(NamedTuple):
    """An existing file: its path, and its name in messages."""

    path: Path
    name: str


def expand(written: str) -> str:
    """Replace ``$HEEDFUL_DATA``, ``${HEEDFUL_DATA}`` and a leading ``~`` in a path.

    Raises:
        DataError: if the path contains the variable and it is not set.
    """
    folder = os.environ.get("HEEDFUL_DATA", "")
    if _VARIABLE.search(written) and not folder:
        raise DataError(
            f"{written}: the environment variable HEEDFUL_DATA is not set; "
            "set it to the folder that contains the corpora"
        )
    return os.path.expanduser(_VARIABLE.sub(lambda _: folder, written))


def find(written: str, root: Path) -> TextFile:
    """Find the file ``written`` in a recipe; a relative path is resolved against ``root``.

    Raises:
        DataError: if there is no such file (the message suggests the nearest name in its folder), or it is
            neither a regular file nor a pipe.
    """
    name = expand(written)
    path = root / name
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file")
    if not path.exists():
        raise DataError(_missing(path))
    require_end(path)
    return TextFile(path, name)


def _missing(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path}: no such file (no folder {folder})"
    return f"{path}: no such file{nearest(path.name, (entry.name for entry in folder.iterdir()))}"


def lines(file: TextFile) -> Iterator[str]:
    """Yield the lines of a UTF-8 file; a file whose name ends in ``.gz`` is decompressed.

    Raises:
        DataError: if the file is empty, cannot be read, is not UTF-8, or is named ``.gz`` and is not gzip.
    """
    number = 0
    for number, raw in enumerate(raw_lines(file), start=1):
        yield decoded(raw, Location(file.name, number))
    if number == 0:
        raise DataError(f"{file.name}: the file is empty")


def decoded(raw: bytes, where: Location) -> str:
    """Decode a line and strip its end.

    Raises:
        DataError: if it is not UTF-8.
    """
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(_not_utf8(where, raw, error)) from None
    line = line.removesuffix("\n").removesuffix("\r")
    return line.removeprefix("\ufeff") if where.line == 1 else line


def read_text(file: TextFile) -> str:
    r"""Read a whole UTF-8 file; line ends become ``\n``, and a byte order mark is dropped.

    Raises:
        DataError: as for `lines`.
    """
    raw = b"".join(raw_lines(file))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        number, start = raw.count(b"\n", 0, error.start) + 1, raw.rfind(b"\n", 0, error.start) + 1
        error.start -= start
        raise DataError(_not_utf8(Location(file.name, number), raw[start:], error)) from None
    if not text:
        raise DataError(f"{file.name}: the file is empty")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def read_bytes(file: TextFile) -> bytes:
    """Read a whole file as bytes; a file whose name ends in ``.gz`` is decompressed.

    Raises:
        DataError: if it cannot be read, or is named ``.gz`` and is not gzip.
    """
    return b"".join(raw_lines(file))


def count_lines(file: TextFile) -> int:
    """Return the number of lines that `lines` yields."""
    return sum(1 for _ in raw_lines(file))


def raw_lines(file: TextFile) -> Iterator[bytes]:
    """Yield undecoded lines with their ends; a file whose name ends in ``.gz`` is decompressed.

    Raises:
        DataError: if the file cannot be read, or is named ``.gz`` and is not gzip.
    """
    try:
        if file.path.suffix != ".gz":
            with file.path.open("rb") as stream:
                yield from stream
        else:
            _check_magic(file)
            with gzip.open(file.path, "rb") as stream:
                yield from stream
    except EOFError:
        raise DataError(f"{file.name}: the gzip file is truncated") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{file.name}: the gzip file is damaged ({error})") from None
    except OSError as error:
        raise DataError(f"{file.name}: cannot be read ({error.strerror or error})") from None


def _check_magic(file: TextFile) -> None:
    with file.path.open("rb") as stream:
        magic = stream.read(2)
    if magic and magic != b"\x1f\x8b":
        raise DataError(f"{file.name}: named .gz but not a gzip file; compress it or rename it")


def looks_like_utf16(raw: bytes) -> bool:
    """Whether a file begins with a UTF-16 byte order mark."""
    return raw.startswith((b"\xff\xfe", b"\xfe\xff"))


def _not_utf8(where: Location, raw: bytes, error: UnicodeDecodeError) -> str:
    hint = "convert it to UTF-8"
    if where.line == 1 and looks_like_utf16(raw):
        hint = "it looks like UTF-16; convert it to UTF-8"
    elif where.line == 1 and raw.startswith(b"\x1f\x8b"):
        hint = "it looks like a gzip file; its name must end in .gz"
    return f"{where}: byte {error.start + 1} of the line is not UTF-8; {hint}"
