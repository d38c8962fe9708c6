"""Read lines from a pipe as they arrive."""

import os
import stat
from collections import deque
from collections.abc import Iterator
from typing import IO

PATIENCE = 0.05
"""Seconds without new data after which the lines read so far are processed."""


class Piped:
    """Iterate over the lines of a pipe or socket, with their line ends, without waiting for later lines.

    Args:
        descriptor: file descriptor of the pipe; nothing else may read from it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._ended = descriptor, False
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []

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
        import select
        from time import monotonic

        until = monotonic() + PATIENCE
        while not self._lines and not self._ended:
            if not select.select([self._descriptor], [], [], max(0.0, until - monotonic()))[0]:
                return False
            self._read()
        return bool(self._lines)

    def _read(self) -> bool:
        """Read the available data, blocking if there is none; return False at the end."""
        if self._ended:
            return False
        chunk = os.read(self._descriptor, 1 << 16)
        self._ended = not chunk
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            self._lines.append(b"".join([*self._partial, part, b"\n"]))
            self._partial = []
        self._partial.append(rest)
        if self._ended and any(self._partial):
            self._lines.append(b"".join(self._partial))
        return True
