"""What tasks share whose model reads images and has one output for each: classification and segmentation.

row -> pixels (`ImageReader`), target -> batch -> model -> loss
path -> pixels -> hidden states -> prediction
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from heedful.config import Config
from heedful.data.augmentation import Augmentation
from heedful.data.images import IMAGE, LazyImage
from heedful.data.report import DataReport, Encoded, EncodedRow
from heedful.data.sources import FolderSource, LocatedRow, Row, SegmentedFolderSource
from heedful.data.user_files import UserTable, user_table
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.models.resnet import ResNetConfig
from heedful.models.vision import VisionConfig
from heedful.nn.patches import Images
from heedful.recipes import schema
from heedful.tasks.base import Log, RowReader, Task
from heedful.tasks.inputs.images import DROP_HINT, ImageReader, check_channels
from heedful.tasks.inputs.labels import FEWEST_LABELS, Labels, LabelsConfig, first_labels
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.tasks.prediction import BATCH_TOKENS, DEFAULT_OPTIONS, Prediction, PredictOptions, TaskInput
from heedful.tasks.pretrained import start_image_reader


class Filter(Config):
    """What to do with images that cannot be read.

    Args:
        unreadable: stop at the first, or leave them out and count them.
    """

    unreadable: Literal["error", "drop"] = "error"


class DataConfig(schema.DataConfig):
    """Rows with an image and its target.

    Args:
        filter: what to do with those that cannot be read.
    """

    filter: Filter = Filter()


class ImageRecipe(schema.Recipe):
    """A whole recipe. ``training.tokens_per_update`` counts ``model.n_tokens`` for each image.

    Args:
        augmentation: how training images are changed in every epoch, and masks with them.
    """

    task: LabelsConfig
    data: DataConfig
    augmentation: Augmentation = Augmentation()
    model: Annotated[VisionConfig | ResNetConfig, Field(discriminator="kind")]
    validation: schema.NoValidationConfig = schema.NoValidationConfig()
    decoding: schema.NoDecodingConfig | None = None
    evaluation: schema.EvaluationConfig = schema.EvaluationConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metric_names(self) -> set[str]:
        """What validation measures."""
        return {"loss", "accuracy"}

    @schema.check
    def _reads_grey_or_colours(self) -> None:
        check_channels(self.model.channels)


@dataclass(frozen=True)
class ImageProcessor(TaskProcessor):
    """How images are read, and the labels in the order of their numbers."""

    reader: ImageReader
    labels: Labels


class ImageTask(Task):
    """A prediction for each image."""

    Processor = ImageProcessor
    folder_source: ClassVar[type[FolderSource | SegmentedFolderSource]]
    """The source of a folder that is given to ``evaluate``."""

    recipe: ImageRecipe
    processor: ImageProcessor

    def image_reader(self, read_rows: RowReader) -> ImageReader:
        """Return the reader of the run to start from, or one with the mean and deviation of all pixels.

        Raises:
            DataError: an image cannot be read and is not to be left out.
        """
        size, channels = self.recipe.model.image_size, self.recipe.model.channels
        if (reader := start_image_reader(self.recipe, size, channels)) is not None:
            return reader
        images = (row.row[IMAGE] for row in read_rows())
        return ImageReader.from_images(images, size, channels, drop=self.drops_unreadable)

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the numbers of each row (`encode_row`).

        Raises:
            DataError: an image or mask cannot be read and is not to be dropped, a target is unknown, or no
                row is left.
        """
        for row in rows:
            report.rows += 1
            try:
                content = self.read_row(row)
            except DataError as error:
                if not self.drops_unreadable:
                    raise DataError(f"{error} ({DROP_HINT})") from None
                report.drop("unreadable", row.location)
                continue
            encoded = self.encode_row(row, content, report)
            report.kept += 1
            yield LocatedRow(encoded, row.location)
        if report.kept == 0:
            raise DataError("\n  ".join(["no row can be used", *report.lines()]))

    def read_row(self, row: LocatedRow[Row]) -> Any:
        """Read the files of a row: its pixels.

        Raises:
            DataError: a file cannot be read.
        """
        return self.processor.reader.pixels(row.row[IMAGE])

    @abstractmethod
    def encode_row(self, row: LocatedRow[Row], content: Any, report: DataReport) -> EncodedRow:
        """Return the numbers of a row whose files were read, by column, and count its classes.

        Args:
            row: the row.
            content: what `read_row` returned.
            report: the report, with its ``classes``.

        Raises:
            DataError: the target is unknown.
        """

    def expected_sizes(self, vocab_sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the number of labels; two if the recipe does not name them."""
        return (len(self.recipe.task.labels or ()) or FEWEST_LABELS,)

    def initialise(self, model: nn.Module, log: Log) -> None:
        """Log how images are read, and the labels."""
        log(f"images: {self.processor.reader}")
        log(f"{len(self.processor.labels)} labels: {first_labels(self.processor.labels)}")

    def noise(self, n: int) -> Images:
        """Return ``n`` images of noise."""
        model = self.recipe.model
        shape = (n, model.channels, model.image_size, model.image_size)
        return Images.of(torch.randn(*shape, generator=torch.Generator().manual_seed(0)), model.n_tokens)

    def to_images(self, pixels: Sequence[np.ndarray]) -> Images:
        """Return images, each ``[C, H, W]``, as the model reads them."""
        return Images.of(self.processor.reader.normalised(np.stack(pixels)), self.recipe.model.n_tokens)

    @torch.inference_mode()
    def predict(
        self, model: Model, inputs: Sequence[TaskInput], options: PredictOptions = DEFAULT_OPTIONS
    ) -> list[Prediction]:
        """Predict for each input: the path of a file, a `LazyImage`, an array or an image of Pillow.

        If an image cannot be read, its prediction has an ``error`` and no text.

        Args:
            model: a trained model.
            inputs: images.
            options: see `predict_images`; and ``progress``.
        """
        results: list[Prediction] = []
        size = max(1, BATCH_TOKENS // self.recipe.model.n_tokens)
        for start in range(0, len(inputs), size):
            group = inputs[start : start + size]
            results += self._predicted(model, group, options)
            options.progress(len(group))
        return results

    def _predicted(
        self, model: Model, group: Sequence[TaskInput], options: PredictOptions
    ) -> list[Prediction]:
        results = [Prediction("") for _ in group]
        read: dict[int, tuple[np.ndarray, tuple[int, int]]] = {}
        for i, task_input in enumerate(group):
            try:
                image = LazyImage.of(task_input)
                read[i] = self.processor.reader.pixels(image), image.size
            except DataError as error:
                results[i] = Prediction("", error=str(error))
        if read:
            pixels, sizes = zip(*read.values(), strict=True)
            images = self.to_images(pixels).to(next(model.parameters()).device)
            for i, prediction in zip(read, self.predict_images(model, images, sizes, options), strict=True):
                results[i] = prediction
        return results

    @abstractmethod
    def predict_images(
        self, model: Model, images: Images, sizes: Sequence[tuple[int, int]], options: PredictOptions
    ) -> Iterable[Prediction]:
        """Return a prediction for each image.

        Args:
            model: a trained model.
            images: on its device.
            sizes: width and height of each file, in pixels.
            options: those of the task.
        """

    def source_from(self, files: Sequence[Path]) -> FolderSource | SegmentedFolderSource | UserTable:
        """Return a folder of images with their targets, or a table with paths."""
        if len(files) != 1:
            raise RequestError(f"expected one table or folder to evaluate, got {len(files)} files")
        if files[0].is_dir():
            return self.folder_source(path=str(files[0].resolve()))
        return user_table(files[0], self.columns.required, like=self.recipe.data.train)

    @property
    def drops_unreadable(self) -> bool:
        """Whether the recipe drops images and masks that cannot be read."""
        return self.recipe.data.filter.unreadable == "drop"
