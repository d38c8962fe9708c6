"""Lines of a pipe, as they come."""

import os
import stat
from collections import deque
from collections.abc import Iterator
from typing import IO

PATIENCE = 0.05
"""Seconds that a pipe may be silent before what has come is answered; whoever fills it is faster by far."""


class Piped:
    """The lines of a pipe or socket, each with its end; what may come later is not waited for.

    Args:
        descriptor: of the pipe; nothing else may read from it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._ended = descriptor, False
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []

    @classmethod
    def of(cls, stream: IO[bytes]) -> "Piped | None":
        """What an unread stream comes through; None where it is no pipe, so that all of it is there."""
        try:
            mode = os.fstat(stream.fileno()).st_mode
        except OSError:  # it has no descriptor
            return None
        waits = os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        return cls(stream.fileno()) if waits else None

    def __iter__(self) -> Iterator[bytes]:
        """Every line, waiting for it."""
        while self._lines or self._read():
            if self._lines:
                yield self._lines.popleft()

    def ready(self) -> bool:
        """Whether there is another line, or comes within `PATIENCE`."""
        import select
        from time import monotonic

        until = monotonic() + PATIENCE
        while not self._lines and not self._ended:
            if not select.select([self._descriptor], [], [], max(0.0, until - monotonic()))[0]:
                return False
            self._read()
        return bool(self._lines)

    def _read(self) -> bool:
        """Take in what is there, or wait for something; False at the end."""
        if self._ended:
            return False
        chunk = os.read(self._descriptor, 1 << 16)
        self._ended = not chunk
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._lines.append(b"".join([*self._begun, part, b"\n"]))
            self._begun = []
        self._begun.append(rest)
        if self._ended and any(self._begun):
            self._lines.append(b"".join(self._begun))
        return True
