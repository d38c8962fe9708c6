"""What runs share whose model reads texts and whose heads answer: nothing is written."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from heedful.data.batch import Batch
from heedful.data.own_table import OwnTable, own_table
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded, Filter, Limit, keep
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.errors import RequestError
from heedful.models.registry import build_reader
from heedful.runs.kind import Kind, Log, Prepared, Rows
from heedful.runs.measuring import Batches, Validator, micro_batch
from heedful.runs.vectors import fill_vectors
from heedful.runs.warm_start import own_tokenizer
from heedful.tasks.texts import TEXT, WITH_CLASS, Template, fitted
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.training.feed import PlannedData
from heedful.training.step import Step


class EncoderKind(Kind):
    """See `heedful.runs.kind.Kind`. Rows have texts and one answer; the processor has one tokenizer."""

    scored_by_writing = False
    own_data = ("table",)
    shorter = "lower model.max_length"

    readable: ClassVar[tuple[str, ...]]
    """All columns that may hold text."""

    answer: ClassVar[str]
    """The column of the answer."""

    measures: ClassVar[Mapping[str, str]]
    """What validation measures, and of which term it is the mean."""

    @abstractmethod
    def texts(self, recipe: Any) -> tuple[str, ...]:
        """The columns that hold text."""

    @abstractmethod
    def heads(self, recipe: Any, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """What the model needs besides its pooling."""

    @abstractmethod
    def processor(self, recipe: Any, tokenizer: Tokenizer, rows: Rows) -> Any:
        """All that is learned, the tokenizer being known."""

    @abstractmethod
    def ids(
        self, recipe: Any, processor: Any, rows: Iterable[LocatedRow[Row]], report: DataReport
    ) -> Iterator[Encoded]:
        """Each row that can be encoded, under the names of its columns."""

    @abstractmethod
    def limits(self, recipe: Any) -> Sequence[Limit]:
        """What the model reads of a row; what is over is cut, dropped or refused as the filter says."""

    @abstractmethod
    def n_answers(self, processor: Any) -> int:
        """One more than the greatest id by which answers are kept."""

    @abstractmethod
    def batches(self, recipe: Any, processor: Any, store: TokenStore) -> Batches:
        """Of the ids of training or validation."""

    def columns(self, recipe: Any) -> tuple[str, ...]:
        """Texts and answer."""
        return (*self.texts(recipe), self.answer)

    def inputs(self, recipe: Any) -> tuple[str, ...]:
        """The texts."""
        return self.texts(recipe)

    def model(self, recipe: Any, sizes: Sequence[int]) -> nn.Module:
        """What reads the texts, with the heads of the task."""
        reader: Any = build_reader(recipe.model, sizes[0])
        reader.heads.update(self.heads(recipe, sizes))
        return reader

    def learn(self, recipe: Any, rows: Rows) -> Any:
        """A tokenizer for all texts, and the rest of the processor.

        Raises:
            DataError: the rows do not give what is needed.
        """
        found = (row.row[column] for row in rows() for column in self.texts(recipe))
        texts = (" ".join(text) if isinstance(text, list) else text for text in found)
        return self.processor(recipe, own_tokenizer(recipe, TEXT, texts), rows)

    def begin(self, recipe: Any, processor: Any, model: Any, log: Log) -> None:
        """Word vectors, where there are some."""
        fill_vectors(recipe, {TEXT: processor.tokenizer}, model, log)

    def report(self, processor: Any) -> DataReport:
        """Counts unknown tokens."""
        return DataReport(dict.fromkeys(self.readable, processor.tokenizer.specials.unknown))

    def encode(
        self, recipe: Any, processor: Any, rows: Iterable[LocatedRow[Row]], report: DataReport
    ) -> Iterator[Encoded]:
        """What passes the filter, as far as the model reads it."""
        found, filter = self.ids(recipe, processor, rows, report), recipe.data.filter
        yield from keep(found, _of_texts(filter, self.texts(recipe)), report, limits=self.limits(recipe))
        del report.columns[self.answer]  # its lengths say nothing

    def n_ids(self, recipe: Any, processor: Any) -> Mapping[str, int]:
        """Those of the vocabulary, and of answers."""
        texts = dict.fromkeys(self.texts(recipe), processor.tokenizer.vocab_size)
        return {**texts, self.answer: self.n_answers(processor)}

    def feed(self, recipe: Any, prepared: Prepared) -> PlannedData:
        """Neighbours in length."""
        make = self.batches(recipe, prepared.processor, prepared.train)
        return PlannedData(
            lengths=make.lengths,
            make=make,
            tokens_per_update=recipe.training.tokens_per_update,
            seed=recipe.training.seed,
        )

    def validator(self, recipe: Any, prepared: Prepared, step: Step) -> Validator:
        """Means of the terms of the loss."""
        make = self.batches(recipe, prepared.processor, prepared.valid)
        return Validator(step, make, micro_batch(recipe), self.measures)

    def source_of(self, recipe: Any, files: Sequence[Path]) -> OwnTable:
        """A table with a header, or one like that to train on, or JSON lines, with the task's columns.

        Of a run that learned from CoNLL's form, a file of that form.
        """
        if len(files) != 1:
            raise RequestError(
                f"a run of the task {recipe.task.kind} is scored on one table (--table FILE), "
                f"not on {len(files)} files"
            )
        return own_table(files[0], self.columns(recipe), like=recipe.data.train)


class TextBatches:
    """`heedful.runs.measuring.Batches` of texts, or pairs, with one answer each; long ones are cut.

    Args:
        store: the ids.
        columns: of the texts.
        answer: the column of the answer.
        longest: the most tokens of a sequence.
        frame: the special tokens around the texts.
        collate: makes a batch of texts, the ids of their answers, and the numbers of the samples.
    """

    def __init__(
        self,
        store: TokenStore,
        columns: Sequence[str],
        answer: str,
        longest: int,
        frame: Template,
        collate: Callable[[Sequence[Any], Sequence[Any], Sequence[int]], Batch],
    ) -> None:
        self.store, self.columns, self.answer = store, columns, answer
        self.longest, self.frame, self.collate = longest, frame, collate
        tokens = sum(store.lengths(column) for column in columns)
        self.lengths: Lengths = np.clip(tokens + frame.n_specials(len(columns)), 1, longest)

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """The batch of some rows."""
        rows = self.store.gather(samples)
        texts = zip(*(rows[column] for column in self.columns), strict=True)
        return self.collate(
            [fitted(parts, self.longest, self.frame) for parts in texts], rows[self.answer], samples
        )


def made_up(vocab_size: int, n: int, length: int, n_texts: int, frame: Template = WITH_CLASS) -> Batch:
    """``n`` sequences of about ``length`` tokens, with as many texts each, for timing."""
    draw = np.random.default_rng(0)
    around = frame.n_specials(n_texts)
    shares = [max(0, length - around + (0, -1, 1)[i % 3]) for i in range(n)]
    parts = [
        fitted(
            [draw.integers(len(SPECIALS), vocab_size, -(-share // n_texts))] * n_texts, share + around, frame
        )
        for share in shares
    ]
    return frame(parts)


def _of_texts(filter: Filter, columns: Sequence[str]) -> Filter:
    """The filter, whose limit of all columns is one of texts alone."""
    if not isinstance(filter.max_length, int):
        return filter
    return filter.model_copy(update={"max_length": dict.fromkeys(columns, filter.max_length)})
