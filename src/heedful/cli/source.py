"""Read lines of a file or of standard input lazily, and group them into blocks."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from heedful.cli.output import standard_input
from heedful.cli.pipes import Piped
from heedful.errors import DataError

BLOCK = 2048
"""Maximum number of inputs that are read, sorted by length and answered together."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Source:
    """The lines of a file or of standard input.

    Args:
        name: name in messages.
        raw: lines with their line ends.
        size: maximum number of lines per block.
        ready: returns whether another line is available without waiting.
    """

    name: str
    raw: Iterable[bytes]
    size: int = BLOCK
    ready: Callable[[], bool] = lambda: True

    @classmethod
    def of(cls, file: str) -> "Source":
        """Open a file, or standard input if `file` is ``-``; at a terminal each line is its own block.

        Raises:
            RequestError: the file does not exist, or standard input is closed.
        """
        if file != "-":
            from heedful.data.lines import find, raw_lines

            found = find(file, Path())
            return cls(found.name, raw_lines(found))
        stream, name = standard_input(), "standard input"
        if (piped := Piped.of(stream)) is not None:
            return cls(name, piped, ready=piped.ready)
        return cls(name, stream, size=1 if sys.stdin.isatty() else BLOCK)

    def lines(self) -> Iterator[str]:
        """Yield the decoded lines without line ends; only a newline ends a line.

        Raises:
            DataError: a line is not UTF-8, or the file cannot be read.
        """
        from heedful.data.lines import Location, decoded

        return (decoded(raw, Location(self.name, number)) for number, raw in enumerate(self.raw, 1))

    def text(self) -> str:
        """Return the whole text without the last line end."""
        return "\n".join(self.lines())

    def joined(self) -> "Source":
        """Return a source with the whole text as one line."""
        return replace(self, raw=[f"{self.text()}\n".encode()])

    def blocks(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """Group items, one per line, into blocks that are answered together.

        If reading fails, the items before the failure are yielded first.
        """
        for item in items:
            block = [item]
            try:
                while len(block) < self.size and self.ready() and (another := next(items, None)) is not None:
                    block.append(another)
            except DataError:
                yield block
                raise
            yield block


def text_of(file: str) -> str:
    """Return the whole text of a file.

    Raises:
        DataError: it is empty, or cannot be read.
    """
    from heedful.data.lines import find, read_text

    return read_text(find(file, Path()))
