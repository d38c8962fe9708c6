"""Line-aligned plain text: each column in a separate file."""

from collections.abc import Callable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from heedful.data.lines import LocatedRow, Location, Row, TextFile, count_lines, find, lines
from heedful.data.range import Ranged
from heedful.errors import DataError

Paths = str | Annotated[list[str], Field(min_length=1)]


class FilesSource(Ranged):
    """Line n of every column belongs to row n.

    Args:
        columns: for each column, one path or several, read one after another; plain or ``.gz``.
    """

    kind: Literal["files"] = "files"
    columns: dict[str, Paths] = Field(min_length=1)


def find_all(paths: Paths, root: Path) -> list[TextFile]:
    """Find one or several files (see `lines.find`)."""
    return [find(path, root) for path in ([paths] if isinstance(paths, str) else paths)]


def in_turn(
    paths: Paths, root: Path, read: Callable[[TextFile], Iterator[LocatedRow[Row]]]
) -> Iterator[LocatedRow[Row]]:
    """Yield the rows of one or several files, which are found at once and read when reached."""
    return chain.from_iterable(map(read, find_all(paths, root)))


def open_files(config: FilesSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the rows of line-aligned files. Missing files are reported at once, other errors when reached.

    A row is located by the line of its first column.

    Raises:
        DataError: if a file is missing or unreadable, or the columns have different numbers of lines.
    """
    return _rows({column: find_all(paths, root) for column, paths in config.columns.items()})


def _rows(files: dict[str, list[TextFile]]) -> Iterator[LocatedRow[Row]]:
    for entries in zip_longest(*(_column(paths) for paths in files.values())):
        if None in entries:
            raise DataError(_unequal(files))
        row = {column: text for column, (_, text) in zip(files, entries, strict=True)}
        yield LocatedRow(row, entries[0][0])


def _column(files: list[TextFile]) -> Iterator[tuple[Location, str]]:
    for file in files:
        for number, text in enumerate(lines(file), start=1):
            yield Location(file.name, number), text


def _unequal(files: dict[str, list[TextFile]]) -> str:
    counts = {column: [(file.name, count_lines(file)) for file in paths] for column, paths in files.items()}
    parts = []
    for column, counted in counts.items():
        detail = " + ".join(f"{name} {n}" for name, n in counted)
        parts.append(f"{column} has {sum(n for _, n in counted)} lines ({detail})")
    return f"the columns are not line-aligned: {', '.join(parts)}"
