"""Captioning: a text for an image; the columns ``image`` and ``caption``.

row -> pixels, token ids -> `Batch` -> model -> loss      `ImageAndCaption`
image -> state and step -> chosen ids -> text           `Captioner.predict`
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from heedful.config import Config
from heedful.data.augmentation import Augmentation, augmented
from heedful.data.batch import Batch
from heedful.data.folders import CAPTION
from heedful.data.images import IMAGE, LazyImage
from heedful.data.report import DataReport, Encoded, Filter, Tally, keep
from heedful.data.sources import CaptionedFolderSource, LocatedRow, Row
from heedful.data.store import Ids
from heedful.data.user_files import UserTable, user_table
from heedful.engine.choosing import Inference
from heedful.errors import DataError, RequestError
from heedful.models.base import Model
from heedful.models.captioner import CaptionerConfig
from heedful.models.recurrent_captioner import RecurrentCaptionerConfig
from heedful.recipes import schema
from heedful.tasks.base import PreparedData, RowReader
from heedful.tasks.captioning.from_vit import CaptionerFromViT
from heedful.tasks.embedding import EmbeddingInputs
from heedful.tasks.evaluation import PredictedRows
from heedful.tasks.generation.augmenting import Augmenter
from heedful.tasks.generation.reference_scores import left_out_notes, reference_likelihood
from heedful.tasks.generation.sequence_formats import ImageAndCaption, Lengths
from heedful.tasks.generation.target_scores import score_captions
from heedful.tasks.generation.text_generation import Captioner
from heedful.tasks.inputs.images import DROP_HINT, LEVELS, ImageReader, check_channels
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.tasks.inputs.texts import encode_columns, synthetic_ids, unknown_notes
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.translation import (
    check_language,
    exact_match,
    reference_notes,
    sentence_scores,
    translation_scores,
)
from heedful.tasks.model_input import AnswerOptions, ModelInput, patches_axis
from heedful.tasks.prediction import DEFAULT_OPTIONS, Prediction, PredictOptions, Progress, TaskInput
from heedful.tasks.pretrained import load_or_train_tokenizer
from heedful.tasks.seq2seq import (
    REFERENCES,
    LanguageConfig,
    Seq2SeqRecipe,
    Seq2SeqTask,
    references_of,
)
from heedful.tasks.task_info import Columns, TaskInfo
from heedful.text.normalisation import Lowercase
from heedful.text.tokenizer import EncodedTexts, Tokenizer
from heedful.typing import JsonMapping

COLUMNS = (IMAGE, CAPTION)

# Recipes ------------------------------------------------------------------------------------------------


class CaptioningConfig(Config):
    """What an image shows, in words; the data have the columns ``image`` and ``caption``."""

    kind: Literal["captioning"] = "captioning"


class CaptionFilter(Filter):
    """What to do with captions that are long or empty, and with images that cannot be read.

    Args:
        unreadable: stop at the first such image, or leave them out and count them.
    """

    unreadable: Literal["error", "drop"] = "error"

    @model_validator(mode="after")
    def _no_ratio(self) -> Self:
        if self.max_ratio is not None:
            raise ValueError(
                "max_ratio is not supported here (it compares a source with its target); remove it"
            )
        return self

    @property
    def caption_filter(self) -> Filter:
        """The same, without a limit for images."""
        limit = self.limit(CAPTION)
        return self.model_copy(update={"max_length": None if limit is None else {CAPTION: limit}})


class DataConfig(schema.DataConfig):
    """Rows with an image and a caption, and what to do with those that cannot be used as they are.

    Args:
        filter: of captions that are long or empty, and images that cannot be read.
    """

    filter: CaptionFilter = CaptionFilter()


class PretrainedConfig(schema.VectorsConfig):
    """Word vectors (word2vec text or binary, or GloVe) that fill rows of the embedding at the start.

    Words are filled that one token alone spells. The model reads vectors at their own size. Other words begin
    as they do without vectors.

    Args:
        caption: the file; null: none. Its vectors are as wide as the embedding (``d_model``, or of recurrent
            captioners ``d_embedding``).
    """

    caption: str | None = None


class EvaluationConfig(LanguageConfig):
    """``evaluate`` reports BLEU, chrF, TER, exact matches and perplexity."""


class CaptioningRecipe(Seq2SeqRecipe):
    """A whole recipe.

    Args:
        augmentation: how training images are changed in every epoch; captions that say "left" and "right"
            are wrong of what was flipped.
        pretrained: word vectors that the embedding begins with.
    """

    task: CaptioningConfig
    data: DataConfig
    augmentation: Augmentation = Augmentation()
    tokenizer: schema.ComposingTokenization
    model: Annotated[CaptionerConfig | RecurrentCaptionerConfig, Field(discriminator="kind")]
    pretrained: PretrainedConfig = PretrainedConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def reader(self) -> ImageReader:
        """How images are read: their numbers from -1 to 1, as in ViT's released code."""
        n = self.model.channels
        return ImageReader(self.model.image_size, n, mean=(0.5,) * n, std=(0.5,) * n)

    @property
    def sequence_format(self) -> ImageAndCaption:
        """How an image and its caption are presented to the model."""
        return ImageAndCaption(self.reader, self.model.grid, self.model.longest)

    @schema.check
    def _reads_grey_or_colours(self) -> None:
        check_channels(self.model.channels)

    @schema.check
    def _has_positions_for_all(self) -> None:
        """Check now, not hours later, that no caption is longer than the table of positions."""
        if self.model.longest is None:
            return
        max_tokens = self.model.longest - 1
        table = f"model.positions.kind=learned ends after model.max_length={self.model.longest} tokens"
        limit = self.data.filter.limit(CAPTION)
        if limit is None or limit > max_tokens:
            raise ValueError(f"{table}; set data.filter.max_length to at most {max_tokens}")


# The task -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CaptionProcessor(TaskProcessor):
    """The tokenizer of the captions; images are read as they are."""

    caption: Tokenizer


class Captioning(Seq2SeqTask):
    """Generate a caption for an image."""

    Recipe = CaptioningRecipe
    Processor = CaptionProcessor
    info = TaskInfo(
        unit="sentences",
        evaluation_verb="captioning",
        memory_advice="set or lower data.filter.max_length",
        generates=True,
        writes=True,
        unlimited_length=True,
        encoding_message="reading the images",
    )
    warm_start = CaptionerFromViT()
    sides = COLUMNS

    recipe: CaptioningRecipe
    processor: CaptionProcessor

    @property
    def columns(self) -> Columns:
        """Image and caption, or several captions."""
        return Columns(COLUMNS, (IMAGE,), list_valued=(REFERENCES,), single_valued=(IMAGE,), images=(IMAGE,))

    @property
    def lowercase(self) -> Lowercase:
        """Whether the recipe's tokenizer is lower case."""
        return self.recipe.tokenizer.text.lowercase

    def make_processor(self, read_rows: RowReader) -> CaptionProcessor:
        """Train a tokenizer on the captions, or load that of the captioner to start from."""
        captions = (row.row[CAPTION] for row in read_rows())
        return CaptionProcessor(
            load_or_train_tokenizer(self.recipe, self.recipe.tokenizer, CAPTION, captions)
        )

    def encode(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        """Yield the numbers of each image and the ids of its caption, if it passes the filter.

        Raises:
            DataError: an image cannot be read and is not to be dropped.
        """
        yield from keep(self._encoded(rows, report), self.recipe.data.filter.caption_filter, report)
        del report.columns[IMAGE]  # all have the same length

    def _encoded(self, rows: Iterable[LocatedRow[Row]], report: DataReport) -> Iterator[Encoded]:
        for row, ids in encode_columns({CAPTION: self.processor.caption}, rows):
            image = row.row[IMAGE]
            try:
                pixels: Any = self.recipe.reader.pixels(image).reshape(-1)
            except DataError as error:
                if not self.drops_unreadable:
                    # An image without a name of its own is called by its row.
                    where = "" if str(image) == str(row.location) else f"{row.location}: "
                    raise DataError(f"{where}{error} ({DROP_HINT})") from None
                report.rows += 1
                report.drop("unreadable", row.location)
                continue
            yield LocatedRow({IMAGE: pixels, **ids}, row.location)

    def in_tokens(self, sources: Lengths, targets: Lengths) -> tuple[Lengths, Lengths]:
        """All images have the same number of tokens."""
        return np.full_like(sources, self.recipe.sequence_format.n_tokens), targets

    def n_ids(self) -> Mapping[str, int]:
        """A byte for each number of an image."""
        return {IMAGE: LEVELS, CAPTION: self.processor.caption.vocab_size}

    def augmenter(self) -> Augmenter:
        """Return the augmentation of the recipe; each caption of an image gets its own."""
        return image_augmenter(self.recipe.augmentation, self.recipe.reader, self.recipe.training.seed)

    def validation_rows(self, data: PreparedData) -> Iterator[LocatedRow[Row]]:
        """Yield each image that can be read once, with all of its captions."""
        for row in group_by_image(data.valid_rows):
            if row.row[CAPTION] and self._is_readable(row.row[IMAGE]):
                yield row

    def _is_readable(self, image: LazyImage) -> bool:
        try:
            self.recipe.reader.pixels(image)
        except DataError:
            return False
        return True

    def synthetic_batch(self, sizes: Sequence[int], n: int, length: int, source_length: int) -> Batch:
        """Return noise, with captions that differ by a token or two in length."""
        draw, reader = np.random.default_rng(0), self.recipe.reader
        images = draw.integers(LEVELS, size=(n, reader.channels * reader.size**2))
        captions = synthetic_ids(draw, sizes[-1], n, length - 1)  # a start token is added
        return self.recipe.sequence_format.collate(list(images), captions)

    def predictor(self, inference: Inference, options: PredictOptions = DEFAULT_OPTIONS) -> Captioner:
        """Return a `Captioner`."""
        return Captioner(
            inference.model,
            self.processor.caption,
            options.decoding or self.recipe.decoding,
            self.recipe.sequence_format,
            options,
            inference=inference,
        )

    def score(self, model: Model, inputs: Sequence[TaskInput], progress: Progress) -> list[Prediction]:
        """Score captions given their images."""
        caption, sequence_format = self.processor.caption, self.recipe.sequence_format
        return score_captions(model, caption, sequence_format, inputs, progress)

    def model_input(
        self, model: Model, task_input: TaskInput, options: AnswerOptions, answer: Prediction
    ) -> ModelInput:
        """Prepare an image and its caption."""
        sequence_format, tokenizer = self.recipe.sequence_format, self.processor.caption
        pixels = sequence_format.reader.pixels(LazyImage.of(task_input))
        answer, target = self.answer_and_ids(tokenizer, sequence_format.n_tokens, options, answer)
        axis = patches_axis(sequence_format.grid, 0, pixels)
        return self.encoder_decoder_input(model, pixels.reshape(-1), axis, tokenizer, target, answer)

    def embedding_inputs(self, inputs: Sequence[TaskInput]) -> EmbeddingInputs:
        """Return images as the encoder reads them."""
        sequence_format = self.recipe.sequence_format
        return EmbeddingInputs.of_images(sequence_format.reader, inputs, sequence_format.n_tokens)

    def source_from(self, files: Sequence[Path]) -> CaptionedFolderSource | UserTable:
        """A folder of images with captions; or a table with a header, or JSON lines, with their paths."""
        if len(files) != 1:
            raise RequestError(
                f"expected one table or folder to evaluate a captioner, got {len(files)} files"
            )
        if files[0].is_dir():
            return CaptionedFolderSource(path=str(files[0].resolve()))
        return user_table(files[0], COLUMNS, like=self.recipe.data.train)

    # Scores

    def rows_to_score(
        self, rows: Iterator[LocatedRow[Row]], limit: int | None
    ) -> tuple[list[LocatedRow[Row]], Mapping[str, Tally]]:
        """Each image once, with all of its captions; without a caption it is left out, if the recipe says so.

        Raises:
            DataError: if an image has no caption and is not to be left out.
        """
        images: list[Any] = group_by_image(rows)[:limit]
        if not images:
            return [], {}
        check_language(self.recipe.evaluation.language)
        report = DataReport()
        filter = Filter(empty=self.recipe.data.filter.empty)
        rows_with_captions: list[Any] = list(keep(images, filter, report, unchecked_columns=(IMAGE,)))
        return rows_with_captions, report.dropped

    @property
    def drops_unreadable(self) -> bool:
        """Whether the recipe drops images that cannot be read."""
        return self.recipe.data.filter.unreadable == "drop"

    def metrics(self, model: Model, predicted: PredictedRows[Prediction]) -> tuple[list[Score], list[str]]:
        """BLEU, chrF, TER and exact matches against all captions of an image; perplexity of the captions.

        A run that generates lower case is scored case-insensitively; the signatures say so.
        """
        language, lowercase = self.recipe.evaluation.language, self.lowercase
        texts, references = predicted.texts, [row.row[CAPTION] for row in predicted.rows]
        scores = [
            *translation_scores(texts, references, language=language, lowercase=lowercase).values(),
            exact_match(texts, references, lowercase=lowercase),
        ]
        images = [row.row[IMAGE] for row in predicted.rows for _ in row.row[CAPTION]]
        captions = EncodedTexts.encode(
            self.processor.caption, [text for row_captions in references for text in row_captions]
        )
        likelihoods = self._likelihood(model, images, captions)
        notes = left_out_notes(likelihoods, len(images))
        notes += unknown_notes(CAPTION, captions, predicted=True)
        return [*scores, *likelihoods], [*notes, *reference_notes(captions.texts, language)]

    def _likelihood(self, model: Model, images: Sequence[LazyImage], captions: EncodedTexts) -> list[Score]:
        """Return the likelihood of every caption given its image, and the forcing gap if asked for."""
        sequence_format = self.recipe.sequence_format

        def get_sources(indices: Sequence[int]) -> list[np.ndarray]:
            return [sequence_format.reader.pixels(images[i]).reshape(-1) for i in indices]

        likelihoods = reference_likelihood(model, sequence_format, get_sources, captions)
        return likelihoods + self.forcing_gap(model, get_sources, captions)

    def compared(self, predicted: PredictedRows[Prediction]) -> Iterator[JsonMapping]:
        """Yield the captions of each image, and the scores of the predicted one."""
        texts, references = predicted.texts, [row.row[CAPTION] for row in predicted.rows]
        language = self.recipe.evaluation.language
        row_scores = sentence_scores(texts, references, language=language, lowercase=self.lowercase)
        for captions, scores in zip(references, row_scores, strict=True):
            yield {"target": captions, "scores": scores}


def group_by_image(rows: Iterable[LocatedRow[Row]]) -> list[LocatedRow[Row]]:
    """Return one row for each image, at its first location, with the list of its non-empty captions."""
    images: dict[Path | bytes, LocatedRow[Row]] = {}
    for row, where in rows:
        image = row[IMAGE]
        merged = images.setdefault(image.identity, LocatedRow({IMAGE: image, CAPTION: []}, where))
        merged.row[CAPTION].extend(caption for caption in references_of(row, CAPTION) if caption.strip())
    return [*images.values()]


def image_augmenter(augmentation: Augmentation, reader: ImageReader, seed: int) -> Augmenter:
    """Return a function that changes images, determined by (seed, epoch, sample).

    An image with several captions is several samples.

    Args:
        augmentation: how images are changed.
        reader: how images are read; the ids of a sample are the pixels of an image in a row.
        seed: of the run.
    """
    shape = (-1, reader.channels, reader.size, reader.size)

    def augment(column: str, ids: Sequence[Ids], samples: Sequence[int], epoch: int) -> list[Ids]:
        if column != IMAGE:
            return list(ids)
        pixels = np.stack(ids).reshape(shape)
        augmented_pixels = augmented(
            pixels, samples, augmentation, seed=seed, epoch=epoch, fill=reader.middle
        )
        return list(augmented_pixels.reshape(len(augmented_pixels), -1))

    return augment
