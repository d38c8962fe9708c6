"""Classification of images.

row -> pixels, number of the label -> `Batch.of_images` -> model -> loss
path -> pixels -> hidden states -> class -> label
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from heedful.config import Config
from heedful.data.augmentation import Augmentation, augmented
from heedful.data.batch import Batch
from heedful.data.images import IMAGE, LazyImage
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import FolderSource, LocatedRow, Row, UserTable, user_table
from heedful.data.store import TokenStore
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.models.registry import build_model
from heedful.models.resnet import ResNetConfig
from heedful.models.vision import VisionConfig
from heedful.nn.patches import Images
from heedful.objectives.classification import class_logits
from heedful.recipes import schema
from heedful.tasks.base import Log, RowReader, Task
from heedful.tasks.class_weights import with_class_weights
from heedful.tasks.embedding import EmbeddingInputs
from heedful.tasks.evaluation import Batches
from heedful.tasks.inputs.images import DROP_HINT, LEVELS, ImageReader
from heedful.tasks.inputs.labels import (
    FEWEST_LABELS,
    LABEL,
    Labels,
    LabelsConfig,
    UnknownLabels,
    collect_labels,
    first_labels,
    label_index,
    label_prediction,
    label_records,
    label_scores,
    located_label,
)
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import INPUT, AnswerOptions, ModelInput, PredictionTargets, patches_axis
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, TaskInput
from heedful.tasks.pretrained import start_image_reader
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.typing import JsonMapping

BUDGET = 8192
"""Maximum number of tokens of the images in a batch of predictions."""


class ImageClassificationConfig(LabelsConfig):
    """A label for an image; the data have the columns ``image`` and ``label``."""

    kind: Literal["image-classification"] = "image-classification"


class Filter(Config):
    """What to do with images that cannot be read.

    Args:
        unreadable: stop at the first, or leave them out and count them.
    """

    unreadable: Literal["error", "drop"] = "error"


class DataConfig(schema.DataConfig):
    """Rows with an image and a label.

    Args:
        filter: what to do with those that cannot be read.
    """

    filter: Filter = Filter()


class ImageClassificationRecipe(schema.Recipe):
    """A whole recipe. ``training.tokens_per_update`` counts ``model.n_tokens`` for each image.

    Args:
        augmentation: how training images are changed in every epoch.
    """

    task: ImageClassificationConfig
    data: DataConfig
    augmentation: Augmentation = Augmentation()
    model: Annotated[VisionConfig | ResNetConfig, Field(discriminator="kind")]
    objective: schema.ClassObjectiveConfig = schema.ClassObjectiveConfig()
    validation: schema.NoValidationConfig = schema.NoValidationConfig()
    decoding: schema.NoDecodingConfig | None = None
    evaluation: schema.EvaluationConfig = schema.EvaluationConfig()

    class_column: ClassVar[str | None] = LABEL
    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})
    scored_metrics: ClassVar[frozenset[str]] = frozenset({"macro-f1", "micro-f1"})

    def metric_names(self) -> set[str]:
        """What validation measures."""
        return {"loss", "accuracy"}


@dataclass(frozen=True)
class ImageProcessor(TaskProcessor):
    """How images are read, and the labels in the order of their numbers."""

    reader: ImageReader
    labels: Labels


class ImageBatches:
    """Batches of images with their classes.

    Args:
        store: pixels and labels.
        processor: of the run.
        n_tokens: of an image.
        augmentation: how images are changed; None: not at all.
        seed: of the augmentation.
    """

    def __init__(
        self,
        store: TokenStore,
        processor: ImageProcessor,
        n_tokens: int,
        augmentation: Augmentation | None = None,
        seed: int = 0,
    ) -> None:
        reader = processor.reader
        shape = (len(store), reader.channels, reader.size, reader.size)
        self.pixels, self.labels = store.stream(IMAGE).reshape(shape), store.stream(LABEL)
        self.reader, self.n_tokens = reader, n_tokens
        self.augmentation, self.seed = augmentation, seed
        self.lengths: Lengths = np.full(len(store), n_tokens)

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of these rows."""
        pixels = self.pixels[np.asarray(samples, dtype=np.int64)]
        if self.augmentation is not None:
            pixels = augmented(
                pixels, samples, self.augmentation, seed=self.seed, epoch=epoch, fill=self.reader.middle
            )
        images = Images.of(self.reader.normalised(pixels), self.n_tokens)
        labels = self.labels[np.asarray(samples, dtype=np.int64)]
        return Batch.of_images(images, labels.astype(np.int64).tolist(), samples)


class ImageClassification(Task):
    """Predict a label for an image."""

    Recipe = ImageClassificationRecipe
    Processor = ImageProcessor
    info = TaskInfo(
        unit="examples",
        evaluation_verb="labelling",
        data_forms=("folder", "table"),
        memory_advice="take larger patches (model.patch_size) or smaller images (model.image_size)",
        options=("n_best",),
        fitting_message="measuring the images",
        encoding_message="reading the images",
    )

    validation_terms: ClassVar = {"loss": "class", "accuracy": "correct"}

    recipe: ImageClassificationRecipe
    processor: ImageProcessor

    @property
    def columns(self) -> Columns:
        """An image and its label."""
        return Columns((IMAGE, LABEL), (IMAGE,), single_valued=(IMAGE, LABEL), images=(IMAGE,))

    def make_processor(self, read_rows: RowReader) -> ImageProcessor:
        """Collect the labels, and compute the mean and deviation of all pixels.

        Raises:
            DataError: for a label that the recipe does not name, fewer than two, or an image that cannot be
                read and is not to be left out.
        """
        recipe = self.recipe
        labels = collect_labels(map(located_label, read_rows()), recipe.task.labels)
        size, channels = recipe.model.image_size, recipe.model.channels
        reader = start_image_reader(recipe, size, channels)
        if reader is None:
            images = (row.row[IMAGE] for row in read_rows())
            reader = ImageReader.from_images(images, size, channels, drop=self.drops_unreadable)
        return ImageProcessor(reader, labels)

    def new_report(self) -> DataReport:
        """Return an empty report; `encode` counts the classes in it."""
        return DataReport()

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the pixels of the images, in one row of numbers each, and the number of the label.

        Raises:
            DataError: a label is unknown, an image cannot be read and is not to be dropped, or none is left.
        """
        processor = self.processor
        for row in rows:
            report.rows += 1
            label = label_index(row.row[LABEL], processor.labels, row.location)
            try:
                pixels: Any = processor.reader.pixels(row.row[IMAGE]).reshape(-1)
            except DataError as error:
                if not self.drops_unreadable:
                    raise DataError(f"{error} ({DROP_HINT})") from None
                report.drop("unreadable", row.location)
                continue
            report.kept += 1
            report.classes[row.row[LABEL]] += 1
            yield LocatedRow({IMAGE: pixels, LABEL: [label]}, row.location)
        if report.kept == 0:
            raise DataError("\n  ".join(["no row can be used", *report.lines()]))

    def n_ids(self) -> Mapping[str, int]:
        """The number of levels of brightness, and that of labels."""
        return {IMAGE: LEVELS, LABEL: len(self.processor.labels)}

    def expected_sizes(self, vocab_sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the number of labels; two if the recipe does not name them."""
        return (len(self.recipe.task.labels or ()) or FEWEST_LABELS,)

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """Build an encoder, with a layer that computes the logits of the classes."""
        sizes = self.processor.sizes if sizes is None else sizes
        encoder = build_model(self.recipe.model)
        encoder.heads["class"] = class_head(self.recipe.model.d_model, sizes[-1], self.recipe.model.dropout)
        return encoder

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Log how images are read, and the labels."""
        log(f"images: {self.processor.reader}")
        log(f"{len(self.processor.labels)} labels: {first_labels(self.processor.labels)}")

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of images; training images are augmented, and their labels may have weights."""
        recipe, processor = self.recipe, self.processor
        augmentation = recipe.augmentation if training else None
        batches = ImageBatches(store, processor, recipe.model.n_tokens, augmentation, recipe.training.seed)
        if not training:
            return batches
        setting = recipe.objective.class_weights
        return with_class_weights(batches, setting, processor.labels, store.stream(LABEL))

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return noise; ``length`` is not used, since the model fixes the number of tokens."""
        model = self.recipe.model
        shape = (n, model.channels, model.image_size, model.image_size)
        pixels = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
        return Batch.of_images(Images.of(pixels, model.n_tokens), [i % sizes[-1] for i in range(n)])

    @torch.inference_mode()
    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict a label for each input: the path of a file, a `LazyImage`, an array or an image of Pillow.

        A prediction's ``score`` is the label's log-probability, its ``alternatives`` are the next labels. If
        an image cannot be read, its prediction has an ``error`` and no text.

        Args:
            model: a trained model.
            inputs: images.
            options: ``n_best``, the number of labels, and ``progress``.
        """
        results: list[Prediction] = []
        size = max(1, BUDGET // self.recipe.model.n_tokens)
        for start in range(0, len(inputs), size):
            group = inputs[start : start + size]
            results += self._predicted(model, group, options.n_best or 1)
            options.progress(len(group))
        return results

    def _predicted(self, model: Model, group: Sequence[TaskInput], n_best: int) -> list[Prediction]:
        processor, results, pixels = self.processor, [Prediction("") for _ in group], {}
        for i, task_input in enumerate(group):
            try:
                pixels[i] = processor.reader.pixels(LazyImage.of(task_input))
            except DataError as error:
                results[i] = Prediction("", error=str(error))
        if pixels:
            normalised = processor.reader.normalised(np.stack(list(pixels.values())))
            images = Images.of(normalised, self.recipe.model.n_tokens).to(next(model.parameters()).device)
            logits = class_logits(model(images), model.heads, images.layout)
            for i, row in zip(pixels, logits.log_softmax(-1).cpu(), strict=True):
                results[i] = label_prediction(row, processor.labels, n_best)
        return results

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, predict: Callable[..., Prediction]
    ) -> ModelInput:
        """Prepare an image; its tokens are the patches of the model."""
        config, reader = self.recipe.model, self.processor.reader
        pixels = reader.pixels(LazyImage.of(task_input))
        answer = predict()
        batch = Batch.of_images(Images.of(reader.normalised(np.stack([pixels])), config.n_tokens), [0])
        before = config.n_tokens - int(np.prod(config.grid))
        label = answer.text if options.target is None else options.target
        targets = PredictionTargets.of_class(model, self.processor.labels, batch, label)
        return ModelInput(batch, {INPUT: patches_axis(config.grid, before, pixels)}, answer, targets)

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return images as the model reads them."""
        n_tokens = self.recipe.model.n_tokens
        return EmbeddingInputs.of_images(self.processor.reader, inputs, n_tokens, has_pooling=True)

    def source_from(self, files: Sequence[Path]) -> FolderSource | UserTable:
        """Return a folder with one subfolder for each class, or a table with paths and labels."""
        if len(files) != 1:
            raise RequestError(
                f"expected one table or folder to evaluate an image classifier, got {len(files)} files"
            )
        if files[0].is_dir():
            return FolderSource(path=str(files[0].resolve()))
        return user_table(files[0], self.columns.required, like=self.recipe.data.train)

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that not all labels are unknown."""
        UnknownLabels.among(map(located_label, rows), self.processor.labels)

    @property
    def drops_unreadable(self) -> bool:
        """Whether the recipe drops images that cannot be read."""
        return self.recipe.data.filter.unreadable == "drop"

    def metrics(
        self, model: Model, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction]
    ) -> tuple[list[Score], list[str]]:
        """Return accuracy, macro and micro F1."""
        return label_scores(rows, predictions, self.processor.labels)

    def records(
        self, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction]
    ) -> Iterator[JsonMapping]:
        """Yield the image, the target, the prediction and whether it is right."""
        return label_records(rows, (IMAGE,), predictions)
