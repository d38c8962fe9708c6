"""The base class of tasks: what connects a recipe and its rows to a model, predictions and scores.

    recipe -> task -> fit(rows) -> processor                         tokenizers, labels
                   -> encode(rows) -> ids                            `heedful.runs.prepare`
                   -> build_model, objective, training_data -> loss  `heedful.runs.train`
                   -> predictor(model) -> predictions                `heedful.runs.run`
                   -> evaluate(model, rows) -> scores                `heedful.runs.evaluate`

One file defines a task: its configuration, its recipe, its processor and the subclass of `Task`. A line in
`heedful.tasks.registry` adds it to recipes and commands.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded, Longest, Tally
from heedful.data.sources import LocatedRow, Row, SourceConfig
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import DataError
from heedful.models.base import Model
from heedful.models.registry import build_model
from heedful.objectives.terms import AuxiliaryLoss, Objective
from heedful.recipes import schema
from heedful.tasks.evaluation import Evaluation, EvaluationOptions, Predict, cut_notes, readable
from heedful.tasks.metrics.score import Score
from heedful.tasks.prediction import Prediction
from heedful.tasks.warm_start import WarmStart
from heedful.training.feed import PlannedData
from heedful.training.loop import Validate
from heedful.training.step import Step
from heedful.typing import JsonMapping

Log = Callable[[str], None]
Rows = Callable[[], Iterator[LocatedRow[Row]]]
"""Opens the training rows from the first one on; may be called several times."""

OwnData = Literal["data", "text", "table", "folder"]
"""A form of a user's own data set: two aligned files, text, a table, a folder of images."""


class TaskProcessor(Protocol):
    """What a task learns from its training rows before it has a model: tokenizers, labels, a scale."""

    @property
    def fingerprint(self) -> str:
        """Differs if anything is encoded differently."""
        ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """What `Task.build_model` needs: the sizes of the vocabularies and of the set of labels."""
        ...

    @staticmethod
    def files(folder: RunFolder) -> list[Path]:
        """The files that `save` writes, the last of them last."""
        ...

    def save(self, folder: RunFolder) -> None:
        """Write the files."""
        ...

    @classmethod
    def load(cls, folder: RunFolder) -> Self:
        """Read what `save` wrote."""
        ...


class Predictor(Protocol):
    """Inputs in, predictions out: as many, in the same order."""

    def predict(
        self,
        texts: Sequence[Any],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Callable[[int], None] = lambda n: None,
    ) -> list[Prediction]:
        """See `heedful.runs.run.Run.predict`."""
        ...


@dataclass(frozen=True)
class TaskInfo:
    """Facts about a task that hold for all its recipes.

    Args:
        unit: what its data sets count, in the plural: "sentences".
        evaluating: what it does to a data set that it is scored on, for progress messages: "translating".
        own_data: the forms in which a user's own data set can be scored.
        shorter: how a user gets shorter sequences, for advice when memory runs out.
        options: names of the options of its predictor besides the decoding.
        generates: whether the scores are of text that is generated, and so depend on the decoding.
        whole_rows: whether only ``data.filter`` limits the length of a sequence.
        windows: whether it is scored in windows that may overlap (``--stride``).
        fitting: message while the processor is fitted.
        encoding: message while rows are encoded.
    """

    unit: str
    evaluating: str
    own_data: tuple[OwnData, ...]
    shorter: str
    options: tuple[str, ...] = ()
    generates: bool = False
    whole_rows: bool = False
    windows: bool = False
    fitting: str = "training the tokenizer"
    encoding: str = "tokenising the data"


@dataclass(frozen=True)
class Columns:
    """The columns of a task's rows.

    Args:
        required: every row has these; ids are stored under the same names.
        inputs: the parts of an input to predict from, as JSON lines name them; most tasks have one.
        optional_inputs: further parts that an input may have.
        training: required of training rows alone: they are learned from and never measured.
        extra: some recipes of the task read these, others do not.
        lists: may hold a list as well as a text. A list in any other column is joined with spaces.
        single: hold exactly one thing; a longer list is an error.
        images: hold images; a path in them is opened.
        input_lists: whether an input in JSON lines may also be a list of words.
    """

    required: tuple[str, ...]
    inputs: tuple[str, ...]
    optional_inputs: tuple[str, ...] = ()
    training: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    input_lists: bool = False

    @property
    def known(self) -> tuple[str, ...]:
        """All columns that rows may have."""
        return tuple(dict.fromkeys((*self.required, *self.lists, *self.extra)))

    def input_of(self, row: JsonMapping) -> Any:
        """What `Predictor.predict` reads of a row: the input, or a tuple of its parts."""
        keys = (*self.inputs, *(key for key in self.optional_inputs if key in row))
        return row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys)


class Task(ABC):
    """One kind of problem: data processing, model, loss, prediction and metrics.

    Args:
        recipe: of the class `Recipe`.
        processor: of the class `Processor`; otherwise `fit` or `load` set it.
    """

    Recipe: ClassVar[type[schema.Recipe]]
    """The schema of its recipes."""

    Processor: ClassVar[type[TaskProcessor]]
    """The class of its processor."""

    info: ClassVar[TaskInfo]

    warm_start: ClassVar[WarmStart] = WarmStart()
    """How a training starts from another run."""

    recipe: schema.Recipe
    processor: TaskProcessor

    def __init__(self, recipe: schema.Recipe, processor: TaskProcessor | None = None) -> None:
        self.recipe = recipe
        if processor is not None:
            self.processor = processor

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns that its rows have."""

    # The processor ----------------------------------------------------------------------------------------

    @abstractmethod
    def make_processor(self, rows: Rows) -> TaskProcessor:
        """Learn from the training rows what encodes them.

        Raises:
            DataError: if the rows do not give what is needed.
        """

    def fit(self, rows: Rows) -> None:
        """Make the processor from the training rows; see `make_processor`."""
        self.processor = self.make_processor(rows)

    def save(self, folder: RunFolder) -> None:
        """Write the processor to the run's folder."""
        self.processor.save(folder)

    def load(self, folder: RunFolder) -> None:
        """Read the processor that `save` wrote."""
        self.processor = self.Processor.load(folder)

    # Data -------------------------------------------------------------------------------------------------

    @abstractmethod
    def new_report(self) -> DataReport:
        """An empty report for `encode`."""

    @abstractmethod
    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of the rows that are kept, and count all rows in the report."""

    def n_ids(self) -> int | Mapping[str, int]:
        """One more than the greatest id, of all columns or by column."""
        return max(self.processor.sizes)

    @property
    def keeps_rows(self) -> bool:
        """Whether validation reads the text of its rows besides their ids."""
        return False

    def check_requirements(self) -> None:  # noqa: B027 (most tasks need nothing)
        """Check, before a training starts, that this machine has what validations need.

        Raises:
            RequestError: if a package is missing.
        """

    def data_notes(self, data: "PreparedData") -> Sequence[str]:
        """What the user should know about the data before a training starts."""
        return ()

    # Model and training -----------------------------------------------------------------------------------

    def sizes(self, vocab_sizes: Sequence[int]) -> tuple[int, ...]:
        """Predict `Processor.sizes` as far as it is known before there are data."""
        return tuple(vocab_sizes)

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """Build the freshly initialised model with the heads of the task.

        Args:
            sizes: of the processor; None: those of `processor`.

        Raises:
            ValueError: if the sizes do not suit the configuration.
        """
        return build_model(self.recipe.model, *(self.processor.sizes if sizes is None else sizes))

    def objective(self) -> Objective:
        """The loss."""
        objective: Objective = self.recipe.objective.make()
        return objective

    def auxiliary_losses(self, model: Model) -> Sequence[AuxiliaryLoss]:
        """Further terms of the loss, about the inside of the model.

        Raises:
            ValueError: if the model has no such part.
        """
        return ()

    def initialise(self, model: nn.Module, log: Log) -> None:  # noqa: B027 (most tasks do nothing)
        """Change the first weights of the model as the recipe says, and log facts about the data."""

    @abstractmethod
    def training_data(self, data: "PreparedData") -> PlannedData:
        """Batches of the training data."""

    @abstractmethod
    def validator(self, data: "PreparedData", step: Step) -> Validate:
        """Measure a model on the validation data."""

    @abstractmethod
    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """A batch of random sequences like those of `training_data`, for timing without data.

        Args:
            sizes: of the processor.
            n: number of sequences.
            length: tokens of each, roughly, if the recipe does not fix them.
            source_length: the same of sources, for tasks that have them.
        """

    # Use --------------------------------------------------------------------------------------------------

    @abstractmethod
    def predictor(self, model: Model, decoding: Any, inference: Inference, **options: Any) -> Predictor:
        """Make what predicts with a model that ``inference`` prepares.

        Args:
            model: trained.
            decoding: how to decode, for tasks that generate text.
            inference: prepares the model for decoding.
            **options: those of `TaskInfo.options` that the caller gave.
        """

    @abstractmethod
    def source_from(self, files: Sequence[Path]) -> SourceConfig:
        """Use a user's own files as a data set to score.

        Raises:
            RequestError: if there are too few or too many files.
        """

    # Scores -----------------------------------------------------------------------------------------------

    def evaluate(
        self,
        model: Model,
        predict: Predict,
        split: str,
        rows: Iterator[LocatedRow[Row]],
        options: EvaluationOptions,
    ) -> Evaluation:
        """Predict the inputs of a data set, and compare the predictions with its answers.

        Args:
            model: trained; some metrics are likelihoods.
            predict: with the model.
            split: name of the data set.
            rows: inputs with their answers.
            options: how many rows, and how to decode.

        Raises:
            DataError: if there is nothing to score, or an input cannot be read and is not to be left out.
        """
        chosen, dropped = self.rows_to_score(rows, options.limit)
        if not chosen:
            raise DataError(f"{split}: there is nothing to score")
        self.check_rows(chosen)
        predictions = predict([self.columns.input_of(row.row) for row in chosen])
        read = readable(split, chosen, predictions, dropped, drop=self.drops_unreadable)
        scores, notes = self.metrics(model, read.rows, read.predictions)
        scores = [replace(score, counts={**score.counts, **read.counts}) for score in scores]
        notes = [*read.notes, *cut_notes(read.rows, read.predictions), *notes]
        return Evaluation(
            split, scores, notes=notes, records=lambda: self.records(read.rows, read.predictions)
        )

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
        """The rows that are predicted and scored, and those that are dropped, by reason."""
        return list(islice(rows, limit)), {}

    @property
    def drops_unreadable(self) -> bool:
        """Whether to leave out inputs that cannot be read, rather than stop."""
        return False

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:  # noqa: B027 (most have nothing to check)
        """Check rows before the work of predicting them.

        Raises:
            DataError: if the answers are not those of this task.
            RequestError: if a metric needs a package that is missing.
        """

    def metrics(
        self, model: Model, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Any]
    ) -> tuple[list[Score], list[str]]:
        """Score predictions against the answers of their rows; and notes about the data."""
        raise NotImplementedError

    def records(self, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Any]) -> Iterator[JsonMapping]:
        """Yield a record for each row: input, answer, prediction, and its own scores."""
        return iter(())


@dataclass(frozen=True)
class PreparedData:
    """What a training reads.

    Args:
        task: with its processor.
        train, valid: the ids.
        valid_rows: the rows of ``valid``, if the task keeps them (`Task.keeps_rows`).
        longest: of the training rows, if they were encoded now.
    """

    task: Task
    train: TokenStore
    valid: TokenStore
    valid_rows: list[Row]
    longest: Longest | None = None
