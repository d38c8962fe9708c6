"""The recipe of a captioner."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from heedful.data.augmentation import Augmentation
from heedful.data.report import Filter
from heedful.decoding.config import BeamConfig, DecodingConfig
from heedful.models.captioner import CaptionerConfig
from heedful.recipes import schema as recipe
from heedful.runs.translation.recipe import LanguageConfig, ValidationConfig
from heedful.tasks.captioning import CAPTION, ImageAndCaption
from heedful.tasks.images import ImageReader
from heedful.tasks.registry import CaptioningTask


class CaptionFilter(Filter):
    """What to do with captions that are long or empty, and with images that cannot be read.

    Args:
        unreadable: stop at the first such image, or leave them out and count them.
    """

    unreadable: Literal["error", "drop"] = "error"

    @model_validator(mode="after")
    def _no_ratio(self) -> Self:
        if self.max_ratio is not None:
            raise ValueError("max_ratio compares a source with its target: leave it away here")
        return self

    @property
    def of_captions(self) -> Filter:
        """The same, without a limit for images."""
        limit = self.limit(CAPTION)
        return self.model_copy(update={"max_length": None if limit is None else {CAPTION: limit}})


class DataConfig(recipe.DataConfig):
    """Rows with an image and a caption, and what to do with those that cannot be used as they are.

    Args:
        filter: of captions that are long or empty, and images that cannot be read.
    """

    filter: CaptionFilter = CaptionFilter()


class PretrainedConfig(recipe.VectorsConfig):
    """Word vectors (word2vec text or binary, or GloVe) that fill rows of the embedding at the start.

    Words are filled that one token alone spells. The model reads vectors at their own size. Other words begin
    as they do without vectors.

    Args:
        caption: the file; null: none. Its vectors are as wide as the model (``d_model``).
    """

    caption: str | None = None


class EvaluationConfig(LanguageConfig):
    """``evaluate`` reports BLEU, chrF, TER, exact matches and perplexity."""


class CaptioningRecipe(recipe.Recipe):
    """A whole recipe.

    Args:
        augmentation: how training images are changed in every epoch; captions that say "left" and "right"
            are wrong of what was flipped.
        pretrained: word vectors that the embedding begins with.
    """

    task: CaptioningTask
    data: DataConfig
    augmentation: Augmentation = Augmentation()
    tokenizer: recipe.Tokenization
    model: CaptionerConfig
    objective: recipe.TokenObjectiveConfig = recipe.TokenObjectiveConfig()
    pretrained: PretrainedConfig = PretrainedConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig = BeamConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    decoded_metrics: ClassVar[frozenset[str]] = frozenset({"bleu", "chrf"})

    def metrics(self) -> set[str]:
        """What validation measures."""
        return super().metrics() | (self.decoded_metrics if self.validation.decode != 0 else set())

    @property
    def reader(self) -> ImageReader:
        """How images are read: their numbers from -1 to 1, as in ViT's released code."""
        n = self.model.channels
        return ImageReader(self.model.image_size, n, mean=(0.5,) * n, std=(0.5,) * n)

    @property
    def pairing(self) -> ImageAndCaption:
        """How an image and its caption are laid before the model."""
        return ImageAndCaption(self.reader, self.model.grid, self.model.longest)

    @model_validator(mode="after")
    def _has_positions_for_all(self) -> Self:
        """A table of positions ends somewhere, and no caption may be longer; found now, not hours later."""
        if self.model.longest is None:
            return self
        most = self.model.longest - 1
        table = f"model.positions=learned ends after model.max_length={self.model.longest} tokens"
        limit = self.data.filter.limit(CAPTION)
        if limit is None or limit > most:
            raise ValueError(f"{table}: set data.filter.max_length to at most {most}")
        return self
