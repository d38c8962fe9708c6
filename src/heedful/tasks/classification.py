"""Classification: a label for a text, or for a pair of texts.

row -> token ids, number of the label -> `Batch` -> model -> loss
text -> token ids -> hidden states -> class -> label
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from heedful.data.batch import Batch
from heedful.data.report import DataReport, Encoded, Tally
from heedful.data.sources import LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.objectives.classification import class_logits
from heedful.recipes.schema import ClassObjectiveConfig
from heedful.tasks.base import Log, RowReader
from heedful.tasks.calibration import CalibrationConfig, Classes, classes_of_sequences
from heedful.tasks.class_weights import with_class_weights
from heedful.tasks.evaluation import Batches, PredictedRows
from heedful.tasks.inputs.labels import (
    FEWEST_LABELS,
    LABEL,
    Labels,
    LabelsConfig,
    UnknownLabels,
    collect_labels,
    compared_labels,
    first_labels,
    given_label,
    known_label,
    label_index,
    label_prediction,
    label_scores,
    labelled_rows,
    located_label,
    unseen_labels,
)
from heedful.tasks.inputs.processor import TextProcessor
from heedful.tasks.inputs.texts import unknown_notes_by_column
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import AnswerOptions, ModelInput, PredictionTargets
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, TaskInput
from heedful.tasks.task_info import TaskInfo
from heedful.tasks.text_task import WholeTextConfig, WholeTextRecipe, WholeTextTask, synthetic_texts
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping


class ClassificationConfig(LabelsConfig, CalibrationConfig, WholeTextConfig):
    """Predict a label for a text; columns are ``text`` and ``label``, and ``pair`` for a second text."""

    kind: Literal["classification"] = "classification"


class ClassificationRecipe(WholeTextRecipe):
    """A whole recipe."""

    task: ClassificationConfig
    objective: ClassObjectiveConfig = ClassObjectiveConfig()

    class_column: ClassVar[str | None] = LABEL
    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})
    scored_metrics: ClassVar[frozenset[str]] = frozenset({"macro-f1", "micro-f1"})

    def metric_names(self) -> set[str]:
        """What validation measures."""
        return {"loss", "accuracy"}


@dataclass(frozen=True)
class LabelProcessor(TextProcessor):
    """The tokenizer of the texts, and all labels in the order of their numbers."""

    labels: Labels


class Classification(WholeTextTask):
    """Predict a label for a text, or for a pair of texts."""

    Recipe = ClassificationRecipe
    Processor = LabelProcessor
    info = TaskInfo(
        unit="examples",
        evaluation_verb="labelling",
        memory_advice="lower model.max_length (language models: model.context)",
        options=("n_best", "threshold"),
    )
    validation_terms: ClassVar = {"loss": "class", "accuracy": "correct"}
    calibrated_head: ClassVar[str] = "class"

    recipe: ClassificationRecipe
    processor: LabelProcessor

    def processor_with(self, tokenizer: Tokenizer, read_rows: RowReader) -> LabelProcessor:
        """Collect the labels.

        Raises:
            DataError: for a label that the recipe does not name, or fewer than two.
        """
        return LabelProcessor(
            tokenizer,
            collect_labels(
                map(located_label, read_rows()),
                self.recipe.task.labels,
                is_split=bool(self.recipe.data.split),
            ),
        )

    def target_ids(self, row: LocatedRow[Row]) -> list[int]:
        """Return the number of the label."""
        labels = self.processor.labels
        return [label_index(known_label(row.row[LABEL], labels), labels, row.location)]

    def unseen_labels(self, row: LocatedRow[Row]) -> Sequence[str]:
        """Return the label, if it does not occur in the training rows."""
        return unseen_labels([row.row[LABEL]], self.processor.labels)

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the ids of the rows that can be used, and count their labels."""
        for row in super().encode(rows, report):
            report.classes.update(self._labels_in(row.row[LABEL]))
            yield row

    def _labels_in(self, target_ids: Sequence[int]) -> Iterator[str]:
        """Yield the labels of a row, given its `target_ids`."""
        return (self.processor.labels[index] for index in target_ids)

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
        """Return the rows with a label; others cannot be scored."""
        return labelled_rows(rows, limit, self.processor.labels)

    @property
    def n_target_ids(self) -> int:
        """The number of labels."""
        return len(self.processor.labels)

    def expected_sizes(self, vocab_sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes with the number of labels; two if the recipe does not name them."""
        return (*vocab_sizes, len(self.recipe.task.labels or ()) or FEWEST_LABELS)

    def heads(self, sizes: Sequence[int]) -> dict[str, nn.Module]:
        """Return a layer that computes the logits of the classes."""
        return {"class": class_head(self.recipe.model.d_model, sizes[-1], self.recipe.model.dropout)}

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Fill in word vectors, and log the labels."""
        super().initialise(model, log)
        log(f"{len(self.processor.labels)} labels: {first_labels(self.processor.labels)}")

    def with_targets(self, batch: Batch, target_ids: Sequence[NDArray[np.integer]]) -> Batch:
        """Return the batch with the numbers of the labels."""
        return replace(batch, classes=torch.tensor([int(ids[0]) for ids in target_ids]))

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of texts with their labels; training labels may have weights."""
        batches = super().batches(store, training=training)
        if not training:
            return batches
        setting, labels = self.recipe.objective.class_weights, self.processor.labels
        return with_class_weights(batches, setting, labels, store.stream(LABEL))

    def classes_of(self, model: Model, batch: Batch) -> Classes:
        """Return the logits of the labels of each text, and its label."""
        return classes_of_sequences(model, batch)

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return texts that differ by a token or two in length."""
        batch = synthetic_texts(sizes[0], n, length, len(self.text_columns), self.recipe.template)
        return replace(batch, classes=torch.arange(n) % sizes[-1])

    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict a label for each input, a text or a pair of texts.

        A prediction's ``score`` is the label's log-probability, its ``alternatives`` are the next labels.

        Args:
            model: a trained model.
            inputs: texts, or pairs of texts.
            options: ``n_best``, the number of labels, and ``progress``.
        """
        labels, n_best = self.processor.labels, options.n_best or 1
        outputs = self.model_outputs(model, inputs, class_logits, options.progress)
        return [
            replace(label_prediction(logits.log_softmax(-1), labels, n_best), notes=notes, cut=cut)
            for logits, notes, cut in outputs
        ]

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare a text or pair of texts; the target may be a label other than the predicted one."""
        batch, axes = self.text_input(task_input)
        if options.target is not None:
            answer = given_label(answer, options.target, self.processor.labels)
        targets = PredictionTargets.of_class(model, self.processor.labels, answer.text)
        return ModelInput(batch, axes, answer, targets)

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that not all labels are unknown."""
        UnknownLabels.among(map(located_label, rows), self.processor.labels)

    def metrics(self, model: Model, predicted: PredictedRows[Any]) -> tuple[list[Score], list[str]]:
        """Return accuracy, macro and micro F1, and the scores of the probabilities."""
        scores, notes = label_scores(predicted, self.processor.labels, self.temperature)
        texts = self.texts_of(predicted.rows)
        return scores, [*notes, *unknown_notes_by_column(self.processor.text, texts)]

    def compared(self, predicted: PredictedRows[Any]) -> Iterator[JsonMapping]:
        """Yield the right label of each row, and whether it was predicted."""
        return compared_labels(predicted)
