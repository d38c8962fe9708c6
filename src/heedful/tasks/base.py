"""The base class of tasks: what connects a recipe and its rows to a model, predictions and scores.

    recipe -> task -> fit_processor(rows) -> processor               tokenizers, labels
                   -> encode(rows) -> ids                            `heedful.runs.prepare`
                   -> build_model, objective, training_data -> loss  `heedful.runs.train`
                   -> predictor(inference) -> predictions            `heedful.runs.loading`
                   -> evaluate(model, rows) -> scores                `heedful.runs.evaluate`

One file defines a task: its configuration, its recipe, its processor and the subclass of `Task`. A line in
`heedful.tasks.registry` adds it to recipes and commands.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.lines import fields_of
from heedful.data.plan import BalancedSampling, in_order
from heedful.data.report import DataReport, Encoded, Longest, Tally
from heedful.data.sources import LocatedRow, Row, SourceConfig
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.models.registry import build_model
from heedful.nn.modes import evaluating
from heedful.objectives.terms import AuxiliaryLoss, Objective
from heedful.recipes import schema
from heedful.tasks.calibration import Calibration, Classes, Tuned, read_calibration, tune_temperature
from heedful.tasks.embedding import EmbeddingInputs
from heedful.tasks.evaluation import (
    Batches,
    Evaluation,
    EvaluationOptions,
    Predict,
    PredictedRows,
    custom_scores,
    mean_terms,
    micro_batch_tokens,
)
from heedful.tasks.inputs.coverage import new_report
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import AnswerOptions, ModelInput
from heedful.tasks.prediction import (
    DEFAULT_OPTIONS,
    Prediction,
    PredictOptions,
    Predictor,
    TaskInput,
    TaskPredictor,
    as_json,
)
from heedful.tasks.pretrained import WarmStart, fill_vectors
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.training.loop import Validate
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.scheduled_sampling import ScheduledSampling
from heedful.training.update import PlannedData
from heedful.typing import JsonMapping

Log = Callable[[str], None]
RowReader = Callable[[], Iterator[LocatedRow[Row]]]
"""Returns a new iterator over the training rows; may be called several times."""


class Task(ABC):
    """One kind of problem: data processing, model, loss, prediction and metrics.

    `heedful.tasks.registry.task_for` makes it from a recipe. Then `heedful.runs` calls, in this order:

    | for | methods |
    |---|---|
    | data | `check_requirements`; `fit_processor` and `save`, or `load` if a run is resumed; `encode` |
    | | `unseen_labels`, `check_data`, `check_metric`, `split_labels`, `data_notes`, `training_data` |
    | training | `build_model`, `auxiliary_losses`, `objective`, `initialise`, `validator`; `tune` |
    | prediction | `load`, `build_model`, `load_tuned`; `predictor`, which calls `predict` |
    | evaluation | the same; `evaluate`, which calls `metrics` |
    | explanation | the same; `model_input` |
    | embeddings | the same; `embedding_inputs` |

    There is no training step to write: the training loop applies the objective to the model and a batch.

    Args:
        recipe: an instance of the task's class `Recipe`.
        processor: an instance of its class `Processor`; by default, `fit_processor` or `load` sets it later.
    """

    Recipe: ClassVar[type[schema.Recipe]]
    """The schema of its recipes."""

    Processor: ClassVar[type[TaskProcessor]]
    """The class of its processor."""

    info: ClassVar[TaskInfo]
    """Facts that commands need."""

    warm_start: ClassVar[WarmStart] = WarmStart()
    """How a training starts from another run."""

    validation_terms: ClassVar[Mapping[str, str]] = {}
    """What validations measure, each as the mean of a term of the loss; see `validation_metrics`."""

    calibrated_head: ClassVar[str] = ""
    """The head whose probabilities are calibrated (`heedful.tasks.calibration`); empty: none."""

    calibration: Calibration | None = None
    """The result, of a run."""

    recipe: schema.Recipe
    processor: TaskProcessor

    def __init__(self, recipe: schema.Recipe, processor: TaskProcessor | None = None) -> None:
        self.recipe = recipe
        if processor is not None:
            self.processor = processor

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns of its rows; read first, to check that a data set has them."""

    # Before training: processor and ids --------------------------------------------------------------------

    def check_requirements(self) -> None:  # noqa: B027 (most tasks need nothing)
        """Check, first of all in a training, that this machine has what validations need.

        Raises:
            RequestError: if a package is missing.
        """

    @abstractmethod
    def make_processor(self, read_rows: RowReader) -> TaskProcessor:
        """Return the processor (tokenizers, labels, a scale) of the training rows; `fit_processor` calls it.

        Args:
            read_rows: returns a new iterator over the training rows.

        Raises:
            DataError: if the rows are not sufficient, for example because they have a single label.
        """

    def fit_processor(self, read_rows: RowReader) -> None:
        """Make the processor from the training rows, before `encode`; `load` replaces it in a resumed run."""
        self.processor = self.make_processor(read_rows)

    def new_report(self) -> DataReport:
        """Return an empty report, to which `encode` adds; called before each data set."""
        return new_report(self.processor.tokenizers)

    @abstractmethod
    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of the rows that are kept, and count all rows in the report.

        Called once for the training and once for the validation rows; the ids go to a `TokenStore`.
        """

    def unseen_labels(self, row: LocatedRow[Row]) -> Sequence[str]:
        """Return the labels or tags of a row that do not occur in the training rows.

        Validation rows that ``data.split`` takes from the training source are left out if they have some.
        """
        return ()

    def n_ids(self) -> int | Mapping[str, int]:
        """The number of ids in the `TokenStore` (the greatest id plus 1), for all columns or by column."""
        return max(self.processor.sizes)

    @property
    def keeps_rows(self) -> bool:
        """Whether validations also read the text of their rows, as `PreparedData.valid_rows`."""
        return self.recipe.training.metric in self.recipe.scored_metrics

    def check_data(self, data: "PreparedData") -> None:  # noqa: B027 (most have nothing to check)
        """Check that the recipe suits the labels and the validation rows, before the model is built.

        Raises:
            RequestError: it does not.
        """

    def unavailable_metrics(self, data: "PreparedData") -> Mapping[str, str]:
        """Return which metrics validations cannot compute, each with the reason; `check_metric` calls it.

        Args:
            data: ``valid_rows`` are empty if `keeps_rows` is false, and in all processes but the first.
        """
        return {}

    def check_metric(self, data: "PreparedData") -> None:
        """Check that validations can compute the metric of the training, before the model is built.

        Raises:
            RequestError: they cannot, for these labels or validation rows.
        """
        metric, unavailable = self.recipe.training.metric, self.unavailable_metrics(data)
        if metric in unavailable:
            others = (self.recipe.metric_names() | self.recipe.scored_metrics) - unavailable.keys()
            raise RequestError(
                f"training.metric={metric} cannot be computed: {unavailable[metric]}; other metrics are "
                f"{', '.join(sorted(others))}: for example, set training.metric=loss"
            )

    @property
    def known_tags(self) -> frozenset[str]:
        """The tags of words that the run has learned; lines of CoNLL files that have one are words."""
        return frozenset()

    def split_labels(self, text: str) -> list[str] | None:
        """Return the labels or tags in a text of their column; None: it is one class."""
        return None

    def data_notes(self, data: "PreparedData") -> Sequence[str]:
        """Return what the user should know about the data; logged before the first update."""
        return ()

    # Model and loss ----------------------------------------------------------------------------------------

    def expected_sizes(self, vocab_sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of `build_model` as far as the recipe determines them, before data are read.

        For estimates of memory and time.

        Args:
            vocab_sizes: an assumed size for each vocabulary.
        """
        return tuple(vocab_sizes)

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """Build the freshly initialised model with the heads of the task.

        Called for a training, and to load the weights of a run.

        Args:
            sizes: as `TaskProcessor.sizes`; by default those of this task's processor.

        Raises:
            ValueError: if the sizes do not suit the configuration.
        """
        return build_model(self.recipe.model, *(self.processor.sizes if sizes is None else sizes))

    def auxiliary_losses(self, model: Model) -> Sequence[AuxiliaryLoss]:
        """Return auxiliary losses on intermediate activations, such as guided attention.

        Called once, after `build_model`.

        Raises:
            ValueError: if the model does not have the module that the recipe names.
        """
        return ()

    def objective(self) -> Objective:
        """Return the loss, computed from hidden states and a batch; called once, after `build_model`."""
        objective: Objective = self.recipe.objective.make()
        return objective

    def scheduled_sampling(self) -> ScheduledSampling | None:
        """Return what replaces training inputs by predictions; None: training is teacher forced."""
        return None

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Fill in pretrained word vectors, if the recipe names some, and log facts about the data.

        Called before the first update, after all other methods of this group; not if a run is resumed from a
        checkpoint.
        """
        fill_vectors(self.recipe, self.processor.tokenizers, model, log)

    # Training and validation -------------------------------------------------------------------------------

    @abstractmethod
    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return the batches of encoded rows. `training_data` and `validator` call it.

        Args:
            store: the ids of the training or validation rows.
            training: for training, where tokens or images may be changed at random.
        """

    def training_data(self, data: "PreparedData") -> PlannedData:
        """Return the training data in batches of similar lengths, from which the loop takes its updates."""
        batches, training = self.batches(data.train, training=True), self.recipe.training
        column = self.recipe.class_column if training.sampling == "balanced" else None
        sampling = None if column is None else BalancedSampling(data.train.stream(column), training.seed)
        return PlannedData(batches.lengths, batches, training.tokens_per_update, training.seed, sampling)

    def validator(self, data: "PreparedData", module: ModelWithLoss) -> Validate:
        """Return the function that the training loop calls for each validation.

        It maps the model to its validation metrics.

        Args:
            data: the data of the run.
            module: the model with its loss.
        """
        batches = self.batches(data.valid, training=False)
        plan = in_order(batches.lengths, micro_batch_tokens(self.recipe))

        def validate(model: nn.Module) -> Mapping[str, float]:
            samples_in_order = (batches(samples.tolist(), 0) for samples in plan)
            metrics = self.validation_metrics(mean_terms(module, samples_in_order))
            if self.recipe.training.metric not in self.recipe.scored_metrics:
                return metrics
            assert isinstance(model, Model)
            return {**metrics, **self.validation_scores(model, data.valid_rows)}

        return validate

    def validation_scores(self, model: Model, rows: Sequence[LocatedRow[Row]]) -> dict[str, float]:
        """Predict the validation rows, and return the scores that `Recipe.scored_metrics` names.

        Raises:
            DataError: no input can be read.
            RequestError: the metric of the training is not among the scores of these rows.
        """
        located_rows, _ = self.rows_to_score(iter(rows), None)
        predictor = self.predictor(Inference(model))
        predictions = predictor.predict([self.columns.input_of(row.row) for row in located_rows])
        predicted = PredictedRows.readable("data.valid", located_rows, predictions, {}, drop=True)
        scores, _ = self.metrics(model, predicted)
        names = self.recipe.scored_metrics
        values = {name: score.value for score in scores if (name := score.metric) in names}
        if self.recipe.training.metric not in values:
            raise RequestError(
                f"training.metric={self.recipe.training.metric}: not among the scores of data.valid: "
                f"{', '.join(score.metric for score in scores)}; choose another"
            )
        return values

    def validation_metrics(self, terms: Mapping[str, float]) -> Mapping[str, float]:
        """Return the validation metrics, given the mean of each term of the loss. `validator` calls it."""
        return {metric: terms[term] for metric, term in self.validation_terms.items()}

    def classes_of(self, model: Model, batch: Batch) -> Classes:
        """Return the logits ``[n, C]`` of `calibrated_head` for the items of a batch, and their classes."""
        raise NotImplementedError

    def tune(self, model: Model, data: "PreparedData", log: Log) -> Tuned:
        """Return what is chosen on the validation data, with the final weights, once training is over."""
        return tune_temperature(self, model, data.valid, log)

    @abstractmethod
    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return a batch of random sequences like those of `training_data`.

        Used to measure time and memory without data.

        Args:
            sizes: as `TaskProcessor.sizes`.
            n: number of sequences.
            length: approximate number of tokens of each, if the recipe does not fix it.
            source_length: the same for sources, in tasks that have them.
        """

    # Prediction and explanation ----------------------------------------------------------------------------

    def predictor(self, inference: Inference, options: PredictOptions = DEFAULT_OPTIONS) -> Predictor:
        """Return the predictor of a model, which maps inputs to predictions; called by every prediction.

        Tasks that generate text override it; the others override `predict`.

        Args:
            inference: a trained model, prepared for decoding (precision, native engine).
            options: decoding and other options.
        """
        predict = partial(self.predict, inference.ready(), options=options)
        return TaskPredictor(self.recipe.task.kind, evaluating(inference.model)(predict), options)

    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict one answer for each input, in the same order. The default `predictor` calls it.

        Args:
            model: a trained model in evaluation mode.
            inputs: texts, tuples of texts, or images.
            options: options of the prediction; a task reads those that it supports.
        """
        raise NotImplementedError

    @abstractmethod
    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare an input and its answer for explanations; see `heedful.tasks.model_input`.

        Args:
            model: a trained model.
            task_input: the input, as `predict` takes it.
            options: which answer.
            answer: to the input; of at most `most_new_tokens`, or, if ``options`` give a target to a task
                that generates, the target.

        Raises:
            RequestError: if the input is empty, too long or of the wrong type, or there is no such answer.
        """

    def most_new_tokens(self, task_input: TaskInput) -> int | None:
        """Return how long an answer may be so that `model_input` reads it after the input; None: any length.

        Raises:
            RequestError: if the input leaves no room for an answer.
        """
        return None

    @property
    def embedded_columns(self) -> Columns:
        """The columns of an input of `Run.embed`: of texts that are read together, the first suffices.

        Lists of words are joined.
        """
        columns = self.columns
        others = (*columns.inputs[1:], *columns.optional_inputs)
        joined = columns.inputs if columns.input_lists else ()
        return replace(
            columns,
            inputs=columns.inputs[:1],
            optional_inputs=others,
            list_valued=tuple(column for column in columns.list_valued if column not in joined),
            input_lists=False,
        )

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return inputs as the model reads them to compute a vector of each, for `Run.embed`.

        Args:
            inputs: with the columns of `embedded_columns`.

        Raises:
            RequestError: the task does not support embeddings.
        """
        raise RequestError(f"embeddings are not supported for task {self.recipe.task.kind}")

    # Evaluation --------------------------------------------------------------------------------------------

    @abstractmethod
    def source_from(self, files: Sequence[Path]) -> SourceConfig:
        """Return a data source for a user's own files, whose rows `evaluate` scores.

        Raises:
            RequestError: if there are too few or too many files.
        """

    def evaluate(
        self,
        model: Model,
        predict: Predict,
        split: str,
        rows: Iterator[LocatedRow[Row]],
        options: EvaluationOptions,
    ) -> Evaluation:
        """Predict the inputs of a data set, and compare the predictions with the rows' answers.

        Calls `rows_to_score`, `check_rows`, ``predict``, `metrics` and, if the caller asks for records,
        `records`.

        Args:
            model: a trained model, for metrics that are likelihoods.
            predict: maps inputs to predictions of the model.
            split: name of the data set.
            rows: inputs with their answers.
            options: how many rows to score, and how to decode.

        Raises:
            DataError: if no row is left to score, or an input cannot be read and is not to be dropped.
        """
        selected, dropped = self.rows_to_score(rows, options.limit)
        if not selected:
            raise DataError(f"{split}: no rows to score; check that the data set is not empty")
        self.check_rows(selected)
        predictions = predict([self.columns.input_of(row.row) for row in selected])
        predicted = PredictedRows.readable(split, selected, predictions, dropped, drop=self.drops_unreadable)
        scores, notes = self.metrics(model, predicted)
        scores += custom_scores(self.recipe.evaluation, predicted)
        scores = [replace(score, counts={**score.counts, **predicted.counts}) for score in scores]
        return Evaluation(
            split,
            scores,
            notes=[*predicted.notes, *notes],
            records=lambda: self.records(predicted),
            locations=[str(row.location) for row in predicted.rows],
        )

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
        """Return the rows to predict and score, and those that are dropped, by reason."""
        return list(islice(rows, limit)), {}

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:  # noqa: B027 (most have nothing to check)
        """Check the answers of the rows before predicting them, which may take long.

        Raises:
            DataError: if the answers are not those of this task.
            RequestError: if a metric needs a package that is missing.
        """

    @property
    def drops_unreadable(self) -> bool:
        """Whether `evaluate` drops inputs that cannot be read, instead of raising an error."""
        return False

    def metrics(self, model: Model, predicted: PredictedRows[Any]) -> tuple[list[Score], list[str]]:
        """Return the scores of predictions, and notes about the data.

        A task that is not evaluated by comparing predictions with answers overrides `evaluate` instead.
        """
        raise NotImplementedError

    def records(self, predicted: PredictedRows[Any]) -> Iterator[JsonMapping]:
        """Yield the JSON object of each prediction (`Prediction.to_dict`), with the entries of `compared`."""
        for (row, prediction), entries in zip(predicted, self.compared(predicted), strict=True):
            fields = fields_of(row.row)
            if fields is None:
                fields = {name: as_json(cell) for name, cell in row.row.items()}
            yield {**prediction.to_dict(fields), **entries}

    def compared(self, predicted: PredictedRows[Any]) -> Iterator[JsonMapping]:
        """Yield the ``target`` of each row, whether the answer is ``correct``, and ``scores``, if any."""
        raise NotImplementedError

    # Files of a run ----------------------------------------------------------------------------------------

    def save(self, folder: RunFolder) -> None:
        """Write the processor to the run's folder, directly after `fit_processor`."""
        self.processor.save(folder)

    def load(self, folder: RunFolder) -> None:
        """Read the processor that `save` wrote, to resume a training or to use a run."""
        self.processor = self.Processor.load(folder)

    @property
    def temperature(self) -> float | None:
        """The temperature of the probabilities; None: they are not calibrated."""
        return self.calibration.temperature if self.calibration else None

    def load_tuned(self, folder: RunFolder) -> None:
        """Read the result of `tune`, after `load`; not called for a run whose training has not ended."""
        self.calibration = read_calibration(folder.calibration)


@dataclass(frozen=True)
class PreparedData:
    """The data of a training run.

    Args:
        task: the task, with its processor.
        train, valid: the ids of the rows.
        valid_rows: the rows of ``valid``, if the task keeps them (`Task.keeps_rows`).
        longest: of the training rows, if they were encoded now.
    """

    task: Task
    train: TokenStore
    valid: TokenStore
    valid_rows: list[LocatedRow[Row]]
    longest: Longest | None = None
