"""Output: results go to standard output, everything else to standard error.

Messages and progress must never stop a command: write errors on standard error are ignored. Write errors on
standard output stop the command: silently if the reader closed the pipe, else with an error message.
"""

import errno
import os
import re
import select
import stat
import sys
from collections.abc import Iterable, Sequence
from io import BufferedWriter, RawIOBase, TextIOWrapper
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TextIO

from heedful import files
from heedful.errors import RequestError, WorkError, escaped, shortened
from heedful.tables import terminal_width as terminal_width

Detail = Literal["quiet", "usual", "verbose"]

_detail: Detail = "usual"
_start = monotonic()


def set_detail(detail: Detail) -> None:
    """Choose which messages `log` writes: none, all, or all with the seconds since the start."""
    global _detail
    _detail = detail


def is_verbose() -> bool:
    """Whether messages are verbose (``--verbose``)."""
    return _detail == "verbose"


def log(line: str) -> None:
    """Write a message to standard error, unless ``--quiet``."""
    if _detail != "quiet":
        notify(f"[{monotonic() - _start:7.2f} s] {line}" if _detail == "verbose" else line)


def notify(line: str) -> None:
    """Write an error or warning to standard error: shortened, and with control characters escaped."""
    print(escaped(shortened(line)), file=sys.stderr, flush=True)


def result(line: str) -> None:
    """Write a line of the result to standard output."""
    write_result(f"{line}\n")


def json_result(value: object) -> None:
    """Write one JSON object to standard output."""
    result(files.json_text(value, allow_nan=False))


def result_in_pieces(pieces: Iterable[str]) -> None:
    """Write a line of the result piece by piece, without holding all of it in memory."""
    for piece in pieces:
        sys.stdout.write(_escape_for_terminal(piece))
    result("")


def write_result(text: str) -> None:
    """Write a part of the result to standard output and flush."""
    sys.stdout.write(_escape_for_terminal(text))
    sys.stdout.flush()


# A coloured heat map cell: the only escape sequence that heedful writes into results.
_CELL = re.compile(r"(\x1b\[48;5;\d{1,3}m +\x1b\[0m)")


def _escape_for_terminal(text: str) -> str:
    """Escape control characters of `text` if standard output is a terminal."""
    if not sys.stdout.isatty():
        return text
    return "".join(part if n % 2 else escaped(part) for n, part in enumerate(_CELL.split(text)))


def check_out(out: Path | None, suffixes: Sequence[str], inputs: Sequence[str] = ()) -> None:
    """Check the file name given by ``--out`` before any work.

    Raises:
        RequestError: it has none of the suffixes, its folder does not exist, or it is one of the inputs.
    """
    if out is None:
        return
    check_not_input(out, inputs)
    if out.suffix.lower() not in suffixes:
        expected = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise RequestError(f"--out {out}: file name must end in {expected}")
    files.check_parent(out, "--out")


def check_not_input(out: Path, inputs: Iterable[str | Path], option: str = "--out") -> None:
    """Check that an output does not replace an input.

    Raises:
        RequestError: it is the file of an input.
    """
    for file in inputs:
        if out.is_file() and Path(file).is_file() and out.samefile(file):
            raise RequestError(f"{option} {out}: is an input, which it would replace; choose another file")


def one_line(text: str) -> str:
    r"""Escape newline, carriage return and backslash as ``\n``, ``\r`` and ``\\``.

    A text without newlines, carriage returns and these three pairs is returned unchanged, so that most
    backslashes stay as they are and every line can still be decoded exactly.
    """
    if not _AMBIGUOUS.search(text):
        return text
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


_AMBIGUOUS = re.compile(r"[\n\r]|\\[nr\\]")


def unescaped(line: str) -> str:
    """Return the text of a line that `one_line` wrote."""
    return _ESCAPE.sub(lambda escape: _CHARACTERS[escape[1]], line)


_ESCAPE = re.compile(r"\\([nr\\])")
_CHARACTERS = {"n": "\n", "r": "\r", "\\": "\\"}


STANDARD_ERROR = 2


class OutputClosedError(Exception):
    """Standard output has no reader: its pipe is closed or its terminal is gone."""


class _Guarded(RawIOBase):
    """Write to the file descriptor of a stream, dropping data that cannot be written.

    Args:
        stream: kept referenced, because closing it would close the descriptor.
        raises: whether the first write error is raised.
    """

    def __init__(self, stream: TextIOWrapper, raises: bool) -> None:
        self._stream, self._descriptor, self._raises = stream, stream.fileno(), raises

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, content: Any) -> int:
        """Write as many bytes as the descriptor accepts; drop all of them on an error.

        Raises:
            OutputClosedError: the reader is gone.
            WorkError: writing failed for another reason.
        """
        while True:
            try:
                return os.write(self._descriptor, content)
            except BlockingIOError:  # another process may have made it non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                if not self._raises:
                    return memoryview(content).nbytes
                self._raises = False
                has_vanished = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self._descriptor).st_mode)
                if has_vanished or isinstance(error, ConnectionError):
                    raise OutputClosedError from None
                raise WorkError(f"standard output cannot be written: {error.strerror}") from None


def open_streams() -> None:
    """Set up UTF-8 output; file names that are not UTF-8 round-trip in results and are escaped in messages.

    Closed standard streams are redirected to the null device; otherwise a file opened later would get their
    descriptor and receive their output.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        pass
    os.close(handle)
    sys.stdout = _guarded(sys.stdout, "surrogateescape", raises=True)
    sys.stderr = _guarded(sys.stderr, "backslashreplace", raises=False)


def _guarded(stream: TextIO | None, errors: str, *, raises: bool) -> TextIO:
    """Guard a stream, with UTF-8 and the encoding error handler ``errors``."""
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if not isinstance(stream, TextIOWrapper):
        return stream
    return TextIOWrapper(
        BufferedWriter(_Guarded(stream, raises)),
        encoding="utf-8",
        errors=errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
