"""Sentences with one word a line, in the formats of the CoNLL shared tasks and Universal Dependencies."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from heedful.data.files import Paths, in_turn
from heedful.data.lines import LocatedRow, Location, Row, TextFile, lines
from heedful.data.range import Ranged
from heedful.data.tables import Index, too_few
from heedful.errors import DataError

DOCUMENT = "-DOCSTART-"
"""The first field of a line that only marks the beginning of a document."""

NO_WORD = re.compile(r"\d+[-.]\d+")
"""First field of CoNLL-U lines that are not words: ranges (multiword tokens) and empty nodes."""


class ConllSource(Ranged):
    """One word a line with its tags in fields, blank lines between sentences; a row for each sentence.

    Args:
        paths: one file or several, read one after another; plain or ``.gz``.
        columns: the field number of each column, from 0: ``{words: 0, tags: 3}`` for CoNLL-2003,
            ``{words: 1, tags: 3}`` for the parts of speech of CoNLL-U.
        universal: CoNLL-U format: fields are separated by tabs, lines that begin with ``#`` are comments, and
            ranges (``1-2``) and empty nodes (``1.1``) are skipped. Otherwise fields are separated by tabs or
            spaces, and ``-DOCSTART-`` lines are skipped.
    """

    kind: Literal["conll"] = "conll"
    paths: Paths
    columns: dict[str, Index] = Field(min_length=1)
    universal: bool = False


def open_conll(config: ConllSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield rows with a list of texts, one for each word, in each column, located by their first word.

    Raises:
        DataError: if a file is missing (at once) or unreadable, or a line has too few fields.
    """
    return in_turn(config.paths, root, lambda file: _sentences(file, config))


def _sentences(file: TextFile, config: ConllSource) -> Iterator[LocatedRow[Row]]:
    sentence: list[LocatedRow[Row]] = []
    for number, line in enumerate(lines(file), start=1):
        if line.strip():
            sentence += _word(line, Location(file.name, number), config)
        elif sentence:
            yield _joined(sentence)
            sentence = []
    if sentence:
        yield _joined(sentence)


def _word(line: str, where: Location, config: ConllSource) -> Iterator[LocatedRow[Row]]:
    """Yield the fields of a line if it is a word."""
    fields = line.split("\t") if config.universal else line.split()
    if config.universal and (line.startswith("#") or NO_WORD.fullmatch(fields[0])):
        return
    if not config.universal and fields[0] == DOCUMENT:
        return
    needed = max(config.columns.values())
    if len(fields) <= needed:
        raise DataError(too_few(where, fields, needed))
    yield LocatedRow({column: fields[number] for column, number in config.columns.items()}, where)


def _joined(words: list[LocatedRow[Row]]) -> LocatedRow[Row]:
    columns = words[0].row
    return LocatedRow({column: [word.row[column] for word in words] for column in columns}, words[0].where)
