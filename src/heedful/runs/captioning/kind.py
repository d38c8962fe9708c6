"""What runs of captioners do in their own way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from heedful.artifacts.run_folder import RunFolder
from heedful.data.batch import Batch
from heedful.data.images import IMAGE
from heedful.data.own_table import OwnTable, own_table
from heedful.data.report import DataReport, Encoded, keep
from heedful.data.sources import CaptionedFolderSource, LocatedRow, Location, Row
from heedful.decoding.config import DecodingConfig
from heedful.engine.choosing import Inference
from heedful.errors import RequestError
from heedful.objectives.terms import Objective
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Tree
from heedful.runs.captioning.adopting import VISION, encoder_weights, model_section
from heedful.runs.captioning.augmenting import augmenting
from heedful.runs.captioning.recipe import CaptioningRecipe
from heedful.runs.captioning.scoring import Evaluation, by_image, scored
from heedful.runs.kind import Kind, Log, Prepared, Rows, Scoring, Trained
from heedful.runs.pairs import Validator, planned, require_language, validation_notes
from heedful.runs.references import REFERENCES
from heedful.runs.vectors import fill_vectors
from heedful.runs.warm_start import MappedWeights, MapWeights, own_tokenizer, reader_of, starting_model
from heedful.tasks.captioning import CAPTION, COLUMNS, Captioner, CaptionProcessor
from heedful.tasks.images import LEVELS
from heedful.tasks.metrics.translation import quick_scores
from heedful.text.specials import SPECIALS
from heedful.text.tokenizer import Tokenizer
from heedful.training.feed import PlannedData
from heedful.training.step import Step


class Captioning(Kind):
    """See `heedful.runs.kind.Kind`."""

    recipe: ClassVar[type[Recipe]] = CaptioningRecipe
    unit = "sentences"
    single = (IMAGE,)
    listed = (REFERENCES,)
    scoring = "captioning"
    scored_by_writing = True
    own_data = ("folder", "table")
    shorter = "set or lower data.filter.max_length"
    whole_rows = True
    encoding = "reading the images"

    def columns(self, recipe: CaptioningRecipe) -> tuple[str, ...]:
        """Image and caption."""
        return COLUMNS

    def inputs(self, recipe: CaptioningRecipe) -> tuple[str, ...]:
        """The image."""
        return (IMAGE,)

    def images(self, recipe: CaptioningRecipe) -> tuple[str, ...]:
        """The image."""
        return (IMAGE,)

    def files(self, folder: RunFolder) -> list[Path]:
        """The tokenizer."""
        return [folder.tokenizer(CAPTION)]

    def learn(self, recipe: CaptioningRecipe, rows: Rows) -> CaptionProcessor:
        """A tokenizer for the captions; that of the run it starts from, if it is a captioner's."""
        return CaptionProcessor(own_tokenizer(recipe, CAPTION, (row.row[CAPTION] for row in rows())))

    adopts = (VISION,)

    def adopted(self, model: Tree) -> Tree:
        """Of a ViT, that of its encoder."""
        theirs = model.find(("kind",))
        return model_section(model) if theirs is not None and theirs.data == VISION else model

    def adopting(self, recipe: CaptioningRecipe) -> MapWeights:
        """A ViT's weights become the encoder's."""
        if starting_model(recipe) != VISION:
            return MappedWeights
        theirs = reader_of(recipe, recipe.model.image_size, recipe.model.channels)
        assert theirs is not None
        return lambda held: encoder_weights(held, theirs, recipe.reader)

    def save(self, processor: CaptionProcessor, folder: RunFolder) -> None:
        """The tokenizer."""
        processor.tokenizer.save(folder.tokenizer(CAPTION))

    def load(self, folder: RunFolder) -> CaptionProcessor:
        """The tokenizer."""
        return CaptionProcessor(Tokenizer.load(folder.tokenizer(CAPTION)))

    def report(self, processor: CaptionProcessor) -> DataReport:
        """Counts unknown tokens."""
        return DataReport({CAPTION: processor.tokenizer.specials.unknown})

    def encode(
        self,
        recipe: CaptioningRecipe,
        processor: CaptionProcessor,
        rows: Iterable[LocatedRow[Row]],
        report: DataReport,
    ) -> Iterator[Encoded]:
        """What passes the filter."""
        filter = recipe.data.filter
        read = processor.encode(rows, recipe.reader, report, drop=filter.unreadable == "drop")
        yield from keep(read, filter.of_captions, report)
        del report.columns[IMAGE]  # all have the same length

    def n_ids(self, recipe: CaptioningRecipe, processor: CaptionProcessor) -> Mapping[str, int]:
        """A byte for each number of an image."""
        return {IMAGE: LEVELS, CAPTION: processor.tokenizer.vocab_size}

    def keeps_rows(self, recipe: CaptioningRecipe) -> bool:
        """Where captions are scored, against those that were given."""
        return recipe.validation.decode != 0

    def require(self, recipe: CaptioningRecipe) -> None:
        """What splits texts for BLEU."""
        require_language(recipe)

    def notes(self, recipe: CaptioningRecipe, prepared: Prepared) -> list[str]:
        """Whether BLEU needs to know the language."""
        return validation_notes(recipe, prepared, CAPTION)

    def objective(self, recipe: CaptioningRecipe) -> Objective:
        """The next token, teacher forced."""
        return recipe.objective.make()

    def begin(self, recipe: CaptioningRecipe, processor: CaptionProcessor, model: Any, log: Log) -> None:
        """Word vectors, if the recipe names some."""
        fill_vectors(recipe, {CAPTION: processor.tokenizer}, model, log)

    def feed(self, recipe: CaptioningRecipe, prepared: Prepared) -> PlannedData:
        """Images whose captions are neighbours in length, changed as the recipe says."""
        varied = augmenting(recipe.augmentation, recipe.reader, recipe.training.seed)
        return planned(recipe, prepared, COLUMNS, varied)

    def validator(self, recipe: CaptioningRecipe, prepared: Prepared, step: Step) -> Validator:
        """Loss, and where asked for, BLEU and chrF, of images once each against all of their captions."""

        def captioner(model: nn.Module, decoding: DecodingConfig) -> Captioner:
            return Captioner(model, prepared.processor, decoding, recipe.pairing)

        images = by_image(LocatedRow(row, Location("")) for row in prepared.valid_rows)
        described = [row.row for row in images if row.row[CAPTION]]
        language, lowercase = recipe.evaluation.language, recipe.tokenizer.text.lowercase
        score = partial(quick_scores, language=language, lowercase=lowercase)
        return Validator(recipe, replace(prepared, valid_rows=described), step, COLUMNS, captioner, score)

    def example(
        self, recipe: CaptioningRecipe, sizes: Sequence[int], n: int, length: int, source_length: int
    ) -> Batch:
        """Noise, with captions that differ by a token or two in length."""
        draw, reader = np.random.default_rng(0), recipe.reader
        images = draw.integers(LEVELS, size=(n, reader.channels * reader.size**2))
        # With the start token that is added.
        lengths = (max(0, length - 1 + (0, -1, 1)[i % 3]) for i in range(n))
        captions = [draw.integers(len(SPECIALS), sizes[-1], each) for each in lengths]
        return recipe.pairing.collate(list(images), captions)

    def predictor(
        self,
        recipe: CaptioningRecipe,
        processor: CaptionProcessor,
        model: Any,
        decoding: Any,
        inference: Inference,
        **options: Any,
    ) -> Captioner:
        """Captions."""
        return Captioner(model, processor, decoding, recipe.pairing, inference=inference)

    def source_of(self, recipe: CaptioningRecipe, files: Sequence[Path]) -> CaptionedFolderSource | OwnTable:
        """A folder of images with captions; or a table with a header, or JSON lines, with their paths."""
        if len(files) != 1:
            raise RequestError(
                f"a captioner is scored on one table (--table FILE) or folder, not on {len(files)} files"
            )
        if files[0].is_dir():
            return CaptionedFolderSource(path=str(files[0].resolve()))
        return own_table(files[0], COLUMNS, like=recipe.data.train)

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
        """BLEU, chrF, TER, exact matches, likelihood of the given captions."""
        return scored(run, split, rows, how)
