"""Plain text: line-aligned files, one for each column, and running text that is split into documents."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from heedful.data.lines import (
    File,
    Folder,
    LocatedRow,
    Location,
    Paths,
    Rows,
    Source,
    expand,
    find,
    find_all,
    located_lines,
    raw_lines,
    read_text,
)
from heedful.errors import DataError

TEXT = "text"
"""The one column of running text."""


class FilesSource(Source):
    """Line n of every column belongs to row n.

    Args:
        columns: for each column, one path or several, read one after another; plain or ``.gz``.
    """

    kind: Literal["files"] = "files"
    columns: dict[str, Paths] = Field(min_length=1)

    def open(self, root: Path) -> Rows:
        """Yield rows that are located by the line of their first column."""
        return _aligned({column: find_all(paths, root) for column, paths in self.columns.items()})


def _aligned(files: dict[str, list[File]]) -> Rows:
    columns = ((entry for file in several for entry in located_lines(file)) for several in files.values())
    for entries in zip_longest(*columns):
        if None in entries:
            raise DataError(_unequal(files))
        row = {column: text for column, (_, text) in zip(files, entries, strict=True)}
        yield LocatedRow(row, entries[0][0])


def _unequal(files: dict[str, list[File]]) -> str:
    parts = []
    for column, several in files.items():
        counts = [sum(1 for _ in raw_lines(file)) for file in several]
        detail = " + ".join(f"{file.name} {n}" for file, n in zip(several, counts, strict=True))
        parts.append(f"{column} has {sum(counts)} lines ({detail})")
    return f"the columns are not line-aligned: {', '.join(parts)}"


class TextSource(Source):
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

    def open(self, root: Path) -> Rows:
        """Yield documents that are located by their first line."""
        written = [self.paths] if isinstance(self.paths, str) else self.paths
        found = [file for path in written for file in self._files(path, root)]
        return (LocatedRow({TEXT: text}, where) for file in found for where, text in self._documents(file))

    def _files(self, written: str, root: Path) -> list[File]:
        """Find the file, or the files in the folder, ``written`` in a recipe."""
        name = expand(written)
        folder = root / name
        if not folder.is_dir():
            return [find(written, root)]
        suffixes = tuple(self.suffixes)
        files = Folder(folder, name).files()
        kept = [file for file in files if file.path.name.removesuffix(".gz").endswith(suffixes)]
        if not kept:
            known = " or ".join(suffixes)
            raise DataError(f"{folder}: no file in this folder ends in {known}; set `suffixes`")
        return kept

    def _documents(self, file: File) -> Iterator[tuple[Location, str]]:
        if self.begins is not None:
            return _chapters(file, re.compile(self.begins, re.MULTILINE))
        if self.documents == "file":
            return iter([(Location(file.name, 1), read_text(file))])
        return located_lines(file) if self.documents == "line" else _paragraphs(file)


def _chapters(file: File, begins: re.Pattern[str]) -> Iterator[tuple[Location, str]]:
    """Split the file before every line at which ``begins`` matches."""
    text = read_text(file)
    begin, number = 0, 1
    line_starts = [0, *(match.end() for match in re.finditer("\n", text) if match.end() < len(text))]
    for line, start in enumerate(line_starts, 1):
        if begins.match(text, start) and text[begin:start].strip():
            yield Location(file.name, number), text[begin:start]
            begin, number = start, line
    yield Location(file.name, number), text[begin:]


def _paragraphs(file: File) -> Iterator[tuple[Location, str]]:
    """Split the file at blank lines."""
    paragraph: list[str] = []
    first = Location(file.name, 1)
    for where, line in located_lines(file):
        if line.strip():
            first = first if paragraph else where
            paragraph.append(line)
        elif paragraph:
            yield first, "\n".join(paragraph)
            paragraph = []
    if paragraph:
        yield first, "\n".join(paragraph)
