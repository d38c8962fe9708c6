"""Classification of images.

row -> pixels, number of the label -> `Batch.of_images` -> model -> loss
path -> pixels -> hidden states -> class -> label
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from heedful.data.augmentation import Augmentation, augmented
from heedful.data.batch import Batch
from heedful.data.images import IMAGE, LazyImage
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded, EncodedRow, Tally
from heedful.data.sources import FolderSource, LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.models.base import Model
from heedful.models.encoder import class_head
from heedful.models.registry import build_model
from heedful.nn.patches import Images
from heedful.objectives.classification import class_logits
from heedful.recipes import schema
from heedful.tasks.base import RowReader
from heedful.tasks.calibration import CalibrationConfig, Classes, classes_of_sequences
from heedful.tasks.class_weights import with_class_weights
from heedful.tasks.embedding import EmbeddingInputs
from heedful.tasks.evaluation import Batches, PredictedRows
from heedful.tasks.image_task import ImageProcessor, ImageRecipe, ImageTask
from heedful.tasks.inputs.images import LEVELS
from heedful.tasks.inputs.labels import (
    EMPTY_LABEL,
    LABEL,
    LabelsConfig,
    UnknownLabels,
    collect_labels,
    compared_labels,
    given_label,
    known_label,
    label_index,
    label_prediction,
    label_scores,
    labelled_rows,
    located_label,
    unseen_labels,
)
from heedful.tasks.metrics.score import Score
from heedful.tasks.model_input import INPUT, AnswerOptions, ModelInput, PredictionTargets, patches_axis
from heedful.tasks.prediction import Prediction, PredictOptions, TaskInput
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.typing import JsonMapping


class ImageClassificationConfig(LabelsConfig, CalibrationConfig):
    """A label for an image; the data have the columns ``image`` and ``label``."""

    kind: Literal["image-classification"] = "image-classification"


class ImageClassificationRecipe(ImageRecipe):
    """A whole recipe. ``training.tokens_per_update`` counts ``model.n_tokens`` for each image."""

    task: ImageClassificationConfig
    objective: schema.ClassObjectiveConfig = schema.ClassObjectiveConfig()

    class_column: ClassVar[str | None] = LABEL
    scored_metrics: ClassVar[frozenset[str]] = frozenset({"macro-f1", "micro-f1"})


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


class ImageClassification(ImageTask):
    """Predict a label for an image."""

    Recipe = ImageClassificationRecipe
    folder_source = FolderSource
    info = TaskInfo(
        unit="examples",
        evaluation_verb="labelling",
        memory_advice="take larger patches (model.patch_size) or smaller images (model.image_size)",
        options=("n_best", "threshold"),
        fitting_message="measuring the images",
        encoding_message="reading the images",
    )

    validation_terms: ClassVar = {"loss": "class", "accuracy": "correct"}
    calibrated_head: ClassVar[str] = "class"

    recipe: ImageClassificationRecipe

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
        labels = collect_labels(
            map(located_label, read_rows()), self.recipe.task.labels, is_split=bool(self.recipe.data.split)
        )
        return ImageProcessor(self.image_reader(read_rows), labels)

    def unseen_labels(self, row: LocatedRow[Row]) -> Sequence[str]:
        """Return the label, if it does not occur in the training rows."""
        return unseen_labels([row.row[LABEL]], self.processor.labels)

    def encode_row(self, row: LocatedRow[Row], content: Any, report: DataReport) -> EncodedRow:
        """Return the pixels, and the number of the label."""
        label = known_label(row.row[LABEL], self.processor.labels)
        index = label_index(label, self.processor.labels, row.location)
        report.classes[label] += 1
        return {IMAGE: content.reshape(-1), LABEL: [index]}

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the numbers of each row; rows without a label are dropped."""
        return super().encode(self._with_label(rows, report), report)

    def _with_label(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[LocatedRow[Row]]:
        for row in rows:
            if row.row[LABEL]:
                yield row
            else:
                report.rows += 1
                report.drop(EMPTY_LABEL, row.location)

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
        """Return the rows with a label; others cannot be scored."""
        return labelled_rows(rows, limit, self.processor.labels)

    def n_ids(self) -> Mapping[str, int]:
        """The number of levels of brightness, and that of labels."""
        return {IMAGE: LEVELS, LABEL: len(self.processor.labels)}

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """Build an encoder, with a layer that computes the logits of the classes."""
        sizes = self.processor.sizes if sizes is None else sizes
        encoder = build_model(self.recipe.model)
        encoder.heads["class"] = class_head(self.recipe.model.d_model, sizes[-1], self.recipe.model.dropout)
        return encoder

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of images; training images are augmented, and their labels may have weights."""
        recipe, processor = self.recipe, self.processor
        augmentation = recipe.augmentation if training else None
        batches = ImageBatches(store, processor, recipe.model.n_tokens, augmentation, recipe.training.seed)
        if not training:
            return batches
        setting = recipe.objective.class_weights
        return with_class_weights(batches, setting, processor.labels, store.stream(LABEL))

    def classes_of(self, model: Model, batch: Batch) -> Classes:
        """Return the logits of the labels of each image, and its label."""
        return classes_of_sequences(model, batch)

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return noise; ``length`` is not used, since the model fixes the number of tokens."""
        return Batch.of_images(self.noise(n), [i % sizes[-1] for i in range(n)])

    def predict_images(
        self, model: Model, images: Images, sizes: Sequence[tuple[int, int]], options: PredictOptions
    ) -> Iterator[Prediction]:
        """Yield a label for each image.

        A prediction's ``score`` is the label's log-probability, its ``alternatives`` are the next labels;
        ``options.n_best`` is the number of labels.
        """
        logits = class_logits(model(images), model.heads, images.layout)
        for row in logits.log_softmax(-1).cpu():
            yield label_prediction(row, self.processor.labels, options.n_best or 1)

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare an image; its tokens are the patches of the model."""
        config = self.recipe.model
        pixels = self.processor.reader.pixels(LazyImage.of(task_input))
        batch = Batch.of_images(self.to_images([pixels]), [0])
        before = config.n_tokens - int(np.prod(config.grid))
        if options.target is not None:
            answer = given_label(answer, options.target, self.processor.labels)
        targets = PredictionTargets.of_class(model, self.processor.labels, answer.text)
        return ModelInput(batch, {INPUT: patches_axis(config.grid, before, pixels)}, answer, targets)

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return images as the model reads them."""
        n_tokens = self.recipe.model.n_tokens
        return EmbeddingInputs.of_images(self.processor.reader, inputs, n_tokens, has_pooling=True)

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """Check that not all labels are unknown."""
        UnknownLabels.among(map(located_label, rows), self.processor.labels)

    def metrics(self, model: Model, predicted: PredictedRows[Prediction]) -> tuple[list[Score], list[str]]:
        """Return accuracy, macro and micro F1, and the scores of the probabilities."""
        return label_scores(predicted, self.processor.labels, self.temperature)

    def compared(self, predicted: PredictedRows[Prediction]) -> Iterator[JsonMapping]:
        """Yield the right label of each image, and whether it was predicted."""
        return compared_labels(predicted)
