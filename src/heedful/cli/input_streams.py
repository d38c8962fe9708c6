"""Inputs of commands: a file or standard input, whose lines are answered as they arrive."""

import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, TypeVar

from heedful import limits
from heedful.errors import DataError, RequestError
from heedful.limits import line_too_long

if TYPE_CHECKING:
    from heedful.data.lines import File

STANDARD_INPUT = "standard input"
"""Its name in messages."""
BLOCK = 2048
"""Maximum number of inputs that are read, sorted by length and answered together."""
PATIENCE = 0.05
"""Seconds without new data from a pipe after which the lines read so far are processed."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Source:
    """A file, or standard input.

    Args:
        file: the file, or the lines of standard input.
        size: maximum number of inputs per block.
        ready: returns whether another line is available without waiting.
    """

    file: "File"
    size: int = BLOCK
    ready: Callable[[], bool] = lambda: True

    @classmethod
    def of(cls, file: str) -> "Source":
        """Open a file, or standard input if `file` is ``-``; at a terminal each line is its own block.

        Raises:
            RequestError: the file does not exist, or standard input is closed.
        """
        from heedful.data.lines import Stream, bounded_lines, find

        if file != "-":
            return cls(find(file, Path()))
        if sys.stdin is None:
            raise RequestError("standard input is closed: expected input to read")
        stream, name = sys.stdin.buffer, STANDARD_INPUT
        if (piped := Piped.of(stream)) is not None:
            return cls(Stream.of(name, piped), ready=piped.ready)
        lines = bounded_lines(stream, name)
        return cls(Stream.of(name, lines), size=1 if sys.stdin.isatty() else BLOCK)

    def lines(self) -> Iterator[str]:
        """Yield the decoded lines without line ends; only a newline ends a line.

        Raises:
            DataError: a line is not UTF-8, or the file cannot be read.
        """
        from heedful.data.lines import lines_or_errors

        for _, line in lines_or_errors(self.file):
            if isinstance(line, DataError):
                raise line
            yield line

    def text(self) -> str:
        """Return the whole text without the last line end."""
        return "\n".join(self.lines())

    def as_one_line(self) -> "Source":
        """Return a source with the whole text as one line."""
        from heedful.data.lines import Stream

        return replace(self, file=Stream.of(self.file.name, [f"{self.text()}\n".encode()]))

    def blocks(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """Group items, one per line, into blocks that are answered together.

        If reading fails, the items before the failure are yielded first.
        """
        return in_blocks(items, self.size, self.ready)


def in_blocks(
    items: Iterator[Item], size: int = BLOCK, ready: Callable[[], bool] = lambda: True
) -> Iterator[list[Item]]:
    """Group items into blocks of at most ``size`` that are available without waiting."""
    for item in items:
        block = [item]
        try:
            while len(block) < size and ready() and (another := next(items, None)) is not None:
                block.append(another)
        except DataError:
            yield block
            raise
        yield block


def text_of(file: str) -> str:
    """Return the whole text of a file; raise `DataError` if it is empty or cannot be read."""
    from heedful.data.lines import find, read_text

    return read_text(find(file, Path()))


class Piped:
    """Iterate over the lines of a pipe or socket, with their line ends, without waiting for later lines.

    Args:
        descriptor: file descriptor of the pipe; nothing else may read from it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._ended = descriptor, False
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._n_partial = self._n_complete = 0

    @classmethod
    def of(cls, stream: IO[bytes]) -> "Piped | None":
        """Return a reader for a stream that is a pipe and not yet read; None if it is not a pipe."""
        try:
            mode = os.fstat(stream.fileno()).st_mode
        except OSError:  # it has no descriptor
            return None
        waits = os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        return cls(stream.fileno()) if waits else None

    def __iter__(self) -> Iterator[bytes]:
        """Yield every line; blocks until the next one arrives."""
        while self._lines or self._read():
            if self._lines:
                yield self._lines.popleft()

    def ready(self) -> bool:
        """Return whether another line is available or arrives within `PATIENCE` seconds."""
        until = monotonic() + PATIENCE
        while not self._lines and not self._ended:
            if not select.select([self._descriptor], [], [], max(0.0, until - monotonic()))[0]:
                return False
            self._read()
        return bool(self._lines)

    def _read(self) -> bool:
        """Read the available data, blocking if there is none; return False at the end.

        Raises:
            DataError: the incomplete line is longer than `heedful.limits.LONGEST_LINE`.
        """
        if self._ended:
            return False
        chunk = os.read(self._descriptor, 1 << 16)
        self._ended = not chunk
        *complete, partial = chunk.split(b"\n")
        for part in complete:
            self._lines.append(b"".join([*self._partial, part, b"\n"]))
            self._partial, self._n_partial = [], 0
        self._n_complete += len(complete)
        self._partial.append(partial)
        self._n_partial += len(partial)
        if self._n_partial > limits.LONGEST_LINE:
            raise line_too_long(STANDARD_INPUT, self._n_complete + 1)
        if self._ended and any(self._partial):
            self._lines.append(b"".join(self._partial))
        return True
