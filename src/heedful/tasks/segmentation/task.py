"""Segmentation: a class for every pixel of an image.

row -> pixels, class index of each pixel -> `Batch.segmented` -> model -> patches -> decoder -> loss
path -> pixels -> hidden states -> patches -> decoder -> class of each pixel -> mask

A mask is an image file whose pixels are class numbers. Images and masks are read in the same geometry: the
centre square at the model's size. A predicted mask has the size of its image; pixels outside of the centre
square have no class, and are not scored.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import UInt8
from pydantic import Field, model_validator
from torch import Tensor

from heedful.data.batch import Batch
from heedful.data.findings import counted
from heedful.data.images import IMAGE, MASK, UNSCORED, LazyImage
from heedful.data.report import DataReport, EncodedRow, Tally
from heedful.data.sources import LocatedRow, Row, SegmentedFolderSource
from heedful.data.store import TokenStore
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.models.registry import build_model
from heedful.models.segmentation import DecoderConfig, LinearDecoderConfig, segmentation_head
from heedful.nn.patches import Images
from heedful.nn.segmentation import SegmentationHead
from heedful.objectives.registry import PIXEL, Losses
from heedful.recipes import schema
from heedful.tasks.base import PreparedData, RowReader
from heedful.tasks.class_weights import weights_of
from heedful.tasks.embedding import EmbeddingInputs
from heedful.tasks.evaluation import Batches, PredictedRows
from heedful.tasks.image_task import ImageProcessor, ImageRecipe, ImageTask
from heedful.tasks.inputs.images import DROP_HINT, LEVELS
from heedful.tasks.inputs.labels import LabelsConfig, check_known, first_labels
from heedful.tasks.inputs.masks import (
    MOST_CLASSES,
    MaskClasses,
    check_size,
    collect_numbers,
    restored,
)
from heedful.tasks.metrics.classification import Counts, accuracy
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.segmentation import (
    counts_of_image,
    intersection_over_union,
    mean_iou,
    pixel_confusion,
    segmentation_scores,
)
from heedful.tasks.model_input import INPUT, AnswerOptions, ModelInput, PredictionTargets, patches_axis
from heedful.tasks.prediction import Prediction, PredictOptions, TaskInput, invalid_outputs
from heedful.tasks.segmentation.batches import SegmentationBatches, class_pixels
from heedful.tasks.segmentation.prediction import Segmentation
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.typing import JsonMapping, JsonObject


class SegmentationConfig(LabelsConfig):
    """A class for every pixel of an image; the data have the columns ``image`` and ``mask``.

    Args:
        labels: the names of the class numbers 0, 1, … of masks; null: the numbers that occur in the training
            masks are the names.
        ignore: the number of pixels that are neither learned nor scored; null: there is none.
        decoder: the part that computes the class scores of pixels from those of patches.
    """

    kind: Literal["segmentation"] = "segmentation"
    ignore: Annotated[int, Field(ge=0, le=255)] | None = UNSCORED
    decoder: DecoderConfig = LinearDecoderConfig()

    @model_validator(mode="after")
    def _has_numbers(self) -> Self:
        if self.labels and len(self.labels) > MOST_CLASSES:
            raise ValueError(f"labels: expected at most {MOST_CLASSES} labels, got {len(self.labels)}")
        return self


class ObjectiveConfig(schema.ClassObjectiveConfig):
    """The loss on the class of each pixel.

    Args:
        class_weights: weights of the classes in the loss: ``balanced`` (rare classes weigh more, so that all
            weigh the same in sum), or a map of labels to weights, 1 for others; null: none.
    """

    losses: ClassVar[Losses] = PIXEL


class SegmentationRecipe(ImageRecipe):
    """A whole recipe. ``training.tokens_per_update`` counts ``model.n_tokens`` for each image."""

    task: SegmentationConfig
    objective: ObjectiveConfig = ObjectiveConfig()

    scored_metrics: ClassVar[frozenset[str]] = frozenset({"mean-iou"})

    @schema.check
    def _fits_its_decoder(self) -> None:
        self.task.decoder.check(self.model)


class ImageSegmentation(ImageTask):
    """Predict a class for every pixel of an image."""

    Recipe = SegmentationRecipe
    folder_source = SegmentedFolderSource
    info = TaskInfo(
        unit="images",
        evaluation_verb="segmenting",
        memory_advice="take larger patches (model.patch_size) or smaller images (model.image_size)",
        predicts_images=True,
        fitting_message="measuring the images",
        encoding_message="reading the images",
    )

    validation_terms: ClassVar = {"loss": "pixel", "accuracy": "correct"}

    recipe: SegmentationRecipe

    @property
    def columns(self) -> Columns:
        """An image and its mask."""
        return Columns((IMAGE, MASK), (IMAGE,), single_valued=(IMAGE, MASK), images=(IMAGE, MASK))

    @property
    def classes(self) -> MaskClasses:
        """The classes of the processor, and their numbers."""
        task = self.recipe.task
        return MaskClasses.of(self.processor.labels, task.labels, task.ignore)

    def make_processor(self, read_rows: RowReader) -> ImageProcessor:
        """Collect the class numbers if the recipe has no labels, and measure the pixels of all images.

        Raises:
            DataError: an image or mask cannot be read and is not to be left out, or there are fewer than two
                class numbers.
        """
        task = self.recipe.task
        labels = tuple(task.labels or ())
        if not labels:
            labels = collect_numbers(self._readable_masks(read_rows()), task.ignore)
        return ImageProcessor(self.image_reader(read_rows), labels)

    def _readable_masks(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[UInt8[np.ndarray, "H W"]]:
        for row in rows:
            try:
                yield row.row[MASK].numbers()
            except DataError as error:
                if not self.drops_unreadable:
                    raise DataError(f"{error} ({DROP_HINT})") from None

    def read_row(self, row: LocatedRow[Row]) -> tuple[np.ndarray, np.ndarray]:
        """Read the pixels, and the class numbers of all pixels of the mask."""
        return super().read_row(row), row.row[MASK].numbers()

    def unseen_labels(self, row: LocatedRow[Row]) -> Sequence[str]:
        """Return the class numbers of the mask that do not occur in the training masks.

        Without names for them: a number that has none in ``task.labels`` is an error in any mask. A mask
        that cannot be read has none; `encode` reports it.
        """
        if self.classes.are_named:
            return ()
        with suppress(DataError):
            return self.classes.unseen(row.row[MASK].numbers())
        return ()

    def encode_row(self, row: LocatedRow[Row], content: Any, report: DataReport) -> EncodedRow:
        """Return the pixels, and the class index of each; count how many images have each class.

        Raises:
            DataError: image and mask differ in size, or a class number has no label.
        """
        (pixels, numbers), mask, classes = content, row.row[MASK], self.classes
        check_size(row.row[IMAGE], mask)
        # Of all pixels, since scores are of the whole mask; resized as numbers, which do not mix.
        whole = LazyImage(classes.indices(numbers, mask), mask.name)
        indices: Any = whole.numbers(self.processor.reader.size)
        report.classes.update(classes.labels[i] for i in np.unique(indices) if i != UNSCORED)
        return {IMAGE: pixels.reshape(-1), MASK: indices.reshape(-1)}

    def n_ids(self) -> Mapping[str, int]:
        """The number of levels of brightness, and that of class indices."""
        return {IMAGE: LEVELS, MASK: UNSCORED + 1}

    def check_data(self, data: PreparedData) -> None:
        """Check that both sets have pixels to score."""
        for part, store in (("train", data.train), ("valid", data.valid)):
            labels = self.processor.labels
            if not class_pixels(store, len(labels)).any():
                raise DataError(
                    f"data.{part}: no pixel of the masks has one of the labels {first_labels(labels)}; add "
                    "masks that do"
                )

    def data_notes(self, data: PreparedData) -> Sequence[str]:
        """Note which labels no training pixel has, and how many pixels are left out."""
        labels, ignore = self.processor.labels, self.recipe.task.ignore
        counts = class_pixels(data.train, len(labels))
        notes = []
        if missing := [label for label, n in zip(labels, counts, strict=True) if n == 0]:
            notes.append(f"no training pixel has the label {first_labels(missing)}: it cannot be learned")
        n_pixels = len(data.train.stream(MASK))
        if n_ignored := n_pixels - int(counts.sum()):
            # The class of a number beyond those of `task.labels` would need more labels than there may be.
            may_be_class = not self.classes.are_named or ignore in self.classes.numbers
            remedy = "; if it is a class, set task.ignore to null" * may_be_class
            notes.append(
                f"{counted(n_ignored, n_pixels)} training pixels have the number {ignore} (task.ignore) and "
                f"are neither learned nor scored{remedy}"
            )
        return notes

    def build_model(self, sizes: Sequence[int] | None = None) -> Model:
        """Build an encoder, with a decoder of the class scores of pixels."""
        sizes, recipe = self.processor.sizes if sizes is None else sizes, self.recipe
        encoder = build_model(recipe.model)
        encoder.heads[MASK] = segmentation_head(recipe.task.decoder, recipe.model, sizes[-1])
        return encoder

    def batches(self, store: TokenStore, *, training: bool) -> Batches:
        """Return batches of images; training images are augmented, and their classes may have weights."""
        recipe, processor = self.recipe, self.processor
        n_tokens, setting = recipe.model.n_tokens, recipe.objective.class_weights
        if not training:
            return SegmentationBatches(store, processor.reader, n_tokens)
        labels, weights = processor.labels, None
        if setting is not None:
            weights = weights_of(setting, labels, class_pixels(store, len(labels)))
        seed = recipe.training.seed
        return SegmentationBatches(store, processor.reader, n_tokens, recipe.augmentation, seed, weights)

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return noise; ``length`` is not used, since the model fixes the number of tokens."""
        side = self.recipe.model.image_size
        masks = np.random.default_rng(0).integers(sizes[-1], size=(n, side, side), dtype=np.uint8)
        return Batch.segmented(self.noise(n), masks)

    def predict_images(
        self, model: Model, images: Images, sizes: Sequence[tuple[int, int]], options: PredictOptions
    ) -> Iterator[Prediction]:
        """Yield a mask for each image, as large as its file.

        Raises:
            WorkError: the model computes NaN.
        """
        scores = model.heads[MASK](model(images), images.layout)
        if scores.isnan().any():
            raise invalid_outputs()
        indices = scores.argmax(-1).to(torch.uint8).cpu().numpy()
        for image_indices, size in zip(indices, sizes, strict=True):
            yield Segmentation.of(image_indices, self.classes, size)

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare an image; each patch is a question for its class.

        With a label as the target, only the patches of this class are questions.
        """
        config, labels = self.recipe.model, self.processor.labels
        pixels = self.processor.reader.pixels(LazyImage.of(task_input))
        images = self.to_images([pixels])
        before = config.n_tokens - int(np.prod(config.grid))
        head = model.heads[MASK]
        assert isinstance(head, SegmentationHead)

        with torch.no_grad():
            on_device = images.to(next(model.parameters()).device)
            answers = head.patch_scores(model(on_device), on_device.layout)[0].argmax(-1).cpu()
        explained = torch.arange(len(answers))
        if options.target is not None:
            (target,) = check_known([options.target], labels)
            explained = (answers == labels.index(target)).nonzero()[:, 0]
            answer = replace(answer, notes=(f"only patches of {target} are explained", *answer.notes))
            if not len(explained):
                raise RequestError(f"no patch of the image has the label {options.target!r}; choose another")
        masks = np.full((1, config.image_size, config.image_size), UNSCORED, dtype=np.uint8)

        def logits(hidden: Tensor, batch: Batch) -> Iterator[Tensor]:
            yield head.patch_scores(hidden, batch.inputs.layout)[:, explained.to(hidden.device)].flatten(0, 1)

        targets = PredictionTargets(
            INPUT,
            tuple((explained + before).tolist()),
            answers[explained],
            logits,
            lambda i, index: labels[index],
        )
        axes = {INPUT: patches_axis(config.grid, before, pixels)}
        return ModelInput(Batch.segmented(images, masks), axes, answer, targets)

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return images as the model reads them."""
        return EmbeddingInputs.of_images(self.processor.reader, inputs, self.recipe.model.n_tokens)

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
        """Return the rows to score; rows whose masks cannot be read are dropped, if the recipe says so."""
        if not self.drops_unreadable:
            return super().rows_to_score(rows, limit)
        kept, unreadable = [], Tally()
        for row in islice(rows, limit):
            try:
                row.row[MASK].numbers()
            except DataError:
                unreadable.add(row.location)
            else:
                kept.append(row)
        return kept, {"unreadable masks": unreadable}

    def metrics(self, model: Model, predicted: PredictedRows[Segmentation]) -> tuple[list[Score], list[str]]:
        """Return mean IoU and pixel accuracy of the pixels of all images, each in its own size."""
        n_classes = len(self.processor.labels)
        matrix, of_images = np.zeros((n_classes, n_classes), dtype=np.int64), list[Counts]()
        for row, prediction in predicted:
            pixels = self._confusion(row, prediction)
            matrix += pixels
            of_images.append(counts_of_image(pixels))
        scores = segmentation_scores(matrix, self.processor.labels, "region:centre square", of_images)
        images = {"images": len(predicted.rows)}
        return [replace(score, counts={**images, **score.counts}) for score in scores], []

    def _confusion(self, row: LocatedRow[Row], prediction: Segmentation) -> Counts:
        image, mask = row.row[IMAGE], row.row[MASK]
        check_size(image, mask)
        targets = self.classes.indices(mask.numbers(), mask)
        predicted = restored(prediction.indices, prediction.size)
        return pixel_confusion(predicted, targets, len(self.processor.labels))

    def compared(self, predicted: PredictedRows[Segmentation]) -> Iterator[JsonMapping]:
        """Yield the mask of each image, and the scores of its pixels."""
        labels = self.processor.labels
        for row, prediction in predicted:
            matrix, scores = self._confusion(row, prediction), JsonObject()
            if matrix.any():
                iou = zip(labels, intersection_over_union(matrix).tolist(), strict=True)
                scores["iou"] = {label: value for label, value in iou if not np.isnan(value)}
                scores |= {"mean_iou": mean_iou(matrix), "accuracy": accuracy(matrix)}
            yield {"target": str(row.row[MASK]), "scores": scores}
