"""Wrappers of standard output and standard error.

Messages and progress must never stop a command: write errors on standard error are ignored. Write errors on
standard output stop the command: silently if the reader closed the pipe, else with an error message.
"""

import errno
import os
import select
import stat
import sys
from io import BufferedWriter, RawIOBase, TextIOWrapper
from typing import Any, TextIO

from heedful.errors import WorkError

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
                    return len(content)
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
