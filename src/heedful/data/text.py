"""Running text: files that are read whole, cut into documents as asked."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from heedful.data.files import Paths
from heedful.data.lines import LocatedRow, Location, Row, TextFile, expand, find, lines, read_text
from heedful.data.range import Ranged
from heedful.errors import DataError

TEXT = "text"
"""The one column of running text."""


class TextSource(Ranged):
    """Files of text, each document a row with the column ``text``.

    Args:
        paths: a file or folder, or several, read one after another; files are plain or ``.gz``. Of a
            folder, all files below it are read that end in one of ``suffixes``, by their names in order,
            but for those whose name, or a folder of theirs, begins with a dot.
        documents: what is one document: a whole ``file``, a ``line``, or what stands between
            ``blank-lines``. The line ends (and blank lines) that separate documents are not part of them.
        begins: with ``documents: file``, cuts files into documents: a regular expression (of Python's) for
            what each begins with. It is held against the file at the beginning of each line, and may reach
            into the lines that follow. What stands before the first is a document too, or if it is blank,
            part of the first; nothing is left out.
        suffixes: of the files to read in folders, with or without ``.gz`` behind them.
    """

    kind: Literal["text"] = "text"
    paths: Paths
    documents: Literal["file", "line", "blank-lines"] = "file"
    begins: str | None = Field(default=None, min_length=1)
    suffixes: list[str] = Field(default=[".txt", ".md"], min_length=1)

    @field_validator("begins")
    @classmethod
    def _is_a_pattern(cls, begins: str | None) -> str | None:
        try:
            re.compile(begins or "", re.MULTILINE)
        except re.error as error:
            raise ValueError(f"{begins!r} is no regular expression: {error}") from None
        return begins

    @model_validator(mode="after")
    def _begins_in_files(self) -> "TextSource":
        if self.begins is not None and self.documents != "file":
            raise ValueError(
                f"begins cuts files into documents: it needs documents=file, not {self.documents}"
            )
        return self


def open_text(config: TextSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """The documents of files of text. Missing files are reported at once, all else when reached.

    Raises:
        DataError: a file is missing, empty or unreadable, or a folder has no file to read.
    """
    written = [config.paths] if isinstance(config.paths, str) else config.paths
    found = [file for path in written for file in _files(path, root, tuple(config.suffixes))]
    return (row for file in found for row in _documents(file, config))


def _files(written: str, root: Path, suffixes: tuple[str, ...]) -> list[TextFile]:
    """The file, or those in the folder, that a recipe calls ``written``."""
    name = expand(written)
    folder = root / name
    if not folder.is_dir():
        return [find(written, root)]
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    # What a dot hides (environments, copies that editors keep) is no text of the user's.
    paths = [
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    kept = [path for path in paths if path.name.removesuffix(".gz").endswith(suffixes)]
    if not kept:
        known = " or ".join(suffixes)
        raise DataError(f"{folder}: there is no file that ends in {known} in this folder; set `suffixes`")
    return [TextFile(path, str(Path(name) / path.relative_to(folder))) for path in kept]


def _documents(file: TextFile, config: TextSource) -> Iterator[LocatedRow[Row]]:
    """The documents of one file, each with the place of its first line."""
    if config.begins is not None:
        yield from _chapters(file, re.compile(config.begins, re.MULTILINE))
    elif config.documents == "file":
        yield LocatedRow({TEXT: read_text(file)}, Location(file.name, 1))
    elif config.documents == "line":
        for number, line in enumerate(lines(file), 1):
            yield LocatedRow({TEXT: line}, Location(file.name, number))
    else:
        yield from _paragraphs(file)


def _chapters(file: TextFile, begins: re.Pattern[str]) -> Iterator[LocatedRow[Row]]:
    """The file, cut before every line at which ``begins`` matches."""
    text = read_text(file)
    held, number = 0, 1
    for line, start in enumerate(_line_starts(text), 1):
        if begins.match(text, start) and text[held:start].strip():
            yield LocatedRow({TEXT: text[held:start]}, Location(file.name, number))
            held, number = start, line
    yield LocatedRow({TEXT: text[held:]}, Location(file.name, number))


def _line_starts(text: str) -> Iterator[int]:
    """Where lines begin; none begins at the end of the text."""
    start = 0
    while start < len(text):
        yield start
        start = (text.find("\n", start) + 1) or len(text)


def _paragraphs(file: TextFile) -> Iterator[LocatedRow[Row]]:
    held: list[str] = []
    first = 1
    for number, line in enumerate(lines(file), 1):
        if line.strip():
            first = first if held else number
            held.append(line)
        elif held:
            yield LocatedRow({TEXT: "\n".join(held)}, Location(file.name, first))
            held = []
    if held:
        yield LocatedRow({TEXT: "\n".join(held)}, Location(file.name, first))
