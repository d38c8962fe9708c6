"""Multi-label classification: any number of labels for a text, or for a pair of texts.

row -> token ids, 0 or 1 for each label -> batch -> model -> loss
text -> token ids -> hidden states -> probability of each label -> labels

    loss = - sum_i 1/C sum_c [y_ic log p_ic + (1 - y_ic) log(1 - p_ic)],     p_i = sigmoid(W pooled_i + w_0)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from heedful.artifacts.run_folder import THRESHOLDS, RunFolder
from heedful.data.batch import Batch
from heedful.data.findings import SEPARATORS, parts_between
from heedful.data.report import Tally
from heedful.data.sources import LocatedRow, Location, Row
from heedful.data.store import TokenStore
from heedful.models.base import Model
from heedful.objectives.classification import class_logits
from heedful.objectives.registry import Losses
from heedful.objectives.terms import Term
from heedful.recipes import schema
from heedful.tasks.base import Log, PreparedData, RowReader
from heedful.tasks.calibration import Classes, Tuned, collect_outputs
from heedful.tasks.classification import (
    Classification,
    ClassificationConfig,
    ClassificationRecipe,
    LabelProcessor,
)
from heedful.tasks.evaluation import Batches, PredictedRows
from heedful.tasks.inputs.labels import (
    LABEL,
    Labels,
    UnknownLabels,
    check_known,
    collect_labels,
    first_labels,
    known_label,
    label_index,
    unseen_labels,
)
from heedful.tasks.inputs.texts import PAIR, unknown_notes_by_column
from heedful.tasks.metrics.calibration import brier_score, calibration_scores
from heedful.tasks.metrics.classification import label_set_scores
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import INPUT, AnswerOptions, ModelInput, PredictionTargets
from heedful.tasks.prediction import DEFAULT_OPTIONS, GIVEN, Prediction, PredictOptions, TaskInput
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.tasks.text_task import WholeTextTask, synthetic_texts
from heedful.tasks.thresholds import (
    DEFAULT,
    Thresholds,
    best_threshold,
    given_thresholds,
    read_thresholds,
    shown,
)
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonMapping, JsonObject

Threshold = Annotated[float, Field(gt=0, lt=1)]


class MultilabelConfig(ClassificationConfig):
    """Predict any number of labels for a text.

    Data columns are ``text`` and ``label``, and ``pair`` for a second text. ``label`` is a list, or a text
    with separators; it may be empty.

    Args:
        separator: what is between two labels in a text.
        threshold: a label is predicted if its probability is greater: a number for all labels, numbers by
            label (0.5 for those left out), or ``tuned``. That computes, at the end of training, the threshold
            of each label with the best F1 on the validation data; until then it is 0.5.
    """

    kind: Literal["multilabel-classification"] = "multilabel-classification"  # type: ignore[assignment]
    separator: Annotated[str, Field(min_length=1)] = ","
    threshold: Literal["tuned"] | Threshold | dict[str, Threshold] = DEFAULT


class BinaryCrossEntropy:
    """Binary cross-entropy of every label, averaged over the labels; see the top of the file.

    Terms: ``class`` (the loss), and ``correct``: how often all labels of a text are right at the threshold
    0.5.
    """

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of both terms: the number of sequences."""
        return dict.fromkeys(("class", "correct"), batch.inputs.layout.n_sequences)

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["pooled"]`` and ``heads["class"]``, and compute the terms."""
        assert batch.values is not None
        logits = class_logits(hidden, heads, batch.inputs.layout)
        targets = batch.values.view_as(logits)
        losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        correct = ((logits.detach() > 0) == (targets > 0)).all(-1).sum().float()
        return [
            Term("class", losses.mean(-1).sum(), len(logits)),
            Term("correct", correct, len(logits), weight=0.0),
        ]


class ObjectiveConfig(schema.ObjectiveConfig):
    """The loss on the labels.

    Args:
        loss: ``binary-cross-entropy``.
    """

    losses: ClassVar[Losses] = {"binary-cross-entropy": lambda c: BinaryCrossEntropy()}

    loss: str = "binary-cross-entropy"


class MultilabelRecipe(ClassificationRecipe):
    """A whole recipe."""

    task: MultilabelConfig
    objective: ObjectiveConfig = ObjectiveConfig()  # type: ignore[assignment]

    class_column: ClassVar[str | None] = None  # a row may have several labels
    scored_metrics: ClassVar[frozenset[str]] = frozenset({"micro-f1", "macro-f1", "exact-match"})


@dataclass(frozen=True, repr=False)
class LabelSet(Prediction):
    """The prediction of labels; ``text`` has them with separators, and ``score`` is unused.

    Args:
        labels: those whose probability exceeds their threshold, in their order.
        probabilities: of every label.
    """

    labels: list[str] = field(default_factory=list)
    probabilities: dict[str, float] = field(default_factory=dict)
    has_score: ClassVar[bool] = False

    @property
    def output(self) -> object:
        """The labels."""
        return self.labels

    def details(self) -> JsonObject:
        """Return the probability of every label."""
        return {"probabilities": self.probabilities}

    def label_probabilities(self) -> dict[str, float]:
        """Return the probability of every label."""
        return self.probabilities

    def predicted_note(self) -> str:
        """Return the note of other labels, which are explained instead of these."""
        found = ", ".join(f"{label} (probability {self.probabilities[label]:.4g})" for label in self.labels)
        return f"the run itself answers {found or 'no label'}"


def labels_of(row: Row, separator: str) -> list[str]:
    """Return the labels of a row, each once, without white space at their ends."""
    value = row[LABEL]
    labels = value.split(separator) if isinstance(value, str) else value
    return list(dict.fromkeys(stripped for label in labels if (stripped := label.strip())))


class MultilabelClassification(Classification):
    """Predict any number of labels for a text, or for a pair of texts."""

    Recipe: ClassVar[type[MultilabelRecipe]] = MultilabelRecipe  # type: ignore[assignment]
    info = TaskInfo(
        unit="examples",
        evaluation_verb="labelling",
        memory_advice="lower model.max_length (language models: model.context)",
    )

    recipe: MultilabelRecipe
    tuned: Thresholds | None = None

    @property
    def columns(self) -> Columns:
        """The texts and the labels."""
        return Columns((*self.text_columns, LABEL), self.text_columns, extra=(PAIR,), list_valued=(LABEL,))

    def processor_with(self, tokenizer: Tokenizer, read_rows: RowReader) -> LabelProcessor:
        """Collect the labels.

        Raises:
            DataError: for a label that the recipe does not name, or fewer than two.
        """
        labels = collect_labels(
            self._located_labels(read_rows()), self.recipe.task.labels, is_split=bool(self.recipe.data.split)
        )
        return LabelProcessor(tokenizer, labels)

    def split_labels(self, text: str) -> list[str]:
        """Return the labels in a text."""
        return labels_of({LABEL: text}, self.recipe.task.separator)

    def target_ids(self, row: LocatedRow[Row]) -> list[int]:
        """Return a 0 or 1 for each label."""
        labels = self.processor.labels
        written = (known_label(label, labels) for label in self._labels(row))
        indices = {label_index(label, labels, row.location) for label in written}
        return [int(i in indices) for i in range(len(labels))]

    def unseen_labels(self, row: LocatedRow[Row]) -> Sequence[str]:
        """Return the labels of the row that do not occur in the training rows."""
        return unseen_labels(self._labels(row), self.processor.labels)

    def has_target(self, row: Row) -> bool:
        """Return True: a text may have no labels."""
        return True

    def _labels_in(self, target_ids: Sequence[int]) -> Iterator[str]:
        return (label for label, has in zip(self.processor.labels, target_ids, strict=True) if has)

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
        """Return all rows, their labels as training knows them."""
        known = self.processor.labels
        written = (
            LocatedRow(
                {**row.row, LABEL: [known_label(label, known) for label in self._labels(row)]}, row.location
            )
            for row in islice(rows, limit)
        )
        return list(written), {}

    @property
    def n_target_ids(self) -> int:
        """2: a label belongs to a text, or not."""
        return 2

    def with_targets(self, batch: Batch, target_ids: Sequence[NDArray[np.integer]]) -> Batch:
        """Return the batch with a 0 or 1 for each label."""
        return replace(batch, values=torch.from_numpy(np.stack(target_ids)).float())

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of texts with their labels."""
        return WholeTextTask.batches(self, store, training=training)

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return texts that differ by a token or two in length."""
        batch = synthetic_texts(sizes[0], n, length, len(self.text_columns), self.recipe.template)
        return replace(batch, values=(torch.arange(n * sizes[-1]) % 3 == 0).view(n, -1).float())

    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict a set of labels for each input, a text or a pair of texts."""
        thresholds = self.thresholds
        outputs = self.model_outputs(model, inputs, class_logits, options.progress)
        return [self._label_set(thresholds, *output) for output in outputs]

    def _label_set(
        self, thresholds: Thresholds, logits: Tensor, notes: tuple[str, ...], cut: int
    ) -> LabelSet:
        probabilities = dict(zip(self.processor.labels, logits.sigmoid().tolist(), strict=True))
        labels = [label for label, p in probabilities.items() if p > thresholds[label]]
        text = self.recipe.task.separator.join(labels)
        return LabelSet(text, notes=notes, cut=cut, labels=labels, probabilities=probabilities)

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare a text or pair of texts; each predicted label, or the target, is a question."""
        batch, axes = self.text_input(task_input)
        labels = self.processor.labels
        assert isinstance(answer, LabelSet)
        explained = answer.labels
        if options.target is not None:
            given = labels_of({LABEL: options.target}, self.recipe.task.separator)
            explained = check_known(given, labels)
            answer = self._given(answer, explained)
        elif not explained:
            likeliest = max(answer.probabilities, key=answer.probabilities.__getitem__)
            probability = answer.probabilities[likeliest]
            note = (
                f"no label; explained is the most probable one, {likeliest} (probability {probability:.4g})"
            )
            answer, explained = replace(answer, notes=(note, *answer.notes)), [likeliest]
        indices = [labels.index(label) for label in explained]
        heads = model.heads

        def logits(hidden: Tensor, batch: Batch) -> Iterator[Tensor]:
            # softmax([0, z]) is [1 - sigmoid(z), sigmoid(z)].
            z = class_logits(hidden, heads, batch.inputs.layout)[:, indices].flatten()
            yield torch.stack([torch.zeros_like(z), z], dim=-1)

        targets = PredictionTargets(
            INPUT,
            (),
            torch.ones(len(explained), dtype=torch.int64),
            logits,
            lambda i, target: explained[i] if target else f"not {explained[i]}",
        )
        return ModelInput(batch, axes, answer, targets)

    def _given(self, answer: LabelSet, labels: list[str]) -> LabelSet:
        """Return labels that were given; their notes name the predicted ones."""
        if {*labels} == {*answer.labels}:
            return answer
        notes = (GIVEN, answer.predicted_note(), *answer.notes)
        return replace(answer, text=self.recipe.task.separator.join(labels), labels=labels, notes=notes)

    # Thresholds --------------------------------------------------------------------------------------------

    @property
    def thresholds(self) -> Thresholds:
        """The threshold of each label, in their order; 0.5 as long as tuned ones are not known."""
        setting = self.recipe.task.threshold
        if setting == "tuned":
            return self.tuned or given_thresholds(DEFAULT, self.processor.labels)
        return given_thresholds(setting, self.processor.labels)

    def check_data(self, data: PreparedData) -> None:
        """Check that the recipe has no threshold for an unknown label."""
        if isinstance(setting := self.recipe.task.threshold, Mapping):
            given_thresholds(setting, self.processor.labels)

    def unavailable_metrics(self, data: PreparedData) -> Mapping[str, str]:
        """Return the F1 scores, if no validation row has a label."""
        rows, separator = data.valid_rows, self.recipe.task.separator
        if not rows or any(labels_of(row.row, separator) for row in rows):
            return {}
        return dict.fromkeys(("micro-f1", "macro-f1"), "no row of data.valid has a label; add some that do")

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Fill in word vectors, and log the labels, and their thresholds if the recipe has several."""
        super().initialise(model, log)
        if isinstance(self.recipe.task.threshold, Mapping):
            log(f"thresholds: {shown(self.thresholds)}")

    def classes_of(self, model: Model, batch: Batch) -> Classes:
        """Return the logits ``[0, z]`` of each label of each text, whose softmax is that of no and yes."""
        assert batch.values is not None
        z = class_logits(model(batch.inputs), model.heads, batch.inputs.layout).flatten()
        return torch.stack([torch.zeros_like(z), z], dim=-1), (batch.values.flatten() > 0).long()

    def tune(self, model: Model, data: PreparedData, log: Log) -> Tuned:
        """Return the temperature, and the thresholds with the best F1, if the recipe asks for them."""
        tuned = super().tune(model, data, log)
        if self.recipe.task.threshold != "tuned":
            return tuned
        labels = self.processor.labels
        parts = zip(*collect_outputs(self, model, self.classes_of, data.valid, most=None), strict=True)
        logits, classes = map(torch.cat, parts)
        probabilities = (logits[:, 1].view(-1, len(labels)) / tuned.temperature).sigmoid().numpy()
        targets = classes.view(-1, len(labels)).numpy() > 0
        columns = zip(labels, probabilities.T, targets.T, strict=True)
        thresholds = {label: best_threshold(ps, ys) for label, ps, ys in columns}
        log(f"thresholds with the best F1 on the validation data: {shown(thresholds)}")
        if missing := [label for label, ys in zip(labels, targets.T, strict=True) if not ys.any()]:
            log(f"no validation row has these labels, whose threshold is {DEFAULT}: {first_labels(missing)}")
        return replace(tuned, records={THRESHOLDS: {"version": 1, "thresholds": thresholds}})

    def load_tuned(self, folder: RunFolder) -> None:
        """Read the calibration, and the thresholds, if they are tuned ones."""
        super().load_tuned(folder)
        if self.recipe.task.threshold == "tuned":
            self.tuned = read_thresholds(folder.thresholds, self.processor.labels)

    # Evaluation --------------------------------------------------------------------------------------------

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that not all labels are unknown."""
        UnknownLabels.among(self._located_labels(rows), self.processor.labels)

    def metrics(self, model: Model, predicted: PredictedRows[LabelSet]) -> tuple[list[Score], list[str]]:
        """Return micro and macro F1, and the accuracy of whole sets; thresholds that differ are details."""
        unknown = UnknownLabels.among(self._located_labels(predicted.rows), self.processor.labels)
        label_sets = [set(prediction.labels) for prediction in predicted.predictions]
        targets = [set(self._labels(row)) for row in predicted.rows]
        scores = label_set_scores(label_sets, targets, (*self.processor.labels, *unknown.labels))
        probabilities = np.array(
            [[p.probabilities[label] for label in self.processor.labels] for p in predicted.predictions]
        )
        has_label = [[label in target for label in self.processor.labels] for target in targets]
        scores += self._probability_scores(probabilities, np.array(has_label))
        if not isinstance(self.recipe.task.threshold, float):
            thresholds = [*self.thresholds.values(), *(None for _ in unknown.labels)]
            scores[0] = replace(scores[0], details={**scores[0].details, "threshold": thresholds})
        texts = self.texts_of(predicted.rows)
        notes = [*unknown.notes(), *self._other_separators(unknown.labels)]
        notes += unknown_notes_by_column(self.processor.text, texts)
        if self.recipe.task.threshold == "tuned" and self.tuned is None:
            notes.append(f"task.threshold=tuned: training has not ended, so all thresholds are {DEFAULT}")
        return unknown.counted_in(scores), notes

    def _probability_scores(
        self, probabilities: NDArray[np.float64], has_label: NDArray[np.bool_]
    ) -> Iterator[Score]:
        """Yield the scores of the probabilities of all labels; an answer is whether a text has a label."""
        answers, flags = probabilities.flatten(), has_label.flatten()
        confidences, correct = np.maximum(answers, 1 - answers), (answers > DEFAULT) == flags
        unit = "decisions"  # those on one text depend on each other
        yield from calibration_scores(
            confidences, correct, unit=unit, temperature=self.temperature, is_independent=False
        )
        yield brier_score(np.stack([1 - answers, answers], -1), flags.astype(int).tolist(), unit=unit)

    def _other_separators(self, unknown: Labels) -> Iterator[str]:
        """Yield a note for each mark with which unknown labels consist of labels of the run."""
        known, separator = {*self.processor.labels}, self.recipe.task.separator
        for mark in SEPARATORS:
            for label in unknown:
                if (parts := parts_between(label, mark)) and parts <= known:
                    yield (
                        f"{label!r} consists of known labels and {mark!r}, but this run separates labels by "
                        f"{separator!r}; write them so, or as lists in JSON lines"
                    )
                    break

    def compared(self, predicted: PredictedRows[LabelSet]) -> Iterator[JsonMapping]:
        """Yield the right labels of each row, and whether they are those that were predicted."""
        for row, prediction in predicted:
            targets = self._labels(row)
            yield {"target": targets, "correct": set(targets) == set(prediction.labels)}

    def _labels(self, row: LocatedRow[Row]) -> list[str]:
        return labels_of(row.row, self.recipe.task.separator)

    def _located_labels(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[tuple[str, Location]]:
        return ((label, row.location) for row in rows for label in self._labels(row))
