"""Text files: aligned lines, and documents of running text."""

import re
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from heedful import limits
from heedful.data.lines import (
    File,
    LocatedRow,
    Location,
    Paths,
    Rows,
    Source,
    expand,
    files_in,
    find,
    find_all,
    located_lines,
    raw_lines,
    read_text,
)
from heedful.errors import DataError
from heedful.files import has_suffix

TEXT = "text"
"""The one column of running text."""


class FilesSource(Source):
    """Line n of every column belongs to row n.

    Args:
        columns: for each column, one path or several, read one after another; plain or compressed.
    """

    kind: Literal["files"] = "files"
    columns: dict[str, Paths] = Field(min_length=1)

    def open(self, root: Path) -> Rows:
        """Yield rows that are located by the line of their first column."""
        return _aligned(self._files(root))

    def require_aligned(self, root: Path) -> None:
        """Count the lines of all files.

        Raises:
            DataError: if the columns have different numbers of lines.
        """
        files = self._files(root)
        counts = {sum(1 for file in column for _ in raw_lines(file)) for column in files.values()}
        if len(counts) > 1:
            raise DataError(_unequal_message(files))

    def _files(self, root: Path) -> dict[str, list[File]]:
        return {column: find_all(paths, root) for column, paths in self.columns.items()}


def _aligned(files_by_column: dict[str, list[File]]) -> Rows:
    columns = (chain.from_iterable(map(located_lines, files)) for files in files_by_column.values())
    for entries in zip_longest(*columns):
        if None in entries:
            raise DataError(_unequal_message(files_by_column))
        row = {column: text for column, (_, text) in zip(files_by_column, entries, strict=True)}
        yield LocatedRow(row, entries[0][0])


def _unequal_message(files_by_column: dict[str, list[File]]) -> str:
    parts = []
    for column, files in files_by_column.items():
        counts = [sum(1 for _ in raw_lines(file)) for file in files]
        detail = " + ".join(f"{file.name} {n_lines}" for file, n_lines in zip(files, counts, strict=True))
        parts.append(f"{column} has {sum(counts)} lines ({detail})")
    return f"the columns are not line-aligned: {', '.join(parts)}"


class TextSource(Source):
    """Files of text, each document a row with the column ``text``.

    Args:
        paths: a file or folder, or several, read one after another; plain or compressed. In a folder, all
            files that end in one of ``suffixes`` are read, including subfolders, sorted by name; hidden
            files and folders (``.name``) are ignored.
        documents: what a document is: a whole ``file``, a ``line``, or the text between ``blank-lines``. The
            line ends (and blank lines) that separate documents are not part of them.
        begins: with ``documents: file``, splits files into documents: a Python regular expression for the
            beginning of a document. It is matched at the beginning of each line, and may match across lines.
            Text before the first match is a document too or, if it is blank, part of the first; no text is
            dropped.
        suffixes: the suffixes of the files to read in folders, in upper or lower case, optionally followed by
            ``.gz`` or another suffix of compressed files.
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
        paths = [self.paths] if isinstance(self.paths, str) else self.paths
        files = [file for path in paths for file in self._files(path, root)]
        return (
            LocatedRow({TEXT: text}, location) for file in files for location, text in self._documents(file)
        )

    def _files(self, recipe_path: str, root: Path) -> list[File]:
        """Find the file, or the files in the folder, at a path in a recipe."""
        name = expand(recipe_path)
        folder = root / name
        if not folder.is_dir():
            return [find(recipe_path, root)]
        files = files_in(File(folder, name))
        matching = [file for file in files if has_suffix(file.path.name, *self.suffixes)]
        if not matching:
            endings = " or ".join(self.suffixes)
            raise DataError(
                f"{folder}: no file in this folder ends in {endings}; set the key `suffixes` of the source"
            )
        return matching

    def _documents(self, file: File) -> Iterator[tuple[Location, str]]:
        if self.begins is not None:
            return _split_before_matches(file, re.compile(self.begins, re.MULTILINE))
        if self.documents == "file":
            return iter([(Location(file.name, 1), read_text(file))])
        return located_lines(file) if self.documents == "line" else _paragraphs(file)


def _split_before_matches(file: File, pattern: re.Pattern[str]) -> Iterator[tuple[Location, str]]:
    """Split the file before every line at which ``pattern`` matches."""
    text = read_text(file)
    begin, first_line = 0, 1
    line_starts = [0, *(match.end() for match in re.finditer("\n", text) if match.end() < len(text))]
    for line, start in enumerate(line_starts, 1):
        if pattern.match(text, start) and text[begin:start].strip():
            yield Location(file.name, first_line), text[begin:start]
            begin, first_line = start, line
    yield Location(file.name, first_line), text[begin:]


def _paragraphs(file: File) -> Iterator[tuple[Location, str]]:
    """Split the file at blank lines.

    Raises:
        DataError: if a document is longer than `heedful.limits.LONGEST_DOCUMENT`.
    """
    paragraph: list[str] = []
    first, n_characters = Location(file.name, 1), 0
    for location, line in located_lines(file):
        if line.strip():
            first = first if paragraph else location
            paragraph.append(line)
            n_characters += len(line) + 1
            if n_characters > limits.LONGEST_DOCUMENT:
                raise DataError(
                    f"{first}: the document has more than {limits.LONGEST_DOCUMENT:,} characters; separate "
                    "documents by blank lines, or set `documents: line`"
                )
        elif paragraph:
            yield first, "\n".join(paragraph)
            paragraph, n_characters = [], 0
    if paragraph:
        yield first, "\n".join(paragraph)
