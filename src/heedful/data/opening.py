"""Open a file by its content: compressed ones are decompressed, whatever their names; others are refused."""

import bz2
import gzip
import io
import lzma
import shlex
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast

from heedful.data.signatures import BZIP2, GZIP, N_HEAD, XZ, ZIP, ZSTANDARD, refusal
from heedful.errors import DataError

Content: TypeAlias = Literal["lines", "text", "bytes"]
"""What a file should contain: lines or records; any text, which may have tags; or anything."""

WORKBOOK = "xl/workbook.xml"
"""The file in every workbook of Excel since 2007."""

_OFFICE = (
    (
        WORKBOOK,
        "an Excel workbook",
        "save the sheet as CSV in UTF-8, or use it as a table (kind: tsv)",
    ),
    ("xl/workbook.bin", "a binary Excel workbook", "save the sheet as CSV in UTF-8"),
    ("word/document.xml", "a Word document", "save it as plain text in UTF-8"),
    ("ppt/presentation.xml", "a PowerPoint presentation", "save it as plain text in UTF-8"),
    ("content.xml", "an OpenDocument file", "save a table as CSV, other text as plain text, both in UTF-8"),
)
_NO_MEMBERS = ("__MACOSX/", ".DS_Store")
N_SHOWN = 5

UNPACKED = "UNPACKED"
"""The name of a decompressed file in commands."""


class Compression(NamedTuple):
    """A form of compression: first bytes, name, the command that prints a file ``{}``, and what reads one."""

    beginning: bytes
    name: str
    command: str
    open: Callable[[BinaryIO, str], BinaryIO]


def _zstandard(stream: BinaryIO, name: str) -> BinaryIO:
    from pyarrow import CompressedInputStream  # the standard library has it since Python 3.14

    return cast(BinaryIO, io.BufferedReader(CompressedInputStream(stream, "zstd")))


def _only_member(stream: BinaryIO, name: str) -> BinaryIO:
    """Open the file in a zip archive.

    Raises:
        DataError: if it has none, or several, or is a document.
    """
    if not stream.seekable():
        raise DataError(f"{name}: a zip archive cannot be read from a pipe; name the file itself")
    archive = zipfile.ZipFile(stream)
    members = members_of(archive)
    file = shlex.quote(name)
    if (document := next((each for each in _OFFICE if each[0] in archive.namelist()), None)) is not None:
        raise DataError(f"{name}: is {document[1]}; {document[2]}")
    if not members:
        raise DataError(f"{name}: is a zip archive without files")
    if len(members) > 1:
        more = f" and {len(members) - N_SHOWN} more" if len(members) > N_SHOWN else ""
        raise DataError(
            f"{name}: is a zip archive with the files {', '.join(members[:N_SHOWN])}{more}; extract one: "
            f"unzip -p {file} {shlex.quote(members[0])} > NEW"
        )
    if archive.getinfo(members[0]).flag_bits & 1:
        raise DataError(f"{name}: is a zip archive with a password; extract its file: unzip {file}")
    return cast(BinaryIO, archive.open(members[0]))


def members_of(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the files in a zip archive, without those that macOS adds."""
    names = (info.filename for info in archive.infolist() if not info.is_dir())
    return [
        name for name in names if not name.startswith(_NO_MEMBERS[0]) and not name.endswith(_NO_MEMBERS[1])
    ]


COMPRESSIONS = (
    Compression(
        GZIP, "gzip", "gzip -dc < {}", lambda stream, _: cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    ),
    Compression(BZIP2, "bzip2", "bzip2 -dc {}", lambda stream, _: cast(BinaryIO, bz2.BZ2File(stream))),
    Compression(XZ, "xz", "xz -dc < {}", lambda stream, _: cast(BinaryIO, lzma.open(stream))),  # noqa: SIM115
    Compression(ZSTANDARD, "Zstandard", "zstd -dc {}", _zstandard),
    Compression(ZIP, "zip", "unzip -p {} -x '__MACOSX/*' '*.DS_Store'", _only_member),
)


def compression_of(head: bytes) -> Compression | None:
    """Return the compression of a file that begins with these bytes; None if it has none."""
    found = next((each for each in COMPRESSIONS if head.startswith(each.beginning)), None)
    is_text = found is not None and found.beginning == BZIP2 and not head[3:4].isdigit()
    return None if is_text else found


def decompression(path: Path, name: str) -> str:
    """Return the command that prints the content of a file; empty if it is not compressed."""
    with path.open("rb") as stream:
        found = compression_of(stream.read(len(XZ)))
    return "" if found is None else found.command.format(shlex.quote(name))


@contextmanager
def opened(path: Path, name: str, content: Content = "lines") -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed if it is compressed.

    Args:
        path: the file.
        name: its name in messages.
        content: what it should contain.

    Raises:
        DataError: if it cannot be read, is damaged, or is no text but should be.
    """
    try:
        with (
            path.open("rb", buffering=N_HEAD) as file,
            decompressed(file, name, content) as stream,
        ):
            yield stream
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror or error})") from None


@contextmanager
def decompressed(file: BinaryIO, name: str, content: Content) -> Iterator[BinaryIO]:
    """Read a stream, decompressed if it is compressed; arguments and errors as of `opened`."""
    head = file.peek(N_HEAD)  # type: ignore[attr-defined]
    compression = compression_of(head)
    if compression is None:
        _require(content, head, name)
        yield file
        return
    command = f"{compression.command.format(shlex.quote(name))} > {UNPACKED}"
    try:
        with io.BufferedReader(_Pieces(compression.open(file, name)), N_HEAD) as stream:
            _require(content, stream.peek(N_HEAD), name, command)
            yield stream
    except _DAMAGED as error:
        raise DataError(f"{name}: the {compression.name} file {_damage(error)}") from None


class _Pieces(io.RawIOBase):
    """Reads what a decompressor has ready, so that what precedes damage is read before the error."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer; return 0 at the end."""
        piece: bytes = self._stream.read1(len(buffer))  # type: ignore[attr-defined]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        """Close the decompressor."""
        if not self.closed:
            self._stream.close()
        super().close()


def _require(content: Content, head: bytes, name: str, command: str = "") -> None:
    """Check that the first bytes of a file are what it should contain.

    Args:
        content: what it should contain.
        head: its first bytes, decompressed.
        name: its name in messages.
        command: what decompresses it into the file `UNPACKED`.

    Raises:
        DataError: they are those of another format.
    """
    if content == "bytes":
        return
    reason = refusal(head, UNPACKED if command else name, markup=content == "text")
    if reason is not None:
        first = f"decompress it: {command}; then {UNPACKED} " if command else ""
        raise DataError(f"{name}: {first}{reason}")


_DAMAGED = (EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, NotImplementedError, OSError)
"""What the libraries raise for a compressed file that they cannot read."""


def _damage(error: Exception) -> str:
    text = str(error)
    is_truncated = isinstance(error, EOFError) or "truncated" in text.lower()
    return "is truncated" if is_truncated else f"is damaged ({text})"
