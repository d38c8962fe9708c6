"""What recipes share whose model reads texts and whose heads answer."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from heedful.config import Config
from heedful.data.report import Filter
from heedful.models.encoder import EncoderConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.recipes import schema as recipe
from heedful.tasks.texts import AS_DOCUMENTS, BARE, WITH_CLASS, Template

AnyReader = Annotated[EncoderConfig | LanguageModelConfig, Field(discriminator="kind")]
"""A model that reads a text: each token with all others, or with those before it."""


class DataConfig(recipe.DataConfig):
    """Rows with texts and an answer, and what to do with those that cannot be used as they are.

    Args:
        filter: of texts that are too long or empty.
    """

    filter: Filter = Filter()

    @model_validator(mode="after")
    def _no_ratio(self) -> "DataConfig":
        if self.filter.max_ratio is not None:
            raise ValueError("filter.max_ratio compares a source with its target: leave it away here")
        return self


class WholeDataConfig(DataConfig):
    """Of rows that are read whole, in several windows where they are long."""

    @model_validator(mode="after")
    def _no_cut(self) -> "WholeDataConfig":
        if self.filter.max_length is not None:
            raise ValueError("filter.max_length would cut texts that are read whole: leave it away here")
        return self


class ValidationConfig(Config):
    """Every validation measures all validation rows; there is nothing to choose."""


class DecodingConfig(Config):
    """Nothing is written, so nothing is decoded."""


class EvaluationConfig(Config):
    """``evaluate`` reports all scores of the task; there is nothing to choose."""


class ReadingRecipe(recipe.Recipe):
    """A recipe of such a task.

    Args:
        pretrained: word vectors that the embedding begins with.
    """

    data: DataConfig
    tokenizer: recipe.Tokenization
    model: Any
    pretrained: recipe.TextVectorsConfig = recipe.TextVectorsConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig | None = None
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def pairs(self) -> bool:
        """Whether two texts are read together."""
        return False

    @property
    def frame(self) -> Template:
        """The special tokens around the texts."""
        return AS_DOCUMENTS if isinstance(self.model, LanguageModelConfig) else WITH_CLASS

    @property
    def room(self) -> int:
        """Tokens that the texts of a row may have together."""
        return int(self.model.longest) - self.frame.n_specials(1 + self.pairs)

    @property
    def longest_key(self) -> str:
        """The setting that says how long a sequence may be."""
        return "model.context" if isinstance(self.model, LanguageModelConfig) else "model.max_length"

    @model_validator(mode="after")
    def _has_room(self) -> "ReadingRecipe":
        if self.room < 1:
            raise ValueError(f"{self.longest_key}={self.model.longest} leaves no room for a text")
        if self.pairs and isinstance(self.model, EncoderConfig) and self.model.segments < 2:
            raise ValueError("two texts that are read together need model.segments=2, which tell them apart")
        return self


class EncoderRecipe(ReadingRecipe):
    """One that asks for single tokens, which only an encoder reads with all that stands around them."""

    model: EncoderConfig


class WholeTextRecipe(ReadingRecipe):
    """One that asks for a whole text: a language model has read it at its last token."""

    model: AnyReader

    @property
    def frame(self) -> Template:
        """The special tokens around the texts; of a language model, as the task says."""
        return super().frame if self.task.framed else BARE

    @model_validator(mode="after")
    def _can_be_bare(self) -> "WholeTextRecipe":
        if not self.task.framed and isinstance(self.model, EncoderConfig):
            raise ValueError("task.framed=false: an encoder needs its token for the class before a text")
        if not self.task.framed and self.pairs:
            raise ValueError("task.framed=false: nothing would tell the two texts of a pair apart")
        return self
