"""Regression: a number y for a text, or for a pair of texts.

    z = (y - mean) / deviation    of the training labels (over n); the model predicts z, which gives y
    loss = mean of (z - ẑ)²       in units of the deviation, or another of `heedful.objectives.regression`

row -> token ids, label -> batch with standardised labels -> model -> loss
    `processor_with` (once), `target_ids` (each row), `with_targets` (each batch), `heads` (the model)
text -> token ids -> hidden states -> z -> y
    `predict`

A data store holds integers, so a label is stored as the eight bytes of a float64.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import PositiveFloat
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.objectives.registry import NUMBER, Losses
from heedful.objectives.regression import VALUE, values
from heedful.recipes import schema
from heedful.tasks.base import Log, Rows, TaskInfo
from heedful.tasks.inputs.labels import LABEL
from heedful.tasks.inputs.processor import Scale, TextProcessor
from heedful.tasks.inputs.texts import unknown_notes_by_column
from heedful.tasks.metrics.regression import regression_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import AnswerOptions, ModelInput, Questions
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, TaskInput, as_type
from heedful.tasks.text_task import WholeTextConfig, WholeTextRecipe, WholeTextTask, synthetic_texts
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping


class RegressionConfig(WholeTextConfig):
    """Predict a number for a text; columns are ``text`` and ``label``, and ``pair`` for a second text."""

    kind: Literal["regression"] = "regression"


class ObjectiveConfig(schema.ObjectiveConfig):
    """The loss on the standardised label. The inherited key ``chunk`` has no effect.

    Args:
        loss: a name in `heedful.objectives.registry`: ``squared-error``, ``absolute-error`` or ``huber``.
        huber_delta: for ``huber``: the error beyond which the loss is linear, in standard deviations of the
            training labels.
    """

    losses: ClassVar[Losses] = NUMBER

    loss: str = "squared-error"
    huber_delta: PositiveFloat = 1.0


class RegressionRecipe(WholeTextRecipe):
    """A whole recipe."""

    task: RegressionConfig
    objective: ObjectiveConfig = ObjectiveConfig()

    def metric_names(self) -> set[str]:
        """What validation measures: the mean loss of the standardised numbers."""
        return {"loss"}


@dataclass(frozen=True)
class Estimate(Prediction):
    """The prediction of a number; ``text`` has six significant digits, and ``score`` is unused.

    Args:
        value: the number, in the unit of the training labels.
    """

    value: float = 0.0


def parse_number(row: LocatedRow[Row]) -> float:
    """Parse the label of a row as a number.

    Raises:
        DataError: if it is not a finite number.
    """
    text = row.row[LABEL]
    try:
        # Python also reads the digits of other scripts, and 1_000, as numbers; other programs do not.
        if not text.isascii() or "_" in text:
            raise ValueError(text)
        value = float(text)
    except ValueError:
        raise DataError(f"{row.where}: the label {text!r} is not a number; correct it") from None
    if not math.isfinite(value):
        raise DataError(f"{row.where}: the label {text!r} is not a finite number; leave the row out")
    return value


@dataclass(frozen=True)
class NumberProcessor(TextProcessor):
    """The tokenizer of the texts, and the scale of the numbers."""

    scale: Scale


class Regression(WholeTextTask):
    """Predict a number for a text, or for a pair of texts."""

    Recipe = RegressionRecipe
    Processor = NumberProcessor
    info = TaskInfo(
        unit="examples",
        evaluating="estimating",
        own_data=("table",),
        shorter="lower model.max_length (language models: model.context)",
    )
    validation_terms: ClassVar = {"loss": VALUE}

    recipe: RegressionRecipe
    processor: NumberProcessor

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """A layer that computes one number."""
        return {VALUE: class_head(self.recipe.model.d_model, 1, self.recipe.model.dropout)}

    def processor_with(self, tokenizer: Tokenizer, rows: Rows) -> NumberProcessor:
        """Compute the mean and the deviation.

        Raises:
            DataError: if a label is not a number, or all are equal.
        """
        numbers = np.array([parse_number(row) for row in rows()])
        if len(numbers) == 0 or np.ptp(numbers) == 0:
            problem = f"all labels are {numbers[0]:g}" if len(numbers) else "there are no rows"
            raise DataError(f"data.train: {problem}; at least two different numbers are needed")
        return NumberProcessor(tokenizer, Scale(float(numbers.mean()), float(numbers.std())))

    def target_ids(self, row: LocatedRow[Row]) -> list[int]:
        """The eight bytes of the number as a float64."""
        ids: list[int] = np.array([parse_number(row)], dtype="<f8").view(np.uint8).tolist()
        return ids

    @property
    def n_target_ids(self) -> int:
        """256: each id is a byte."""
        return 256

    def with_targets(self, batch: Batch, answers: Sequence[NDArray[np.integer]]) -> Batch:
        """The batch with the standardised labels."""
        labels = np.concatenate([np.asarray(answer, dtype=np.uint8).view("<f8") for answer in answers])
        return replace(batch, values=torch.from_numpy(self.processor.scale.standardised(labels)).float())

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Log the scale of the numbers, too."""
        super().initialise(model, log)
        scale = self.processor.scale
        log(f"labels: mean {scale.mean:.6g}, standard deviation {scale.deviation:.6g}")

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Random texts of about ``length`` tokens, with labels from -1 to 1."""
        batch = synthetic_texts(sizes[0], n, length, len(self.texts), self.recipe.template)
        return replace(batch, values=torch.linspace(-1, 1, n))

    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict a number for each input, a text or a pair of texts."""
        outputs = self.model_outputs(model, inputs, values, options.progress)
        numbers = [self.processor.scale.restored(output.output.item()) for output in outputs]
        return [
            Estimate(f"{value:.6g}", note=output.note, cut=output.cut, value=value)
            for value, output in zip(numbers, outputs, strict=True)
        ]

    def model_input(
        self, model: Model, given: TaskInput, options: AnswerOptions, predict: Callable[..., Prediction]
    ) -> ModelInput:
        """Prepare a text or pair of texts; the answer is a number, which has no probability."""
        options.refuse_target(self.recipe.task.kind, "the answer is a number")
        batch, axes = self.text_input(given)
        answer, restored, layout = predict(), self.processor.scale.restored, batch.inputs.layout

        def predicted(hidden: Tensor) -> Tensor:
            return restored(values(hidden, model.heads, layout.to(hidden.device)))

        return ModelInput(batch, axes, answer, Questions.of_number(predicted, answer.text))

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that every label is a number."""
        for row in rows:
            parse_number(row)

    def metrics(
        self, model: Model, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction]
    ) -> tuple[list[Score], list[str]]:
        """Pearson and Spearman correlation, and the mean squared error."""
        estimates = [estimate.value for estimate in as_type(Estimate, predictions)]
        scores = regression_scores(estimates, [parse_number(row) for row in rows])
        return scores, unknown_notes_by_column(self.processor.text, self.texts_of(rows))

    def records(
        self, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction]
    ) -> Iterator[JsonMapping]:
        """The texts, the right number and the prediction."""
        estimates = as_type(Estimate, predictions)
        for row, texts, estimate in zip(rows, self.texts_of(rows), estimates, strict=True):
            yield {**texts, "label": parse_number(row), "prediction": estimate.value}
