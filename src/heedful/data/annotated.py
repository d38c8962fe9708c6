"""Formats of annotated data sets: CoNLL (one word a line), SQuAD (JSON) and IDX (arrays of bytes)."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import UInt8
from pydantic import Field, PrivateAttr, model_validator

from heedful.data.conll_lines import (
    COMMENT,
    DOCUMENT,
    Block,
    CommentFinder,
    FieldValues,
    blocks,
    fields_of,
)
from heedful.data.delimited import first_missing, shared_field, too_few_fields
from heedful.data.images import LazyImage
from heedful.data.json_lines import field_at, texts_at
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
    read_all,
    read_bytes,
    read_text,
)
from heedful.errors import DataError
from heedful.typing import JsonObject

NO_WORD = re.compile(r"\d+[-.]\d+")
"""First field of CoNLL-U lines that are not words: ranges (multiword tokens) and empty nodes."""

N_UNIVERSAL = 10
"""Number of fields of a line of CoNLL-U."""

N_COMPARED = 100
"""So many blocks at the beginning of a CoNLL file show which fields its words have."""

_WORDS = "words"
"""The column of words; the others have their tags."""

TAG = re.compile(r"[BIESLUMW]-.+|[^a-z\s]+")
UPPER_CASE = re.compile("[A-Z]")

FEWEST_LINES = 6
"""From so many lines on, fields with few different values are tags."""

MOST_WORDS = 1.5
"""A field of a CoNLL file has at most so many words on average; few words contain a space."""


class SentenceRow(dict[str, Any]):
    """The columns of a sentence of a CoNLL file.

    Args:
        columns: a list of texts for each.
        comments: the locations of lines near it that were skipped because they look like comments.
    """

    def __init__(self, columns: Mapping[str, list[str]], comments: Sequence[Location]) -> None:
        super().__init__(columns)
        self.comments = comments


class ConllSource(Source):
    """One word a line with its tags in fields, blank lines between sentences; a row for each sentence.

    A line that contains a tab is split at tabs, any other at spaces. Spaces at the ends of a field do not
    count; other white space, such as a no-break space, is part of a word. A line of white space alone is
    blank. ``-DOCSTART-`` lines are skipped.

    Args:
        paths: one file or several, read one after another; plain or compressed.
        columns: the field number of each column, from 0: ``{words: 0, tags: 3}`` for CoNLL-2003,
            ``{words: 1, tags: 3}`` for the parts of speech of CoNLL-U. Negative numbers count from the end:
            ``{words: 0, tags: -1}`` reads the last field.
        comments: whether lines that begin with ``#`` are comments: ``always``, ``never`` (``#`` and
            ``#topic`` are words), or ``auto``: those are comments whose fields differ from the words of their
            sentence in number or separator, and those before the first word of a sentence whose tags no
            other line of the file has.
        universal: CoNLL-U format: fields are separated by tabs, lines that begin with ``#`` are comments, and
            ranges (``1-2``) and empty nodes (``1.1``) are skipped.
    """

    kind: Literal["conll"] = "conll"
    paths: Paths
    columns: dict[str, int] = Field(min_length=1)
    comments: Literal["auto", "always", "never"] = "auto"
    universal: bool = False
    _tag_fields: tuple[int, ...] | None = PrivateAttr(default=None)
    _known_tags: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="after")
    def _universal_has_comments(self) -> "ConllSource":
        if self.universal and self.comments == "never":
            raise ValueError(
                "comments=never is not supported with universal=true: in CoNLL-U, lines that begin with # "
                "are comments; remove one of them"
            )
        return self

    def open(self, root: Path) -> Rows:
        """Yield a `SentenceRow` with a list of texts, one for each word, in each column.

        Rows are located by their first word.
        """
        return read_all(self.paths, root, self._sentences)

    @property
    def tag_fields(self) -> tuple[int, ...]:
        """The numbers of the fields with tags, as far as they are known."""
        if self._tag_fields is not None:
            return self._tag_fields
        return tuple(number for column, number in self.columns.items() if column != _WORDS)

    def comparing(self, tag_fields: Iterable[int], known_tags: Iterable[str]) -> "ConllSource":
        """Return the source, which finds comments by fields that it need not have as columns.

        Args:
            tag_fields: the numbers of the fields with tags.
            known_tags: the tags of a run.
        """
        source = self.model_copy()
        source._tag_fields, source._known_tags = tuple(tag_fields), frozenset(known_tags)
        return source

    def _sentences(self, file: File) -> Rows:
        sentence, comments = list[LocatedRow[Row]](), list[Location]()
        for block, skipped in self._without_comments(file):
            words = [word for location, line in block for word in self._word(line, location)]
            if words and sentence:
                yield _joined(sentence, comments)
                comments = []
            sentence = words or sentence
            comments += skipped
        if sentence:
            yield _joined(sentence, comments)

    def _without_comments(self, file: File) -> Iterator[tuple[Block, list[Location]]]:
        """Yield the blocks of a file without comments, and the locations of comments that ``auto`` found."""
        all_blocks = blocks(located_lines(file))
        if self.comments == "never":
            yield from ((block, []) for block in all_blocks)
        elif self.comments == "always" or self.universal:
            for block in all_blocks:
                yield [entry for entry in block if not entry[1].startswith(COMMENT)], []
        else:
            head = list(islice(all_blocks, N_COMPARED))
            again = (lambda: blocks(located_lines(file))) if file.can_be_read_again else None
            find_comments = CommentFinder(head, again, FieldValues(self.tag_fields, self._known_tags))
            for block in chain(head, all_blocks):
                flags = find_comments(block)
                yield (
                    [entry for entry, flag in zip(block, flags, strict=True) if not flag],
                    [location for (location, _), flag in zip(block, flags, strict=True) if flag],
                )

    def _word(self, line: str, location: Location) -> Rows:
        """Yield the columns of a line if it is a word.

        Raises:
            DataError: if it has no field for a column, or an empty one, or the same field for two columns.
        """
        fields = [line] if self.universal and "\t" not in line else fields_of(line)
        if self.universal and NO_WORD.fullmatch(fields[0]):
            return
        if not self.universal and fields[0] == DOCUMENT:
            return
        if problem := self._problem(location, fields):
            raise DataError(problem)
        yield LocatedRow({column: fields[number] for column, number in self.columns.items()}, location)

    def _problem(self, location: Location, fields: Sequence[str]) -> str | None:
        """Return why the columns cannot be read from these fields; None if they can."""
        numbers, hint = self.columns, ""
        if self.universal and len(fields) == 1:
            hint = "; fields of CoNLL-U are separated by tabs; for other formats, remove `universal: true`"
        if (missing := first_missing(fields, numbers.values())) is not None:
            column = next(column for column, number in numbers.items() if number == missing)
            if len(fields) == 1 == len(numbers) and not self.universal:  # words are read, but no tags
                hint = f"; if lines are words alone, read field 0: --column {column}=0"
            elif len(fields) > 1:
                hint = hint or f"; if another field has the {column}, name its number: --column {column}=N"
            return too_few_fields(location, fields, missing, column) + hint
        if problem := shared_field(location, fields, numbers, hint):
            return problem
        if empty := next((column for column, number in numbers.items() if not fields[number].strip()), None):
            return (
                f"{location}: {empty} (field number {numbers[empty]}) is empty; write its value, or remove "
                "the line"
            )
        has_ids = 0 not in numbers.values() and len(fields) == N_UNIVERSAL
        if has_ids and not self.universal and NO_WORD.fullmatch(fields[0]):
            return (
                f"{location}: in CoNLL-U, {fields[0]} is not a word, but a range or an empty node; set "
                "`universal: true`"
            )
        return None


def _joined(words: Sequence[LocatedRow[Row]], comments: Sequence[Location]) -> LocatedRow[Row]:
    columns = {column: [word.row[column] for word in words] for column in words[0].row}
    return LocatedRow(SentenceRow(columns, comments), words[0].location)


SKIPPED_COMMENTS = "lines that begin with # are skipped as comments; `comments: never` reads them as words"
"""The finding in reports."""


def note_comments(
    rows: Iterable[LocatedRow[Row]], note: Callable[[Location], None]
) -> Iterator[LocatedRow[Row]]:
    """Call ``note`` with the location of each line that looked like a comment, and pass the rows on."""
    for row in rows:
        if isinstance(row.row, SentenceRow):
            for location in row.row.comments:
                note(location)
        yield row


def looks_like_conll(lines: Sequence[str]) -> bool:
    """Return whether a file that begins with these lines has a word in each line, usually with its tags.

    Then all lines but comments and blank ones have the same number of fields, and a blank line ends a
    sentence, not every line. Fields are not texts of several words, and one of them, not the first, is
    always like a tag: a name in upper case, or with a prefix of span tags, or often the same. Without tags,
    blank lines are between sentences of single words, one a line. A file that begins with ``-DOCSTART-`` is
    CoNLL in any case.
    """
    if next(filter(str.strip, lines), "").startswith(DOCUMENT):
        return True
    all_blocks = [*blocks((Location("", number), line) for number, line in enumerate(lines, 1))]
    find_comments = CommentFinder(all_blocks, None, FieldValues())
    sentences = [
        [
            fields_of(line)
            for (_, line), is_comment in zip(block, find_comments(block), strict=True)
            if not is_comment and not line.startswith(DOCUMENT)
        ]
        for block in all_blocks
    ]
    words = [fields for sentence in sentences for fields in sentence]
    if (
        all(line.strip() for line in lines)
        or len({len(fields) for fields in words}) != 1
        or max(map(len, sentences)) == 1
    ):
        return False
    columns = [*zip(*words, strict=True)]
    if len(columns) == 1:
        return len(list(filter(None, sentences))) > 1
    n_words = max(sum(len(field.split()) for field in column) for column in columns)
    return n_words <= MOST_WORDS * len(words) and any(map(_are_tags, columns[1:]))


def _are_tags(values: Sequence[str]) -> bool:
    has_tags = all(map(TAG.fullmatch, values)) and any(map(UPPER_CASE.search, values))
    return has_tags or (len(values) >= FEWEST_LINES and 2 * len({*values}) <= len(values))


class SquadSource(Source):
    """A row for each question: ``question``, ``passage``, and the lists ``answer`` and ``start``.

    Questions are nested in paragraphs and paragraphs in articles, as in the published files. A question may
    have several correct answers, or none (``is_impossible``), which gives empty lists.

    Args:
        paths: one file or several, read one after another; plain or compressed.
    """

    # Source: Rajpurkar et al. 2016 and 2018.

    fixed_columns: ClassVar[tuple[str, ...]] = ("question", "passage", "answer")
    fixed_lists: ClassVar[tuple[str, ...]] = ("answer",)
    """Those of them that are lists."""
    kind: Literal["squad"] = "squad"
    paths: Paths

    def open(self, root: Path) -> Rows:
        """Yield the questions of the files, located by their number in the file."""
        return read_all(self.paths, root, _questions)


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
        columns: the file of each column; plain or compressed. A file with three axes contains images, one
            with one axis labels.
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
