"""Running text: files that are split into documents."""

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
        paths: a file or folder, or several, read one after another; files are plain or ``.gz``. In a folder,
            all files that end in one of ``suffixes`` are read, including subfolders, sorted by name; hidden
            files and folders (``.name``) are ignored.
        documents: what a document is: a whole ``file``, a ``line``, or the text between ``blank-lines``. The
            line ends (and blank lines) that separate documents are not part of them.
        begins: with ``documents: file``, splits files into documents: a Python regular expression for the
            beginning of a document. It is matched at the beginning of each line, and may match across lines.
            Text before the first match is a document too or, if it is blank, part of the first; no text is
            dropped.
        suffixes: the suffixes of the files to read in folders, optionally followed by ``.gz``.
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
            raise ValueError(f"{begins!r} is not a valid regular expression: {error}") from None
        return begins

    @model_validator(mode="after")
    def _begins_in_files(self) -> "TextSource":
        if self.begins is not None and self.documents != "file":
            raise ValueError(f"begins requires documents=file, got documents={self.documents}")
        return self


def open_text(config: TextSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the documents of text files. Missing files are reported at once, other errors when reached.

    Raises:
        DataError: if a file is missing, empty or unreadable, or a folder has no matching file.
    """
    written = [config.paths] if isinstance(config.paths, str) else config.paths
    found = [file for path in written for file in _files(path, root, tuple(config.suffixes))]
    return (row for file in found for row in _documents(file, config))


def _files(written: str, root: Path, suffixes: tuple[str, ...]) -> list[TextFile]:
    """Find the file, or the files in the folder, ``written`` in a recipe."""
    name = expand(written)
    folder = root / name
    if not folder.is_dir():
        return [find(written, root)]
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    # Hidden files (environments, editor backups) are not the user's text.
    paths = [
        path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    kept = [path for path in paths if path.name.removesuffix(".gz").endswith(suffixes)]
    if not kept:
        known = " or ".join(suffixes)
        raise DataError(f"{folder}: no file in this folder ends in {known}; set `suffixes`")
    return [TextFile(path, str(Path(name) / path.relative_to(folder))) for path in kept]


def _documents(file: TextFile, config: TextSource) -> Iterator[LocatedRow[Row]]:
    """Yield the documents of one file, located by their first line."""
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
    """Split the file before every line at which ``begins`` matches."""
    text = read_text(file)
    begin, number = 0, 1
    for line, start in enumerate(_line_starts(text), 1):
        if begins.match(text, start) and text[begin:start].strip():
            yield LocatedRow({TEXT: text[begin:start]}, Location(file.name, number))
            begin, number = start, line
    yield LocatedRow({TEXT: text[begin:]}, Location(file.name, number))


def _line_starts(text: str) -> Iterator[int]:
    """Yield where lines begin; none begins at the end of the text."""
    start = 0
    while start < len(text):
        yield start
        start = (text.find("\n", start) + 1) or len(text)


def _paragraphs(file: TextFile) -> Iterator[LocatedRow[Row]]:
    paragraph: list[str] = []
    first = 1
    for number, line in enumerate(lines(file), 1):
        if line.strip():
            first = first if paragraph else number
            paragraph.append(line)
        elif paragraph:
            yield LocatedRow({TEXT: "\n".join(paragraph)}, Location(file.name, first))
            paragraph = []
    if paragraph:
        yield LocatedRow({TEXT: "\n".join(paragraph)}, Location(file.name, first))
