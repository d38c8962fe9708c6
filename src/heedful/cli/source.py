"""A file, or standard input, as lines that are read as they are asked for, and answered in blocks."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from heedful.cli.output import standard_input
from heedful.cli.pipes import Piped
from heedful.errors import DataError

BLOCK = 2048
"""Inputs that are read, sorted by length, and answered together."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Source:
    """The lines of a file or of standard input.

    Args:
        name: what messages call it.
        raw: its lines, with their ends.
        size: how many are answered together, at most.
        ready: whether there is another, so that nobody waits for it.
    """

    name: str
    raw: Iterable[bytes]
    size: int = BLOCK
    ready: Callable[[], bool] = lambda: True

    @classmethod
    def of(cls, file: str) -> "Source":
        """The file, or standard input where it is called ``-``; at a terminal every line is for itself.

        Raises:
            RequestError: there is no such file, or standard input is closed.
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
        """Without their ends; only a newline ends a line.

        Raises:
            DataError: one is not UTF-8, or the file cannot be read.
        """
        from heedful.data.lines import Location, decoded

        return (decoded(raw, Location(self.name, number)) for number, raw in enumerate(self.raw, 1))

    def text(self) -> str:
        """All of it, without the last line's end."""
        return "\n".join(self.lines())

    def joined(self) -> "Source":
        """All of it as one line."""
        return replace(self, raw=[f"{self.text()}\n".encode()])

    def blocks(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """What is made of the lines, one of each, as it is to be answered together.

        Where the file breaks off, what came before is given first.
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
    """All of a file.

    Raises:
        DataError: it is empty, or cannot be read.
    """
    from heedful.data.lines import find, read_text

    return read_text(find(file, Path()))
