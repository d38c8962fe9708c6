"""Tasks whose model reads texts and whose heads answer: nothing is generated. Recipes, data and batches."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from pydantic import Field, model_validator
from torch import nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded, Filter, Limit, keep
from heedful.data.sources import LocatedRow, OwnTable, Row, own_table
from heedful.data.store import TokenStore
from heedful.errors import RequestError
from heedful.models.base import Model
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_reader
from heedful.recipes import schema
from heedful.tasks.base import Log, PreparedData, Rows, Task, TaskProcessor
from heedful.tasks.model_input import INPUT, Axis, ids_in, refuse_empty, text_axis
from heedful.tasks.texts import AS_DOCUMENTS, BARE, TEXT, WITH_CLASS, Template, fitted
from heedful.tasks.validation import Batches, Validator, micro_batch
from heedful.tasks.vectors import fill_vectors
from heedful.tasks.warm_start import own_tokenizer
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.update import PlannedData

# Recipes ------------------------------------------------------------------------------------------------

AnyReader = Annotated[EncoderConfig | LanguageModelConfig, Field(discriminator="kind")]
"""A model that reads a text: each token with all others, or with those before it."""


class DataConfig(schema.DataConfig):
    """Rows with texts and an answer, and what to do with those that cannot be used as they are.

    Args:
        filter: of texts that are too long or empty.
    """

    filter: Filter = Filter()

    @model_validator(mode="after")
    def _no_ratio(self) -> "DataConfig":
        if self.filter.max_ratio is not None:
            raise ValueError(
                "filter.max_ratio is not supported here (it compares a source with its target); remove it"
            )
        return self


class WholeDataConfig(DataConfig):
    """Rows that are read whole, in several windows if they are long."""

    @model_validator(mode="after")
    def _no_cut(self) -> "WholeDataConfig":
        if self.filter.max_length is not None:
            raise ValueError(
                "filter.max_length is not supported here (texts are read whole, in windows); remove it"
            )
        return self


class ValidationConfig(Config):
    """Every validation measures all validation rows; there is nothing to choose."""


class DecodingConfig(Config):
    """No text is generated, so there is nothing to decode."""


class EvaluationConfig(schema.EvaluationConfig):
    """``evaluate`` reports all scores of the task."""


class TextRecipe(schema.Recipe):
    """A recipe of such a task.

    Args:
        pretrained: word vectors that the embedding begins with.
    """

    data: DataConfig
    tokenizer: schema.Tokenization
    model: Any
    pretrained: schema.TextVectorsConfig = schema.TextVectorsConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig | None = None
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def pairs(self) -> bool:
        """Whether two texts are read together."""
        return False

    @property
    def frame(self) -> Template:
        """The special tokens around the texts."""
        return AS_DOCUMENTS if isinstance(self.model, LanguageModelConfig) else WITH_CLASS

    @property
    def room(self) -> int:
        """Tokens that the texts of a row may have together."""
        return int(self.model.longest) - self.frame.n_specials(1 + self.pairs)

    @property
    def longest_key(self) -> str:
        """The key that sets how long a sequence may be."""
        return "model.context" if isinstance(self.model, LanguageModelConfig) else "model.max_length"

    @model_validator(mode="after")
    def _has_room(self) -> "TextRecipe":
        if self.room < 1:
            raise ValueError(f"{self.longest_key}={self.model.longest} leaves no room for a text")
        if self.pairs and isinstance(self.model, EncoderConfig) and self.model.segments < 2:
            raise ValueError("model.segments must be 2 for pairs of texts (one for each text)")
        return self


class EncoderRecipe(TextRecipe):
    """A recipe about single tokens, which only an encoder reads with everything around them."""

    model: EncoderConfig


class WholeTextRecipe(TextRecipe):
    """A recipe about whole texts: a language model has read one at its last token."""

    model: AnyReader

    @property
    def frame(self) -> Template:
        """The special tokens around the texts; of a language model, as the task says."""
        return super().frame if self.task.framed else BARE

    @model_validator(mode="after")
    def _can_be_bare(self) -> "WholeTextRecipe":
        if not self.task.framed and isinstance(self.model, EncoderConfig):
            raise ValueError("task.framed=false is not supported by encoders, which need the class token")
        if not self.task.framed and self.pairs:
            raise ValueError(
                "task.framed=false is not supported for pairs (nothing would separate the texts)"
            )
        return self


# The task -----------------------------------------------------------------------------------------------


class TextTaskProcessor(TaskProcessor, Protocol):
    """A processor with one tokenizer, for all texts."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Of all texts."""
        ...


class TextTask(Task):
    """A task whose rows have texts and one answer."""

    recipe: TextRecipe
    processor: TextTaskProcessor

    answer: ClassVar[str]
    """The column of the answer."""

    texts_of_all: ClassVar[tuple[str, ...]]
    """All columns that may hold text, of whatever recipe."""

    validation_terms: ClassVar[Mapping[str, str]]
    """What validation measures, each as the mean of a term of the loss."""

    @property
    @abstractmethod
    def texts(self) -> tuple[str, ...]:
        """The columns that hold text."""

    def texts_of(self, rows: Iterable[LocatedRow[Row]]) -> list[dict[str, str]]:
        """Return the texts of each row, by column."""
        return [{column: str(row.row[column]) for column in self.texts} for row in rows]

    @abstractmethod
    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """The heads that the task adds to the model."""

    @abstractmethod
    def processor_with(self, tokenizer: Tokenizer, rows: Rows) -> TextTaskProcessor:
        """Make the processor around the tokenizer.

        Raises:
            DataError: if the rows do not give what is needed.
        """

    @abstractmethod
    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of each row that can be encoded, under the names of its columns."""

    @abstractmethod
    def limits(self) -> Sequence[Limit]:
        """What the model reads of a row; longer ones are cut, dropped or refused as the filter says."""

    @property
    @abstractmethod
    def n_answers(self) -> int:
        """One more than the greatest id of an answer."""

    @abstractmethod
    def batches(self, store: TokenStore) -> Batches:
        """Batches of the ids of training or validation rows."""

    def make_processor(self, rows: Rows) -> TextTaskProcessor:
        """A tokenizer for all texts, and the rest of the processor."""
        found = (row.row[column] for row in rows() for column in self.texts)
        texts = (" ".join(text) if isinstance(text, list) else text for text in found)
        return self.processor_with(own_tokenizer(self.recipe, TEXT, texts), rows)

    def new_report(self) -> DataReport:
        """Counts unknown tokens."""
        return DataReport(dict.fromkeys(self.texts_of_all, self.processor.tokenizer.specials.unknown))

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """What passes the filter, as far as the model reads it."""
        limit = _of_texts(self.recipe.data.filter, self.texts)
        yield from keep(self.encode_rows(rows, report), limit, report, limits=self.limits())
        del report.columns[self.answer]  # its lengths are meaningless

    def n_ids(self) -> Mapping[str, int]:
        """Those of the vocabulary, and of answers."""
        texts = dict.fromkeys(self.texts, self.processor.tokenizer.vocab_size)
        return {**texts, self.answer: self.n_answers}

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """An encoder or a language model, with the heads of the task."""
        sizes = self.processor.sizes if sizes is None else sizes
        reader = build_reader(self.recipe.model, sizes[0])
        reader.heads.update(self.heads(sizes))
        return reader

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Fill in pretrained word vectors, if the recipe names some."""
        fill_vectors(self.recipe, {TEXT: self.processor.tokenizer}, model, log)

    def training_data(self, data: PreparedData) -> PlannedData:
        """Batches of texts of similar lengths."""
        make = self.batches(data.train)
        training = self.recipe.training
        return PlannedData(make.lengths, make, training.tokens_per_update, training.seed)

    def validator(self, data: PreparedData, module: ModelWithLoss) -> Validator:
        """Means of the terms of the loss."""
        return Validator(module, self.batches(data.valid), micro_batch(self.recipe), self.validation_terms)

    def framed_input(self, given: Any) -> tuple[Batch, dict[str, Axis]]:
        """Encode a text or pair as in training, truncated to the maximum length; return its axis too."""
        tokenizer, texts = self.processor.tokenizer, self.texts_in(given)
        ids = tokenizer.encode_batch(texts)
        refuse_empty(*ids)
        batch = self.recipe.frame([fitted(ids, self.recipe.model.longest, self.recipe.frame)])
        return batch, {INPUT: text_axis(tokenizer, ids_in(batch), texts)}

    def source_from(self, files: Sequence[Path]) -> OwnTable:
        """A table with a header, or one like that to train on, or JSON lines, with the task's columns.

        Of a run that learned from the CoNLL format, a file of that format.
        """
        if len(files) != 1:
            raise RequestError(
                f"a run of the task {self.recipe.task.kind} is scored on one table (--table FILE), "
                f"not on {len(files)} files"
            )
        return own_table(files[0], self.columns.required, like=self.recipe.data.train)


class TextBatches:
    """Batches of texts, or pairs, with one answer each; long texts are cut. A `Batches`.

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


def synthetic_texts(
    vocab_size: int, n: int, length: int, n_texts: int, frame: Template = WITH_CLASS
) -> Batch:
    """``n`` random sequences of about ``length`` tokens, with as many texts each, for timing."""
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
    """The filter, with a limit of all columns as one of texts alone."""
    if not isinstance(filter.max_length, int):
        return filter
    return filter.model_copy(update={"max_length": dict.fromkeys(columns, filter.max_length)})
