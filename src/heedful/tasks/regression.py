"""Regression: a number for a text, or for a pair of texts.

row -> token ids, the number -> batch with standardised values -> model -> loss     `NumberProcessor`
text -> token ids -> hidden states -> value -> number                               `Regressor.predict`
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import PositiveFloat
from torch import nn

from heedful.artifacts.run_folder import RunFolder, read_entry, write_json
from heedful.config import Config
from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import LocatedRow, Location, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import DataError
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.objectives.registry import NUMBER, Losses
from heedful.objectives.regression import VALUE, values
from heedful.recipes import schema
from heedful.tasks.base import Columns, Log, Rows, TaskInfo
from heedful.tasks.labels import LABEL
from heedful.tasks.metrics.regression import regression_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import INPUT, AnswerOptions, ModelInput, Questions
from heedful.tasks.prediction import Prediction
from heedful.tasks.reading import Progress, Reader
from heedful.tasks.text_task import TextBatches, TextTask, WholeTextRecipe, synthetic_texts
from heedful.tasks.texts import (
    BUDGET,
    PAIR,
    TEXT,
    WITH_CLASS,
    Template,
    TemplateLimit,
    TextReader,
    encoded,
    text_columns,
)
from heedful.tasks.unknown import unknown_in
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping


class RegressionConfig(Config):
    """Predict a number for a text; data columns are ``text`` and ``label``, and ``pair`` for a second text.

    Args:
        pairs: whether each input is a pair of texts.
        framed: whether special tokens are put around the texts; false (language models and single texts
            only): the text alone, as GPT-2's classifiers in other libraries read it.
    """

    kind: Literal["regression"] = "regression"
    pairs: bool = False
    framed: bool = True


class ObjectiveConfig(schema.ObjectiveConfig):
    """The loss on the number, which is standardised by the training data; ``chunk`` is not used.

    Args:
        loss: by its name in `heedful.objectives.registry`; there are ``squared-error``, ``absolute-error``
            and ``huber``.
        huber_delta: for ``huber``: the error from which the loss is linear, in standard deviations of the
            training labels.
    """

    losses: ClassVar[Losses] = NUMBER

    loss: str = "squared-error"
    huber_delta: PositiveFloat = 1.0


class RegressionRecipe(WholeTextRecipe):
    """A whole recipe."""

    task: RegressionConfig
    objective: ObjectiveConfig = ObjectiveConfig()

    def metrics(self) -> set[str]:
        """What validation measures: the mean loss of the standardised numbers."""
        return {"loss"}

    @property
    def pairs(self) -> bool:
        """Whether each input is a pair of texts."""
        return self.task.pairs


@dataclass(frozen=True)
class Estimate(Prediction):
    """The prediction of a number; ``text`` has six significant digits, and ``score`` is unused.

    Args:
        value: the number, in the unit of the training labels.
    """

    value: float = 0.0


def number(text: str, where: Location) -> float:
    """Parse a label as a number.

    Raises:
        DataError: if it is not a finite number.
    """
    try:
        # Python also reads the digits of other scripts, and 1_000, as numbers; other programs do not.
        found = float(text if text.isascii() and "_" not in text else "")
    except ValueError:
        raise DataError(f"{where}: the label {text!r} is not a number") from None
    if not math.isfinite(found):
        raise DataError(f"{where}: the label {text!r} is not a finite number; leave the row out")
    return found


@dataclass(frozen=True)
class NumberProcessor:
    """The tokenizer of the texts, and the scale of the numbers: z = (number - mean) / deviation.

    Args:
        tokenizer: of both texts of a pair.
        mean: of the training data's numbers.
        deviation: their standard deviation (over n).
    """

    tokenizer: Tokenizer
    mean: float
    deviation: float

    @property
    def fingerprint(self) -> str:
        """Differs where anything is encoded differently."""
        return f"{self.tokenizer.fingerprint}-{self.mean!r}-{self.deviation!r}"

    @property
    def sizes(self) -> tuple[int]:
        """The size of the vocabulary."""
        return (self.tokenizer.vocab_size,)

    @staticmethod
    def files(folder: RunFolder) -> list[Path]:
        """The tokenizer and the scale."""
        return [folder.tokenizer(TEXT), folder.scale]

    def save(self, folder: RunFolder) -> None:
        """Write both files."""
        self.tokenizer.save(folder.tokenizer(TEXT))
        write_json(folder.scale, {"version": 1, "mean": self.mean, "deviation": self.deviation})

    @classmethod
    def load(cls, folder: RunFolder) -> "NumberProcessor":
        """Read both files."""
        mean, deviation = (read_entry(folder.scale, key, float) for key in ("mean", "deviation"))
        return cls(Tokenizer.load(folder.tokenizer(TEXT)), mean, deviation)

    def encode(self, rows: Iterable[LocatedRow[Row]], columns: Sequence[str]) -> Iterator[Encoded]:
        """Yield the ids of the texts of each row, and the eight bytes of its number."""
        for row, ids in encoded(self.tokenizer, rows, columns):
            plain = np.array([number(row.row[LABEL], row.where)], dtype="<f8")
            yield LocatedRow({**ids, LABEL: plain.view(np.uint8).tolist()}, row.where)

    def collate(
        self,
        parts: Sequence[Sequence[Any]],
        labels: Sequence[Any],
        samples: Sequence[int] = (),
        frame: Template = WITH_CLASS,
    ) -> Batch:
        """A batch of texts with their numbers, standardised; ``labels`` are as `encode` gives them."""
        plain = np.concatenate([np.asarray(label, dtype=np.uint8).view("<f8") for label in labels])
        standardised = torch.from_numpy((plain - self.mean) / self.deviation).float()
        return replace(frame(parts, samples), values=standardised)


class Regressor(Reader):
    """A model with its processor: texts in, numbers out, as many and in the same order.

    Args:
        model: has heads ``pooled`` and ``value``; put into evaluation mode here.
        processor: of texts and numbers.
        longest: the most tokens of a sequence; longer texts are truncated, and the prediction notes it.
        frame: the special tokens around the texts.
        budget: maximum number of tokens of a batch, with padding.
    """

    unaligned = "regression generates no text"

    def __init__(
        self,
        model: Model,
        processor: NumberProcessor,
        *,
        longest: int,
        frame: Template = WITH_CLASS,
        budget: int = BUDGET,
    ) -> None:
        self.processor = processor
        self.reader = TextReader(
            model, processor.tokenizer, longest=longest, answer=values, frame=frame, budget=budget
        )

    def answers(self, inputs: Sequence[str | Sequence[str]], progress: Progress) -> list[Prediction]:
        """Predict a number for each input, a text or a pair of texts."""
        return [self._estimate(*found) for found in self.reader.read(inputs, progress)]

    def _estimate(self, standardised: torch.Tensor, note: str | None, cut: int) -> Estimate:
        found = self.processor.mean + self.processor.deviation * standardised.item()
        return Estimate(f"{found:.6g}", note=note, value=found, cut=cut)


class Regression(TextTask):
    """Predict a number for a text, or for a pair of texts."""

    Recipe = RegressionRecipe
    Processor = NumberProcessor
    info = TaskInfo(
        unit="examples",
        evaluating="estimating",
        own_data=("table",),
        shorter="lower model.max_length, of a language model model.context",
    )
    answer = LABEL
    texts_of_all = (TEXT, PAIR)
    validation_terms: ClassVar = {"loss": VALUE}

    recipe: RegressionRecipe
    processor: NumberProcessor

    @property
    def texts(self) -> tuple[str, ...]:
        """One text, or two."""
        return text_columns(self.recipe.task.pairs)

    @property
    def columns(self) -> Columns:
        """The texts and the number."""
        return Columns((*self.texts, LABEL), self.texts, extra=(PAIR,), single=(LABEL,))

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """A layer that computes one number."""
        return {VALUE: class_head(self.recipe.model.d_model, 1, self.recipe.model.dropout)}

    def processor_with(self, tokenizer: Tokenizer, rows: Rows) -> NumberProcessor:
        """Compute the mean and the deviation.

        Raises:
            DataError: if a label is not a number, or all are equal.
        """
        numbers = np.array([number(row.row[LABEL], row.where) for row in rows()])
        if len(numbers) == 0 or np.ptp(numbers) == 0:
            found = f"all labels are {numbers[0]:g}" if len(numbers) else "there are no rows"
            raise DataError(f"{found}; at least two different numbers are needed")
        return NumberProcessor(tokenizer, float(numbers.mean()), float(numbers.std()))

    def encode_rows(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """The ids of the texts, and the number."""
        return self.processor.encode(rows, self.texts)

    def limits(self) -> Sequence[TemplateLimit]:
        """One limit, that all texts of a row share."""
        recipe = self.recipe
        return [TemplateLimit(self.texts, recipe.model.longest, recipe.frame, recipe.longest_key)]

    @property
    def n_answers(self) -> int:
        """256: a label is stored as the eight bytes of a float64."""
        return 256

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Log the scale of the numbers, too."""
        super().initialise(model, log)
        mean, deviation = self.processor.mean, self.processor.deviation
        log(f"labels: mean {mean:.6g}, standard deviation {deviation:.6g}")

    def batches(self, store: TokenStore) -> TextBatches:
        """Texts with their numbers."""
        frame = self.recipe.frame
        collate = partial(self.processor.collate, frame=frame)
        return TextBatches(store, self.texts, LABEL, self.recipe.model.longest, frame, collate)

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Texts that differ by a token or two in length."""
        batch = synthetic_texts(sizes[0], n, length, len(self.texts), self.recipe.frame)
        return replace(batch, values=torch.linspace(-1, 1, n))

    def predictor(self, model: Model, decoding: Any, inference: Inference, **options: Any) -> Regressor:
        """Predicts numbers."""
        longest, frame = self.recipe.model.longest, self.recipe.frame
        return Regressor(inference.ready(), self.processor, longest=longest, frame=frame, **options)

    def model_input(
        self, model: Model, given: Any, options: AnswerOptions, predict: Callable[..., Prediction]
    ) -> ModelInput:
        """Prepare a text or pair of texts; the question has no probability."""
        options.refuse_target(self.recipe.task.kind, "the answer is a number")
        batch, axes = self.framed_input(given)
        answer, processor, layout = predict(), self.processor, batch.inputs.layout
        questions = Questions(
            INPUT,
            (),
            torch.zeros(1, dtype=torch.int64),
            lambda hidden: iter([]),
            lambda i, number: answer.text,
            numbers=lambda hidden: (
                processor.mean + processor.deviation * values(hidden, model.heads, layout.to(hidden.device))
            ),
        )
        return ModelInput(batch, axes, answer, questions)

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Every label must be a number."""
        _numbers(rows)

    def metrics(
        self, model: Model, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Estimate]
    ) -> tuple[list[Score], list[str]]:
        """Pearson and Spearman correlation, and the mean squared error."""
        scores = regression_scores([each.value for each in predictions], _numbers(rows))
        return scores, unknown_in(self.processor.tokenizer, self.texts_of(rows))

    def records(
        self, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Estimate]
    ) -> Iterator[JsonMapping]:
        """The texts, the right number and the prediction."""
        for texts, label, found in zip(self.texts_of(rows), _numbers(rows), predictions, strict=True):
            yield {**texts, "label": label, "prediction": found.value}


def _numbers(rows: Sequence[LocatedRow[Row]]) -> list[float]:
    return [number(row.row[LABEL], row.where) for row in rows]
