"""Regression: predict a number y, the target, for a text or for a pair of texts.

    z = (y - mean) / deviation    of the training targets (over n); the model predicts z, which gives y
    loss = mean of (z - ẑ)²       in units of the deviation, or another of `heedful.objectives.regression`

row -> token ids, target -> batch with standardised targets -> model -> loss
text -> token ids -> hidden states -> z -> prediction

`heedful.tasks.text_task.WholeTextTask` does what such tasks share, and calls the methods of this file:
`make_processor` calls `processor_with`; `build_model` calls `heads`; `encode` calls `target_ids` for each
row; and `batches` calls `with_targets` for each batch.

The target is in the column ``label``. A data store holds integers, so a target is stored as the eight bytes
of a float64.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from heedful.artifacts.run_folder import RESIDUALS, RunFolder
from heedful.data.batch import Batch
from heedful.data.findings import Points
from heedful.data.report import Tally
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.objectives.registry import NUMBER, Losses
from heedful.objectives.regression import VALUE, values
from heedful.recipes import schema
from heedful.tasks.base import Log, PreparedData, RowReader
from heedful.tasks.calibration import NOT_TUNED, Tuned, collect_outputs
from heedful.tasks.evaluation import PredictedRows
from heedful.tasks.inputs.labels import LABEL, labelled_rows
from heedful.tasks.inputs.processor import LARGEST, Scale, TextProcessor
from heedful.tasks.inputs.texts import unknown_notes_by_column
from heedful.tasks.intervals import (
    fewest_rows,
    half_width,
    interval_scores,
    read_residuals,
    residuals_of,
)
from heedful.tasks.metrics.regression import regression_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import AnswerOptions, ModelInput, PredictionTargets
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, TaskInput
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.tasks.text_task import WholeTextConfig, WholeTextRecipe, WholeTextTask, synthetic_texts
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping, JsonObject


class RegressionConfig(WholeTextConfig):
    """Predict a number for a text; columns are ``text`` and ``label``, and ``pair`` for a second text.

    Args:
        coverage: how often the interval of a prediction contains the target (`heedful.tasks.intervals`);
            null: no intervals.
    """

    kind: Literal["regression"] = "regression"
    coverage: Annotated[float, Field(gt=0, lt=1)] | None = 0.9


class ObjectiveConfig(schema.ObjectiveConfig):
    """The loss on the standardised target (column ``label``).

    Args:
        loss: a name in `heedful.objectives.registry`: ``squared-error``, ``absolute-error`` or ``huber``.
        huber_delta: for ``huber``: the error beyond which the loss is linear, in standard deviations of the
            training targets.
    """

    losses: ClassVar[Losses] = NUMBER

    loss: str = "squared-error"
    huber_delta: PositiveFloat = 1.0


class RegressionRecipe(WholeTextRecipe):
    """A whole recipe."""

    task: RegressionConfig
    objective: ObjectiveConfig = ObjectiveConfig()

    scored_metrics: ClassVar[frozenset[str]] = frozenset({"pearson", "spearman"})

    def metric_names(self) -> set[str]:
        """What validation measures: the mean loss of the standardised targets."""
        return {"loss"}


@dataclass(frozen=True, repr=False)
class NumberPrediction(Prediction):
    """A predicted number; ``text`` has six significant digits, and ``score`` is unused.

    Args:
        value: the number, in the unit of the training targets; NaN: the input is empty.
        interval: its lower and upper end; None: unknown.
    """

    value: float = math.nan
    interval: tuple[float, float] | None = None
    has_score: ClassVar[bool] = False

    @property
    def output(self) -> object:
        """The number."""
        return self.value

    def details(self) -> JsonObject:
        """Return the interval."""
        return {"interval": None if self.interval is None else list(self.interval)}


_DIGITS = re.compile(r"([-+]?)([0-9]+(?:[.,'’_\s][0-9]+)*)")
_THOUSANDS = re.compile(r"\d{1,3}(?P<mark>[.,'’_\s])\d{3}(?:(?P=mark)\d{3})*(?:[.,]\d+)?")


def number_hint(text: str) -> str:
    """Return how a number with a decimal comma, marks between thousands, or a percent sign is written.

    ``1,001`` may be either, so both are named.
    """
    number = _in_ascii(text.removesuffix("%"))
    if text.endswith("%") and (_DIGITS.fullmatch(number) is not None):
        rest = number_hint(number)
        return f"; write all without the percent sign{rest.replace('; write', ', and this as', 1)}"
    match = _DIGITS.fullmatch(number)
    if match is None:
        return ""
    sign, digits = match.groups()
    marks = [character for character in digits if not character.isdigit()]
    if not marks:
        return f"; write {number!r}" if number != text else ""
    whole, last, fraction = digits.rpartition(marks[-1])
    without = sign + "".join(filter(str.isdigit, digits))
    pointed = f"{sign}{''.join(filter(str.isdigit, whole))}.{fraction}"
    has_thousands = _THOUSANDS.fullmatch(digits) is not None
    if len(marks) == 1 and has_thousands and last == ",":
        return (
            f"; this is ambiguous: write {pointed!r} if the comma is a decimal comma, or {without!r} if it "
            "separates thousands, and so in all rows"
        )
    if len({*marks}) == 1 and (has_thousands or len(marks) > 1):
        in_threes = len(fraction) == 3
        return f"; write {without!r}, without marks between thousands" if has_thousands and in_threes else ""
    return f"; write {pointed!r}, with a decimal point" if last in ",." else ""


def _in_ascii(text: str) -> str:
    """Return digits of other scripts and the minus sign of typography as those of ASCII."""
    digits = (str(unicodedata.decimal(character, character)) for character in text)
    return "".join(digits).replace("\u2212", "-").strip()


def parse_target(row: LocatedRow[Row], column: str = LABEL) -> float:
    """Return the target of a row: a column, by default ``label``, as a number.

    Raises:
        DataError: if it is not a finite number, or too large.
    """
    text = row.row[column]
    try:
        # Python also reads the digits of other scripts, and 1_000, as numbers; other programs do not.
        if not text.isascii() or "_" in text:
            raise ValueError(text)
        target = float(text)
    except ValueError:
        hint = number_hint(text)
        raise DataError(f"{row.location}: expected a number as {column}, got {text!r}{hint}") from None
    if not math.isfinite(target):
        raise DataError(f"{row.location}: the {column} {text!r} is not a finite number; leave the row out")
    if abs(target) > LARGEST:
        raise DataError(
            f"{row.location}: the {column} must be at most {LARGEST:g} in magnitude, got {text}; choose "
            "another unit"
        )
    return target


@dataclass(frozen=True)
class NumberProcessor(TextProcessor):
    """The tokenizer of the texts, and the scale of the targets."""

    scale: Scale


class Regression(WholeTextTask):
    """Predict a number for a text, or for a pair of texts."""

    Recipe = RegressionRecipe
    Processor = NumberProcessor
    info = TaskInfo(
        unit="examples",
        evaluation_verb="estimating",
        memory_advice="lower model.max_length (language models: model.context)",
        predicts_numbers=True,
    )
    validation_terms: ClassVar = {"loss": VALUE}

    recipe: RegressionRecipe
    processor: NumberProcessor
    residuals: Sequence[float] = ()

    @property
    def columns(self) -> Columns:
        """The columns of a labelled text, of which the label is a number."""
        return replace(super().columns, numeric=(LABEL,))

    def processor_with(self, tokenizer: Tokenizer, read_rows: RowReader) -> NumberProcessor:
        """Compute the mean and the deviation of the training targets.

        Raises:
            DataError: if a target is not a number, or all are equal.
        """
        targets = np.array([parse_target(row) for row in read_rows() if self.has_target(row.row)])
        if len(targets) == 0 or np.ptp(targets) == 0:
            problem = f"all labels are {targets[0]:g}" if len(targets) else "there are no rows"
            raise DataError(f"{problem}; at least two different numbers are needed")
        return NumberProcessor(tokenizer, Scale(float(targets.mean()), float(targets.std())))

    def target_ids(self, row: LocatedRow[Row]) -> list[int]:
        """Return the eight bytes of the target as a float64."""
        ids: list[int] = np.array([parse_target(row)], dtype="<f8").view(np.uint8).tolist()
        return ids

    @property
    def n_target_ids(self) -> int:
        """256: each id is a byte."""
        return 256

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """Return a layer that computes one number."""
        return {VALUE: class_head(self.recipe.model.d_model, 1, self.recipe.model.dropout)}

    def unavailable_metrics(self, data: PreparedData) -> Mapping[str, str]:
        """Return the correlations, if all validation targets are equal."""
        targets = {parse_target(row) for row in data.valid_rows}
        if len(targets) != 1:
            return {}
        reason = f"all labels of data.valid are {targets.pop():g}; add rows with other labels"
        return dict.fromkeys(self.recipe.scored_metrics, reason)

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Fill in word vectors, and log the scale of the targets."""
        super().initialise(model, log)
        scale = self.processor.scale
        log(f"labels: mean {scale.mean:.6g}, standard deviation {scale.deviation:.6g}")

    def with_targets(self, batch: Batch, target_ids: Sequence[NDArray[np.integer]]) -> Batch:
        """Return the batch with the standardised targets."""
        targets = np.concatenate([np.asarray(ids, dtype=np.uint8).view("<f8") for ids in target_ids])
        return replace(batch, values=torch.from_numpy(self.processor.scale.standardised(targets)).float())

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return random texts of about ``length`` tokens, with targets from -1 to 1."""
        batch = synthetic_texts(sizes[0], n, length, len(self.text_columns), self.recipe.template)
        return replace(batch, values=torch.linspace(-1, 1, n))

    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict a number for each input, a text or a pair of texts."""
        outputs = self.model_outputs(model, inputs, values, options.progress)
        predictions = [self.processor.scale.restored(output.output.item()) for output in outputs]
        q = self._half_width
        return [
            NumberPrediction(
                f"{prediction:.6g}",
                notes=output.notes,
                cut=output.cut,
                value=prediction,
                interval=None if q is None else (prediction - q, prediction + q),
            )
            for prediction, output in zip(predictions, outputs, strict=True)
        ]

    @property
    def _half_width(self) -> float | None:
        coverage = self.recipe.task.coverage
        return None if coverage is None else half_width(self.residuals, coverage)

    def tune(self, model: Model, data: PreparedData, log: Log) -> Tuned:
        """Return the errors on the validation rows, from which intervals are computed."""
        coverage = self.recipe.task.coverage
        if coverage is None:
            return NOT_TUNED

        def standardised(model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
            assert batch.values is not None
            return values(model(batch.inputs), model.heads, batch.inputs.layout), batch.values

        predicted, targets = (
            self.processor.scale.restored(torch.cat(parts).double()).numpy()
            for parts in zip(*collect_outputs(self, model, standardised, data.valid), strict=True)
        )
        residuals = residuals_of(predicted, targets)
        if (q := half_width(residuals.residuals, coverage)) is None:
            log(
                f"no intervals: {len(targets)} validation rows are too few for task.coverage={coverage:g}; "
                f"{fewest_rows(coverage)} are needed"
            )
            return NOT_TUNED
        log(f"intervals that contain {coverage:.0%} of the targets: ± {q:.4g}")
        return Tuned(records={RESIDUALS: residuals.model_dump()})

    def load_tuned(self, folder: RunFolder) -> None:
        """Read the errors on the validation rows."""
        super().load_tuned(folder)
        self.residuals = read_residuals(folder.residuals)

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare a text or pair of texts; the prediction is a number, which has no probability."""
        options.refuse_target(self.recipe.task.kind, "the answer is a number")
        batch, axes = self.text_input(task_input)
        restored = self.processor.scale.restored

        def predicted_number(hidden: Tensor, batch: Batch) -> Tensor:
            return restored(values(hidden, model.heads, batch.inputs.layout))

        return ModelInput(batch, axes, answer, PredictionTargets.of_number(predicted_number, answer.text))

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
        """Return the rows with a number; others cannot be scored."""
        return labelled_rows(rows, limit)

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that every target is a number."""
        for row in rows:
            parse_target(row)

    def metrics(
        self, model: Model, predicted: PredictedRows[NumberPrediction]
    ) -> tuple[list[Score], list[str]]:
        """Return Pearson and Spearman correlation, the mean squared error, and scores of the intervals."""
        numbers = [prediction.value for prediction in predicted.predictions]
        targets = [parse_target(row) for row in predicted.rows]
        scores = regression_scores(numbers, targets)
        intervals = [prediction.interval for prediction in predicted.predictions if prediction.interval]
        if intervals and (coverage := self.recipe.task.coverage):
            n = len(self.residuals)
            scores += interval_scores(np.array(intervals), targets, coverage=coverage, rows=n)
        unknown = unknown_notes_by_column(self.processor.text, self.texts_of(predicted.rows))
        return scores, [*Points.of(row.row[LABEL] for row in predicted.rows).notes(LABEL), *unknown]

    def compared(self, predicted: PredictedRows[NumberPrediction]) -> Iterator[JsonMapping]:
        """Yield the target of each row."""
        return ({"target": parse_target(row)} for row in predicted.rows)
