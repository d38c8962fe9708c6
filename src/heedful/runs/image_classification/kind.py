"""What runs of classifiers of images do in their own way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from heedful.artifacts.run_folder import RunFolder, read_entry, read_labels, write_json
from heedful.data.augmentation import Augmentation, augmented
from heedful.data.batch import Batch
from heedful.data.images import IMAGE
from heedful.data.own_table import OwnTable, own_table
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import FolderSource, LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.models.encoder import class_head
from heedful.models.registry import build_model
from heedful.nn.patches import Images
from heedful.objectives.terms import Objective
from heedful.runs.classification.scoring import Evaluation, scored
from heedful.runs.image_classification.recipe import ImageClassificationRecipe
from heedful.runs.kind import Kind, Log, Prepared, Rows, Scoring, Trained
from heedful.runs.measuring import Validator, micro_batch
from heedful.runs.warm_start import reader_of
from heedful.tasks.image_classification import ImageClassifier, ImageProcessor
from heedful.tasks.images import LEVELS, ImageReader
from heedful.tasks.labels import FEWEST_LABELS, LABEL, learned, listed
from heedful.training.feed import PlannedData
from heedful.training.step import Step

MEASURES = {"loss": "class", "accuracy": "correct"}


class ImageClassification(Kind):
    """See `heedful.runs.kind.Kind`."""

    recipe = ImageClassificationRecipe
    unit = "examples"
    single = (IMAGE, LABEL)
    scoring = "labelling"
    scored_by_writing = False
    own_data = ("folder", "table")
    shorter = "take larger patches (model.patch_size) or smaller images (model.image_size)"
    learning = "looking at the images"
    encoding = "reading the images"
    options = ("n_best",)

    def columns(self, recipe: ImageClassificationRecipe) -> tuple[str, ...]:
        """An image and its label."""
        return (IMAGE, LABEL)

    def inputs(self, recipe: ImageClassificationRecipe) -> tuple[str, ...]:
        """An image."""
        return (IMAGE,)

    def images(self, recipe: ImageClassificationRecipe) -> tuple[str, ...]:
        """An image."""
        return (IMAGE,)

    def sizes(self, recipe: ImageClassificationRecipe, vocabularies: Sequence[int]) -> tuple[int, ...]:
        """The number of labels; two where the recipe does not name them."""
        return (len(recipe.task.labels or ()) or FEWEST_LABELS,)

    def model(self, recipe: ImageClassificationRecipe, sizes: Sequence[int]) -> nn.Module:
        """The encoder, with a layer that makes the classes' logits."""
        encoder: Any = build_model(recipe.model)
        encoder.heads["class"] = class_head(recipe.model.d_model, sizes[-1], recipe.model.dropout)
        return encoder

    def files(self, folder: RunFolder) -> list[Path]:
        """How images are read, and the labels."""
        return [folder.images, folder.labels]

    def learn(self, recipe: ImageClassificationRecipe, rows: Rows) -> ImageProcessor:
        """The labels, and the mean and deviation of all pixels.

        Raises:
            DataError: a label that the recipe does not name, fewer than two, or an image that cannot be read
                and is not to be left out.
        """
        labels = learned(rows(), recipe.task.labels)
        size, channels = recipe.model.image_size, recipe.model.channels
        reader = reader_of(recipe, size, channels)
        if reader is None:
            images = (row.row[IMAGE] for row in rows())
            drop = recipe.data.filter.unreadable == "drop"
            reader = ImageReader.measured(images, size, channels, drop=drop)
        return ImageProcessor(reader, labels)

    def save(self, processor: ImageProcessor, folder: RunFolder) -> None:
        """Both files."""
        write_json(folder.images, {"version": 1, "reader": processor.reader.to_dict()})
        write_json(folder.labels, {"version": 1, "labels": list(processor.labels)})

    def load(self, folder: RunFolder) -> ImageProcessor:
        """Both files."""
        reader = ImageReader.from_dict(read_entry(folder.images, "reader", dict))
        return ImageProcessor(reader, read_labels(folder.labels))

    def report(self, processor: ImageProcessor) -> DataReport:
        """Counts the classes."""
        return DataReport()

    def n_ids(self, recipe: ImageClassificationRecipe, processor: ImageProcessor) -> Mapping[str, int]:
        """Levels of brightness, and labels."""
        return {IMAGE: LEVELS, LABEL: len(processor.labels)}

    def encode(
        self,
        recipe: ImageClassificationRecipe,
        processor: ImageProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """The pixels of what can be read."""
        return processor.encode(rows, report, drop=recipe.data.filter.unreadable == "drop")

    def objective(self, recipe: ImageClassificationRecipe) -> Objective:
        """The class of each image."""
        return recipe.objective.make()

    def begin(
        self, recipe: ImageClassificationRecipe, processor: ImageProcessor, model: Any, log: Log
    ) -> None:
        """Say what images become, and what the classes are."""
        log(f"images: {processor.reader}")
        log(f"{len(processor.labels)} labels: {listed(processor.labels)}")

    def feed(self, recipe: ImageClassificationRecipe, prepared: Prepared) -> PlannedData:
        """Images, changed as the recipe says."""
        make = ImageBatches(
            prepared.train,
            prepared.processor,
            recipe.model.n_tokens,
            recipe.augmentation,
            recipe.training.seed,
        )
        return PlannedData(make.lengths, make, recipe.training.tokens_per_update, recipe.training.seed)

    def validator(self, recipe: ImageClassificationRecipe, prepared: Prepared, step: Step) -> Validator:
        """Loss and accuracy, on images as they are."""
        make = ImageBatches(prepared.valid, prepared.processor, recipe.model.n_tokens)
        return Validator(step, make, micro_batch(recipe), MEASURES)

    def example(
        self,
        recipe: ImageClassificationRecipe,
        sizes: Sequence[int],
        n: int,
        length: int,
        source_length: int,
    ) -> Batch:
        """Noise; every image has its number of tokens, whatever ``length``."""
        side = recipe.model.image_size
        pixels = torch.randn(n, recipe.model.channels, side, side, generator=torch.Generator().manual_seed(0))
        images = Images.of(pixels, recipe.model.n_tokens)
        return Batch.of_images(images, [i % sizes[-1] for i in range(n)])

    def predictor(
        self,
        recipe: ImageClassificationRecipe,
        processor: ImageProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> ImageClassifier:
        """Labels."""
        return ImageClassifier(inference.ready(), processor, n_tokens=recipe.model.n_tokens, **options)

    def source_of(self, recipe: ImageClassificationRecipe, files: Sequence[Path]) -> FolderSource | OwnTable:
        """A folder with one for each class, or a table with paths and labels."""
        if len(files) != 1:
            raise RequestError(f"a classifier of images is scored on one data set, not on {len(files)} files")
        if files[0].is_dir():
            return FolderSource(path=str(files[0].resolve()))
        return own_table(files[0], self.columns(recipe), like=recipe.data.train)

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """Accuracy and F1."""
        return scored(run, split, rows, how, drop=run.recipe.data.filter.unreadable == "drop")


class ImageBatches:
    """Batches of images with their classes.

    Args:
        store: pixels and labels.
        processor: of the run.
        n_tokens: of an image.
        augmentation: what is done to the images; None: nothing.
        seed: of what is done.
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
        """The batch of some rows."""
        pixels = self.pixels[np.asarray(samples, dtype=np.int64)]
        if self.augmentation is not None:
            pixels = augmented(
                pixels, samples, self.augmentation, seed=self.seed, epoch=epoch, fill=self.reader.middle
            )
        images = Images.of(self.reader.normalised(pixels), self.n_tokens)
        labels = self.labels[np.asarray(samples, dtype=np.int64)]
        return Batch.of_images(images, labels.astype(np.int64).tolist(), samples)
