"""Formats of annotated data sets: CoNLL (one word a line), SQuAD (JSON) and IDX (arrays of bytes)."""

import json
import math
import re
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from pydantic import Field

from heedful.data.images import LazyImage
from heedful.data.lines import (
    File,
    LocatedRow,
    Location,
    Paths,
    Row,
    Rows,
    Source,
    find,
    located_lines,
    read_bytes,
    read_text,
    rows_of_all,
)
from heedful.data.text import field_at, first_missing, texts_at, too_few_fields
from heedful.errors import DataError
from heedful.limits import check_count
from heedful.typing import JsonObject

DOCUMENT = "-DOCSTART-"
"""The first field of a line that only marks the beginning of a document."""

NO_WORD = re.compile(r"\d+[-.]\d+")
"""First field of CoNLL-U lines that are not words: ranges (multiword tokens) and empty nodes."""


class ConllSource(Source):
    """One word a line with its tags in fields, blank lines between sentences; a row for each sentence.

    Args:
        paths: one file or several, read one after another; plain or ``.gz``.
        columns: the field number of each column, from 0: ``{words: 0, tags: 3}`` for CoNLL-2003,
            ``{words: 1, tags: 3}`` for the parts of speech of CoNLL-U. Negative numbers count from the end:
            ``{words: 0, tags: -1}`` reads the last field.
        universal: CoNLL-U format: fields are separated by tabs, lines that begin with ``#`` are comments, and
            ranges (``1-2``) and empty nodes (``1.1``) are skipped. Otherwise fields are separated by tabs or
            spaces, and ``-DOCSTART-`` lines are skipped.
    """

    kind: Literal["conll"] = "conll"
    paths: Paths
    columns: dict[str, int] = Field(min_length=1)
    universal: bool = False

    def open(self, root: Path) -> Rows:
        """Yield rows with a list of texts, one for each word, in each column, located by their first word."""
        return rows_of_all(self.paths, root, self._sentences)

    def _sentences(self, file: File) -> Rows:
        sentence: list[LocatedRow[Row]] = []
        for location, line in located_lines(file):
            if line.strip():
                sentence += self._word(line, location)
                check_count(sentence, location)
            elif sentence:
                yield _joined(sentence)
                sentence = []
        if sentence:
            yield _joined(sentence)

    def _word(self, line: str, location: Location) -> Rows:
        """Yield the fields of a line if it is a word."""
        fields = line.split("\t") if self.universal else line.split()
        if self.universal and (line.startswith("#") or NO_WORD.fullmatch(fields[0])):
            return
        if not self.universal and fields[0] == DOCUMENT:
            return
        if (missing := first_missing(fields, self.columns.values())) is not None:
            hint = "; fields of CoNLL-U are separated by tabs" if self.universal and "\t" not in line else ""
            column = next(column for column, number in self.columns.items() if number == missing)
            raise DataError(too_few_fields(location, fields, missing, column) + hint)
        yield LocatedRow({column: fields[number] for column, number in self.columns.items()}, location)


def _joined(words: list[LocatedRow[Row]]) -> LocatedRow[Row]:
    columns = words[0].row
    return LocatedRow({column: [word.row[column] for word in words] for column in columns}, words[0].location)


class SquadSource(Source):
    """A row for each question: ``question``, ``passage``, and the lists ``answer`` and ``start``.

    Questions are nested in paragraphs and paragraphs in articles, as in the published files. A question may
    have several correct answers, or none (``is_impossible``), which gives empty lists.

    Args:
        paths: one file or several, read one after another; plain or ``.gz``.
    """

    # Source: Rajpurkar et al. 2016 and 2018.

    kind: Literal["squad"] = "squad"
    paths: Paths

    def open(self, root: Path) -> Rows:
        """Yield the questions of the files, located by their number in the file."""
        return rows_of_all(self.paths, root, _questions)


def _questions(file: File) -> Rows:
    try:
        root = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file.name}: invalid JSON ({error})") from None
    question_number = 0
    for article in _entries(root, "data", file.name):
        for paragraph in _entries(article, "paragraphs", file.name):
            for question in _entries(paragraph, "qas", file.name):
                question_number += 1
                location = Location(f"{file.name}, question {question_number}")
                answers = (
                    [] if question.get("is_impossible") else _entries(question, "answers", str(location))
                )
                row = {
                    "question": field_at(question, "question", location),
                    "passage": field_at(paragraph, "context", location),
                    "answer": [text for answer in answers for text in texts_at(answer, "text", location)],
                    "start": [
                        start for answer in answers for start in texts_at(answer, "answer_start", location)
                    ],
                }
                yield LocatedRow(row, location)


def _entries(record: object, field: str, name: str) -> list[JsonObject]:
    """Return the objects in a list field of an object.

    Raises:
        DataError: if there is no such list.
    """
    entries = record.get(field) if isinstance(record, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(
            f"{name}: expected a list {field!r} of objects; SQuAD files nest the lists data, paragraphs, qas"
        )
    return entries


class IdxSource(Source):
    """Item n of every file belongs to row n.

    Args:
        columns: the file of each column; plain or ``.gz``. A file with three axes contains images, one with
            one axis labels.
        names: the label names, in the order of their indices; null: the indices are the names.
    """

    kind: Literal["idx"] = "idx"
    columns: dict[str, str] = Field(min_length=1)
    names: list[str] | None = Field(default=None, min_length=1)

    def open(self, root: Path) -> Rows:
        """Yield the rows of IDX files, located by their number in the first."""
        return self._rows({column: find(path, root) for column, path in self.columns.items()})

    def _rows(self, files: dict[str, File]) -> Rows:
        arrays = {column: _array(file) for column, file in files.items()}
        if len({len(items) for items in arrays.values()}) > 1:
            counts = ", ".join(f"{files[column].name} has {len(items):,}" for column, items in arrays.items())
            raise DataError(f"the files must have the same number of items: {counts}")
        first_name = next(iter(files.values())).name
        for row_number, items in enumerate(zip(*arrays.values(), strict=True), 1):
            location = Location(first_name, row_number)
            yield LocatedRow(
                {c: self._item(x, location) for c, x in zip(arrays, items, strict=True)}, location
            )

    def _item(self, item: UInt8[np.ndarray, "..."], location: Location) -> LazyImage | str:
        if np.ndim(item) == 2:
            return LazyImage(item, str(location))
        if self.names is None:
            return str(item)
        if item >= len(self.names):
            raise DataError(f"{location}: label {item} has no name: `names` has {len(self.names)}")
        return self.names[item]


def _array(file: File) -> UInt8[np.ndarray, "..."]:
    """Read the array of an IDX file, the format of MNIST.

    Two zero bytes, the data type (8: unsigned bytes), the number of axes, the size of each axis (4 bytes,
    big-endian), the data. Source: LeCun's MNIST page.

    Raises:
        DataError: if it is not an IDX file of unsigned bytes, or its length does not match its header.
    """
    content = read_bytes(file)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(f"{file.name}: not an IDX file: it begins with {content[:4].hex(' ') or 'nothing'}")
    type_code, n_axes = content[2], content[3]
    if type_code != 8 or n_axes not in (1, 3):
        raise DataError(
            f"{file.name}: must contain unsigned bytes (0x08) with one axis (labels) or three (images), got "
            f"type {type_code:#04x} with {n_axes} axes"
        )
    start = 4 + 4 * n_axes
    shape = tuple(np.frombuffer(content[4:start].ljust(start - 4, b"\0"), dtype=">u4").tolist())
    n_values, expected = max(0, len(content) - start), math.prod(shape)
    if n_values != expected or len(content) < start:
        raise DataError(
            f"{file.name}: its header announces {expected:,} values, got {n_values:,}; it is truncated or "
            "damaged"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
