"""Tasks whose model reads texts and whose heads predict a target: recipes, data and batches."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded, Filter, Limit, keep
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.data.user_files import UserTable, user_table
from heedful.errors import RequestError
from heedful.models.base import Model
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.registry import build_reader
from heedful.nn.layout import Layout
from heedful.recipes import schema
from heedful.recipes.trees import Tree
from heedful.tasks.base import RowReader, Task
from heedful.tasks.embedding import BIDIRECTIONAL, CAUSAL, EmbeddingInputs
from heedful.tasks.evaluation import Batches
from heedful.tasks.inputs.coverage import new_report
from heedful.tasks.inputs.labels import LABEL
from heedful.tasks.inputs.processor import TextProcessor
from heedful.tasks.inputs.texts import (
    BARE_TEMPLATE,
    CLASS_TEMPLATE,
    DOCUMENT_TEMPLATE,
    PAIR,
    TEXT,
    Template,
    TemplateLimit,
    TextOutput,
    encode_columns,
    encode_texts,
    run_on_texts,
    text_columns,
    truncate,
)
from heedful.tasks.model_input import INPUT, Axis, ids_in, refuse_empty, text_axis, texts_in
from heedful.tasks.prediction import Progress, TaskInput, as_texts, content_of
from heedful.tasks.pretrained import WarmStart, load_or_train_tokenizer
from heedful.tasks.task_info import Columns
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer

# Recipes ------------------------------------------------------------------------------------------------

AnyReader = Annotated[EncoderConfig | LanguageModelConfig, Field(discriminator="kind")]
"""A model that reads a text: each token with all others, or with those before it."""


class DataConfig(schema.DataConfig):
    """Rows with texts and an answer, and what to do with those that cannot be used as they are.

    Args:
        filter: what to do with texts that are too long or empty.
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


class TextRecipe(schema.Recipe):
    """A recipe of a task whose model reads texts.

    Args:
        pretrained: word vectors that the embedding begins with.
    """

    data: DataConfig
    tokenizer: schema.ComposingTokenization
    model: AnyReader
    pretrained: schema.TextVectorsConfig = schema.TextVectorsConfig()
    validation: schema.NoValidationConfig = schema.NoValidationConfig()
    decoding: schema.NoDecodingConfig | None = None
    evaluation: schema.EvaluationConfig = schema.EvaluationConfig()

    @property
    def pairs(self) -> bool:
        """Whether two texts are read together."""
        return False

    @property
    def template(self) -> Template:
        """The special tokens around the texts."""
        return DOCUMENT_TEMPLATE if isinstance(self.model, LanguageModelConfig) else CLASS_TEMPLATE

    @property
    def max_text_tokens(self) -> int:
        """The most tokens that the texts of a row may have together."""
        return self.model.longest - self.template.n_specials(1 + self.pairs)

    @property
    def max_length_key(self) -> str:
        """The key that sets how long a sequence may be."""
        return "model.context" if isinstance(self.model, LanguageModelConfig) else "model.max_length"

    @schema.check
    def _fits_a_text(self) -> None:
        if self.max_text_tokens < 1:
            raise ValueError(f"{self.max_length_key}={self.model.longest} leaves no room for a text")
        if self.pairs and isinstance(self.model, EncoderConfig) and self.model.segments < 2:
            raise ValueError("model.segments must be 2 for pairs of texts (one for each text)")


class EncoderRecipe(TextRecipe):
    """A recipe of a task on single tokens: encoders only, since each token needs both sides."""

    model: EncoderConfig


class WholeTextConfig(Config):
    """Predict an answer for a text as a whole.

    Args:
        pairs: whether each input is a pair of texts.
        add_special_tokens: whether special tokens are put around the texts; false (language models and single
            texts only): the text alone, as GPT-2's classifiers in other libraries read it.
    """

    pairs: bool = False
    add_special_tokens: bool = True


class WholeTextRecipe(TextRecipe):
    """A recipe of a task on whole texts; a language model is pooled at the last token."""

    task: WholeTextConfig
    model: AnyReader

    @property
    def pairs(self) -> bool:
        """Whether each input is a pair of texts."""
        return self.task.pairs

    @property
    def template(self) -> Template:
        """The special tokens around the texts; of a language model, as the task says."""
        return super().template if self.task.add_special_tokens else BARE_TEMPLATE

    @schema.check
    def _check_special_tokens(self) -> None:
        if not self.task.add_special_tokens and isinstance(self.model, EncoderConfig):
            raise ValueError(
                "task.add_special_tokens=false is not supported by encoders, which need the class token"
            )
        if not self.task.add_special_tokens and self.pairs:
            raise ValueError(
                "task.add_special_tokens=false is not supported for pairs (nothing would separate the texts)"
            )


# The task -----------------------------------------------------------------------------------------------


class TextTask(Task):
    """A task whose rows have texts and one target: a model reads the texts, and heads predict the target.

    Methods are called in the order that `Task` describes. A task defines those of the first group below, and
    `batches`, `synthetic_batch`, `predict`, `model_input` and `metrics`.
    """

    recipe: TextRecipe
    processor: TextProcessor

    target_column: ClassVar[str | None]
    """The column of the target; None: there is none."""

    has_pooling: ClassVar[bool] = False
    """Whether ``heads["pooled"]`` is trained; otherwise an embedding is the mean over tokens."""

    # What a task defines -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def text_columns(self) -> tuple[str, ...]:
        """The columns that hold text; the target is in `target_column`."""

    @abstractmethod
    def processor_with(self, tokenizer: Tokenizer, read_rows: RowReader) -> TextProcessor:
        """Return the processor with this tokenizer; `make_processor` calls it.

        Raises:
            DataError: if the rows are not sufficient.
        """

    @abstractmethod
    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of each row that can be encoded, by column; `encode` calls it, then filters."""

    @abstractmethod
    def limits(self) -> Sequence[Limit]:
        """Return what the model reads of a row; `encode` truncates, drops or refuses longer rows by it."""

    @property
    @abstractmethod
    def n_target_ids(self) -> int:
        """One more than the greatest id of a target, for `n_ids`."""

    @abstractmethod
    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """Return the heads that `build_model` adds to the model; ``sizes`` as `TaskProcessor.sizes`."""

    # Before training ---------------------------------------------------------------------------------------

    def make_processor(self, read_rows: RowReader) -> TextProcessor:
        """Train a tokenizer, or load that of the run to start from, and call `processor_with`."""
        values = (row.row[column] for row in read_rows() for column in self.text_columns)
        texts = (" ".join(value) if isinstance(value, list) else value for value in values)
        tokenizer = load_or_train_tokenizer(self.recipe, self.recipe.tokenizer, TEXT, texts)
        return self.processor_with(tokenizer, read_rows)

    def new_report(self) -> DataReport:
        """Return a report that counts unknown tokens; one tokenizer reads all columns."""
        return new_report(dict.fromkeys(self.text_columns, self.processor.text))

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of the rows that pass the filter, truncated to what the model reads."""
        filter = self.recipe.data.filter
        if isinstance(filter.max_length, int):  # a limit for texts, not for targets
            limits = dict.fromkeys(self.text_columns, filter.max_length)
            filter = filter.model_copy(update={"max_length": limits})
        yield from keep(self.encode_rows(rows, report), filter, report, limits=self.limits())
        if self.target_column is not None:
            del report.columns[self.target_column]  # its lengths are meaningless

    def n_ids(self) -> Mapping[str, int]:
        """The sizes of the vocabulary and of the set of targets."""
        texts = dict.fromkeys(self.text_columns, self.processor.text.vocab_size)
        return texts if self.target_column is None else {**texts, self.target_column: self.n_target_ids}

    # Model -------------------------------------------------------------------------------------------------

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """Build an encoder or a language model, with the heads of `heads`."""
        sizes = self.processor.sizes if sizes is None else sizes
        model = build_reader(self.recipe.model, sizes[0])
        model.heads.update(self.heads(sizes))
        return model

    # Use ---------------------------------------------------------------------------------------------------

    def text_input(self, task_input: TaskInput) -> tuple[Batch, dict[str, Axis]]:
        """Encode a text or pair as in training, for `model_input`; return the batch and its axis by name."""
        tokenizer, texts, template = (
            self.processor.text,
            [*map(content_of, texts_in(task_input, self.columns, self.recipe.task.kind))],
            self.recipe.template,
        )
        ids = encode_texts(tokenizer, texts)
        refuse_empty(*ids)
        batch = template([truncate(ids, self.recipe.model.longest, template)])
        return batch, {INPUT: text_axis(tokenizer, ids_in(batch), texts)}

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return texts or pairs with their special tokens; long ones are truncated as in predictions."""
        recipe = self.recipe
        return EmbeddingInputs.of_texts(
            self.processor.text,
            inputs,
            recipe.template,
            recipe.model.longest,
            has_pooling=self.has_pooling,
            poolings=CAUSAL if isinstance(recipe.model, LanguageModelConfig) else BIDIRECTIONAL,
        )

    def source_from(self, files: Sequence[Path]) -> UserTable:
        """Return a table with the task's columns, in the format of the training data.

        Raises:
            RequestError: if it is not one file.
        """
        if len(files) != 1:
            raise RequestError(
                f"expected one file to evaluate task {self.recipe.task.kind}, got {len(files)} files"
            )
        like, known = self.recipe.data.train, self.known_tags
        return user_table(files[0], self.columns.required, like=like, known_tags=known)

    def texts_of(self, rows: Iterable[LocatedRow[Row]]) -> list[dict[str, str]]:
        """Return the texts of each row, by column; for `metrics` and `records`."""
        return [{column: str(row.row[column]) for column in self.text_columns} for row in rows]


class StartWithPooler(WarmStart):
    """A start from an encoder that represents a text by its first token, as BERT does: it also gets BERT's
    pooler (a layer with tanh), which masked language models may lack. So it can be exported as a BERT.
    """

    def model(self, section: Tree) -> Tree:
        """Return the section ``model`` of the other run, with a pooler after the first token."""
        pooling, pooler = section.find(("pooling",)), section.find(("pooler",))
        if pooling is None or pooler is None or (pooling.data, pooler.data) != ("first", False):
            return section
        return Tree({**section.value, "pooler": Tree(True, pooler.mark)}, section.mark)


class WholeTextTask(TextTask):
    """A task with one target for a text or pair of texts as a whole.

    A task defines `processor_with`, `target_ids`, `n_target_ids`, `heads`, `with_targets`, `synthetic_batch`,
    `predict`, `model_input` and `metrics`.
    """

    target_column = LABEL
    has_pooling = True
    warm_start = StartWithPooler()

    recipe: WholeTextRecipe

    @property
    def text_columns(self) -> tuple[str, ...]:
        """One column of texts, or two."""
        return text_columns(self.recipe.task.pairs)

    @property
    def columns(self) -> Columns:
        """The texts and the target."""
        return Columns((*self.text_columns, LABEL), self.text_columns, extra=(PAIR,), single_valued=(LABEL,))

    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of the texts, and those of the target."""
        for row, ids in encode_columns(dict.fromkeys(self.text_columns, self.processor.text), rows):
            target_ids = self.target_ids(row) if self.has_target(row.row) else []
            yield LocatedRow({**ids, LABEL: target_ids}, row.location)

    def has_target(self, row: Row) -> bool:
        """Whether a row has a target; others are dropped, as rows without text are."""
        return bool(row[LABEL])

    @abstractmethod
    def target_ids(self, row: LocatedRow[Row]) -> list[int]:
        """Return the target of a row as ids; `encode_rows` calls it.

        Raises:
            DataError: if it is not a target of this task.
        """

    def limits(self) -> Sequence[TemplateLimit]:
        """Return one limit, which all texts of a row share."""
        recipe = self.recipe
        return [
            TemplateLimit(self.text_columns, recipe.model.longest, recipe.template, recipe.max_length_key)
        ]

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of texts with their targets."""
        return WholeTextBatches(self, store)

    @abstractmethod
    def with_targets(self, batch: Batch, target_ids: Sequence[NDArray[np.integer]]) -> Batch:
        """Return the batch with targets, given as `target_ids` returns them; `WholeTextBatches` calls it."""

    def model_outputs(
        self,
        model: Model,
        inputs: Sequence[TaskInput],
        head: Callable[[Tensor, nn.ModuleDict, Layout], Tensor],
        progress: Progress,
    ) -> list[TextOutput]:
        """Apply the model and a head to texts or pairs, for `predict`.

        See `heedful.tasks.inputs.texts.run_on_texts`.
        """
        return run_on_texts(
            model,
            self.processor.text,
            [as_texts(task_input) for task_input in inputs],
            head,
            longest=self.recipe.model.longest,
            template=self.recipe.template,
            progress=progress,
        )


class WholeTextBatches:
    """Batches of texts or pairs with their targets; long texts are truncated. A `Batches`.

    Args:
        task: the task.
        store: the ids.
    """

    def __init__(self, task: WholeTextTask, store: TokenStore) -> None:
        self.task, self.store = task, store
        self.longest, self.template = task.recipe.model.longest, task.recipe.template
        n_tokens = sum(store.lengths(column) for column in task.text_columns)
        self.lengths: Lengths = np.clip(
            n_tokens + self.template.n_specials(len(task.text_columns)), 1, self.longest
        )

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of some rows."""
        rows = self.store.gather(samples)
        texts = zip(*(rows[column] for column in self.task.text_columns), strict=True)
        parts = [truncate(row, self.longest, self.template) for row in texts]
        return self.task.with_targets(self.template(parts, samples), rows[LABEL])


def synthetic_texts(
    vocab_size: int, n: int, length: int, n_texts: int, template: Template = CLASS_TEMPLATE
) -> Batch:
    """Return ``n`` random sequences of about ``length`` tokens, with as many texts each, for timing."""
    draw = np.random.default_rng(0)
    n_specials = template.n_specials(n_texts)
    n_tokens = [max(0, length - n_specials + (0, -1, 1)[i % 3]) for i in range(n)]
    parts = [
        truncate(
            [draw.integers(len(SPECIALS), vocab_size, -(-tokens // n_texts))] * n_texts,
            tokens + n_specials,
            template,
        )
        for tokens in n_tokens
    ]
    return template(parts)
