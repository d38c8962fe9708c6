"""Standard output and standard error, as the command uses them.

Messages and progress must never end the work: what standard error cannot take is dropped. A result that
cannot be written ends the work: quietly if its reader has left, else as a failure that says so.
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
    """Nobody reads standard output any more: its pipe is closed, or its terminal has vanished."""


class _Guarded(RawIOBase):
    """Writes to the descriptor of a stream; what the descriptor refuses is dropped.

    Args:
        stream: kept, because closing it would close the descriptor.
    """

    def __init__(self, stream: TextIOWrapper) -> None:
        self._stream, self._descriptor = stream, stream.fileno()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, content: Any) -> int:
        """Write as many bytes as the descriptor takes, or drop all of them."""
        while True:
            try:
                return os.write(self._descriptor, content)
            except BlockingIOError:  # whoever shares it may have made it non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                self._refused(error)
                return len(content)

    def _refused(self, error: OSError) -> None:
        """Called when nothing could be written; may raise."""


class StandardError(_Guarded):
    """Drops what it cannot write: messages never end the work."""


class StandardOutput(_Guarded):
    """Raises at the first error, so that the work ends; what is still buffered is dropped later."""

    def __init__(self, stream: TextIOWrapper) -> None:
        super().__init__(stream)
        self._is_broken = False

    def _refused(self, error: OSError) -> None:
        """Tell a reader who has left from a file or device that refuses.

        Raises:
            OutputClosedError: nobody reads it.
            WorkError: it cannot be written for another reason.
        """
        if self._is_broken:
            return
        self._is_broken = True
        has_vanished = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self._descriptor).st_mode)
        if has_vanished or isinstance(error, ConnectionError):
            raise OutputClosedError from None
        raise WorkError(f"standard output cannot be written: {error.strerror}") from None


def open_streams() -> None:
    """Output in UTF-8; file names that are not UTF-8 come back unchanged, and escaped in messages.

    A closed stream leads nowhere: otherwise a file opened later would take its number, and its text.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        pass
    os.close(handle)
    sys.stdout = _guarded(sys.stdout, StandardOutput, "surrogateescape")
    sys.stderr = _guarded(sys.stderr, StandardError, "backslashreplace")


def _guarded(stream: TextIO | None, guard: type[_Guarded], errors: str) -> TextIO:
    """The same stream behind a guard, in UTF-8; ``errors`` is what it does with surrogates."""
    if stream is None:
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if not isinstance(stream, TextIOWrapper):
        return stream
    return TextIOWrapper(
        BufferedWriter(guard(stream)),
        encoding="utf-8",
        errors=errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
