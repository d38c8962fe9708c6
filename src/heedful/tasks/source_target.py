"""Pairs of texts: the columns ``source`` and ``target``, and a tokenizer for each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from heedful.data.report import Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.tasks.processor import TaskProcessor
from heedful.tasks.texts import encoded
from heedful.text.tokenizer import Tokenizer

SOURCE, TARGET = COLUMNS = ("source", "target")


@dataclass(frozen=True)
class Tokenizers(TaskProcessor):
    """One tokenizer for each side; both may share a subword model."""

    source: Tokenizer
    target: Tokenizer

    def encode(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[Encoded]:
        """Yield the ids of both columns of each row, in order."""
        for row, ids in encoded({SOURCE: self.source, TARGET: self.target}, rows):
            yield LocatedRow(ids, row.where)
