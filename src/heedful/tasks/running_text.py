"""Tasks that learn from running text in the column ``text``: documents end to end, read in windows."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from heedful.data.lines import File
from heedful.data.report import ColumnCounts, DataReport, Encoded
from heedful.data.sources import LocatedRow, Row
from heedful.data.text import TEXT, TextSource
from heedful.data.user_files import UserTable, form_of, user_table
from heedful.data.user_tables import Wanted
from heedful.errors import DataError
from heedful.recipes import schema
from heedful.tasks.base import RowReader, Task
from heedful.tasks.inputs.processor import TextProcessor
from heedful.tasks.prediction import Progress
from heedful.tasks.pretrained import load_or_train_tokenizer
from heedful.text.parts import encode_long, split_text


class Tokenization(schema.Tokenization):
    """As in other tasks, but without Moses, which loses the line ends and spaces of running text."""

    @model_validator(mode="after")
    def _keeps_spaces(self) -> "Tokenization":
        if self.text.moses is not None:
            raise ValueError(
                "text.moses is not supported here (it loses line ends and spaces of running text); remove it"
            )
        return self


class RunningTextRecipe(schema.Recipe):
    """A recipe of such a task.

    Args:
        pretrained: word vectors that the embedding begins with.
    """

    tokenizer: Tokenization
    pretrained: schema.TextVectorsConfig = schema.TextVectorsConfig()


class RunningTextTask(Task):
    """A task that learns from running text. Every document is followed by an end token."""

    Processor = TextProcessor

    recipe: RunningTextRecipe
    processor: TextProcessor

    def make_processor(self, read_rows: RowReader) -> TextProcessor:
        """Train a tokenizer on all documents, long ones in pieces, or load that of the run to start from."""
        pieces = (piece for row in read_rows() for piece in split_text(row.row[TEXT]))
        return TextProcessor(load_or_train_tokenizer(self.recipe, self.recipe.tokenizer, TEXT, pieces))

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of all documents; an empty one is its end token alone."""
        yield from self._encode(rows, report)
        if not report.columns[TEXT].tokens:
            raise DataError("the data contain no text")

    def _encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of the documents, in order; a long one in pieces, the last with its end token."""
        tokenizer = self.processor.text
        counts = report.columns.setdefault(TEXT, ColumnCounts())
        for located in rows:
            length = 0
            for piece in encode_long(tokenizer, located.row[TEXT]):
                length += len(piece)
                counts.unknown += piece.count(tokenizer.specials.unknown)
                yield LocatedRow({TEXT: piece}, located.location)
            yield LocatedRow({TEXT: [tokenizer.specials.end]}, located.location)
            counts.lengths[length] += 1
            report.rows += 1
            report.kept += 1

    def spells(self, report: DataReport) -> bool:
        """Return whether the ids that a report counts decode to the very text that they encode."""
        return self.processor.text.is_lossless_without_unknown and not report.columns[TEXT].unknown

    def source_from(self, files: Sequence[Path]) -> TextSource | UserTable:
        """Return a source of text files, with documents like those of the training; or a file of records."""
        like = self.recipe.data.train
        if len(files) == 1 and files[0].is_file():
            form = form_of(File(files[0], str(files[0])), Wanted((TEXT,), like=like))
            if form != "lines":
                return user_table(files[0], (TEXT,), like)
        paths = [str(path.resolve()) for path in files]
        if isinstance(like, TextSource):
            return like.model_copy(update={"paths": paths, "skip": 0, "limit": None})
        return TextSource(paths=paths)

    def stream(self, split: str, rows: Iterable[LocatedRow[Row]]) -> tuple[NDArray[np.int64], DataReport]:
        """Return the ids of a data set to score, documents end to end, and their report.

        Raises:
            DataError: if there is no text.
        """
        report = self.new_report()
        pieces = [row.row[TEXT] for row in self._encode(rows, report)]
        if not report.columns[TEXT].tokens:
            raise DataError(f"{split}: no text to score; check that the data set is not empty")
        return np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces]), report


def rows_in_proportion(progress: Progress, n_rows: int, n_steps: int) -> Progress:
    """Return a function of steps just done, which reports as large a share of the rows.

    Windows of running text begin and end within rows, so there is no row for a window.
    """
    n_done = 0

    def report(n: int) -> None:
        nonlocal n_done
        before, after = (n_rows * steps // n_steps for steps in (n_done, n_done + n))
        n_done += n
        progress(after - before)

    return report
