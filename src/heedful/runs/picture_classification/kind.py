"""What runs of classifiers of pictures do in their own way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from heedful.artifacts.run_folder import RunFolder, read_entry, read_labels, write_json
from heedful.data.augmentation import Augmentation, augmented
from heedful.data.batch import Batch
from heedful.data.own_table import OwnTable, own_table
from heedful.data.pictures import PICTURE
from heedful.data.plan import Lengths
from heedful.data.report import DataReport, Encoded
from heedful.data.sources import FolderSource, LocatedRow, Row
from heedful.data.store import TokenStore
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.models.encoder import class_head
from heedful.models.registry import build_model
from heedful.nn.patches import Pictures
from heedful.objectives.terms import Objective
from heedful.runs.classification.scoring import Evaluation, scored
from heedful.runs.kind import Kind, Log, Prepared, Rows, Scoring, Trained
from heedful.runs.measuring import Validator, micro_batch
from heedful.runs.picture_classification.recipe import PictureClassificationRecipe
from heedful.runs.warm_start import reader_of
from heedful.tasks.labels import FEWEST_LABELS, LABEL, learned, listed
from heedful.tasks.picture_classification import PictureClassifier, PictureProcessor
from heedful.tasks.pictures import LEVELS, PictureReader
from heedful.training.feed import PlannedData
from heedful.training.step import Step

MEASURES = {"loss": "class", "accuracy": "correct"}


class PictureClassification(Kind):
    """See `heedful.runs.kind.Kind`."""

    recipe = PictureClassificationRecipe
    unit = "examples"
    single = (PICTURE, LABEL)
    scoring = "labelling"
    scored_by_writing = False
    own_data = ("folder", "table")
    shorter = "take larger squares (model.patch_size) or smaller pictures (model.picture_size)"
    learning = "looking at the pictures"
    encoding = "reading the pictures"
    options = ("n_best",)

    def columns(self, recipe: PictureClassificationRecipe) -> tuple[str, ...]:
        """A picture and its label."""
        return (PICTURE, LABEL)

    def inputs(self, recipe: PictureClassificationRecipe) -> tuple[str, ...]:
        """A picture."""
        return (PICTURE,)

    def pictures(self, recipe: PictureClassificationRecipe) -> tuple[str, ...]:
        """A picture."""
        return (PICTURE,)

    def sizes(self, recipe: PictureClassificationRecipe, vocabularies: Sequence[int]) -> tuple[int, ...]:
        """The number of labels; two where the recipe does not name them."""
        return (len(recipe.task.labels or ()) or FEWEST_LABELS,)

    def model(self, recipe: PictureClassificationRecipe, sizes: Sequence[int]) -> nn.Module:
        """The encoder, with a layer that makes the classes' logits."""
        encoder: Any = build_model(recipe.model)
        encoder.heads["class"] = class_head(recipe.model.d_model, sizes[-1], recipe.model.dropout)
        return encoder

    def files(self, folder: RunFolder) -> list[Path]:
        """How pictures are read, and the labels."""
        return [folder.pictures, folder.labels]

    def learn(self, recipe: PictureClassificationRecipe, rows: Rows) -> PictureProcessor:
        """The labels, and the mean and deviation of all pixels.

        Raises:
            DataError: a label that the recipe does not name, fewer than two, or a picture that cannot be read
                and is not to be left out.
        """
        labels = learned(rows(), recipe.task.labels)
        size, channels = recipe.model.picture_size, recipe.model.channels
        reader = reader_of(recipe, size, channels)
        if reader is None:
            pictures = (row.row[PICTURE] for row in rows())
            drop = recipe.data.filter.unreadable == "drop"
            reader = PictureReader.measured(pictures, size, channels, drop=drop)
        return PictureProcessor(reader, labels)

    def save(self, processor: PictureProcessor, folder: RunFolder) -> None:
        """Both files."""
        write_json(folder.pictures, {"version": 1, "reader": processor.reader.to_dict()})
        write_json(folder.labels, {"version": 1, "labels": list(processor.labels)})

    def load(self, folder: RunFolder) -> PictureProcessor:
        """Both files."""
        reader = PictureReader.from_dict(read_entry(folder.pictures, "reader", dict))
        return PictureProcessor(reader, read_labels(folder.labels))

    def report(self, processor: PictureProcessor) -> DataReport:
        """Counts the classes."""
        return DataReport()

    def n_ids(self, recipe: PictureClassificationRecipe, processor: PictureProcessor) -> Mapping[str, int]:
        """Levels of brightness, and labels."""
        return {PICTURE: LEVELS, LABEL: len(processor.labels)}

    def encode(
        self,
        recipe: PictureClassificationRecipe,
        processor: PictureProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """The pixels of what can be read."""
        return processor.encode(rows, report, drop=recipe.data.filter.unreadable == "drop")

    def objective(self, recipe: PictureClassificationRecipe) -> Objective:
        """The class of each picture."""
        return recipe.objective.make()

    def begin(
        self, recipe: PictureClassificationRecipe, processor: PictureProcessor, model: Any, log: Log
    ) -> None:
        """Say what pictures become, and what the classes are."""
        log(f"pictures: {processor.reader}")
        log(f"{len(processor.labels)} labels: {listed(processor.labels)}")

    def feed(self, recipe: PictureClassificationRecipe, prepared: Prepared) -> PlannedData:
        """Pictures, changed as the recipe says."""
        make = PictureBatches(
            prepared.train,
            prepared.processor,
            recipe.model.n_tokens,
            recipe.augmentation,
            recipe.training.seed,
        )
        return PlannedData(make.lengths, make, recipe.training.tokens_per_update, recipe.training.seed)

    def validator(self, recipe: PictureClassificationRecipe, prepared: Prepared, step: Step) -> Validator:
        """Loss and accuracy, on pictures as they are."""
        make = PictureBatches(prepared.valid, prepared.processor, recipe.model.n_tokens)
        return Validator(step, make, micro_batch(recipe), MEASURES)

    def example(
        self,
        recipe: PictureClassificationRecipe,
        sizes: Sequence[int],
        n: int,
        length: int,
        source_length: int,
    ) -> Batch:
        """Noise; every picture has its number of tokens, whatever ``length``."""
        side = recipe.model.picture_size
        pixels = torch.randn(n, recipe.model.channels, side, side, generator=torch.Generator().manual_seed(0))
        pictures = Pictures.of(pixels, recipe.model.n_tokens)
        return Batch.of_pictures(pictures, [i % sizes[-1] for i in range(n)])

    def predictor(
        self,
        recipe: PictureClassificationRecipe,
        processor: PictureProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> PictureClassifier:
        """Labels."""
        return PictureClassifier(inference.ready(), processor, n_tokens=recipe.model.n_tokens, **options)

    def source_of(
        self, recipe: PictureClassificationRecipe, files: Sequence[Path]
    ) -> FolderSource | OwnTable:
        """A folder with one for each class, or a table with paths and labels."""
        if len(files) != 1:
            raise RequestError(
                f"a classifier of pictures is scored on one data set, not on {len(files)} files"
            )
        if files[0].is_dir():
            return FolderSource(path=str(files[0].resolve()))
        return own_table(files[0], self.columns(recipe), like=recipe.data.train)

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """Accuracy and F1."""
        return scored(run, split, rows, how, drop=run.recipe.data.filter.unreadable == "drop")


class PictureBatches:
    """Batches of pictures with their classes.

    Args:
        store: pixels and labels.
        processor: of the run.
        n_tokens: of a picture.
        augmentation: what is done to the pictures; None: nothing.
        seed: of what is done.
    """

    def __init__(
        self,
        store: TokenStore,
        processor: PictureProcessor,
        n_tokens: int,
        augmentation: Augmentation | None = None,
        seed: int = 0,
    ) -> None:
        reader = processor.reader
        shape = (len(store), reader.channels, reader.size, reader.size)
        self.pixels, self.labels = store.stream(PICTURE).reshape(shape), store.stream(LABEL)
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
        pictures = Pictures.of(self.reader.normalised(pixels), self.n_tokens)
        labels = self.labels[np.asarray(samples, dtype=np.int64)]
        return Batch.of_pictures(pictures, labels.astype(np.int64).tolist(), samples)
