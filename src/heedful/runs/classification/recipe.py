"""The recipe of a classifier."""

from typing import ClassVar

from pydantic import Field, model_validator

from heedful.config import Config
from heedful.data.report import Filter
from heedful.models.encoder import EncoderConfig
from heedful.objectives.registry import CLASS, Losses
from heedful.runs import recipe
from heedful.tasks.classification import N_SPECIALS
from heedful.tasks.registry import ClassificationTask
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig


class DataConfig(recipe.DataConfig):
    """Rows with texts and a label, and what to do with those that cannot be used as they are."""

    filter: Filter = Filter()

    @model_validator(mode="after")
    def _no_ratio(self) -> "DataConfig":
        if self.filter.max_ratio is not None:
            raise ValueError("filter.max_ratio compares a source with its target: leave it away here")
        return self


class Tokenization(Config):
    """The subword model, and what is done to the text before it."""

    subwords: TokenizerConfig
    text: PreprocessingConfig = PreprocessingConfig()


class ObjectiveConfig(recipe.ObjectiveConfig):
    """What is minimised of the class of a sequence."""

    losses: ClassVar[Losses] = CLASS

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class ValidationConfig(Config):
    """Every validation measures loss and accuracy on all validation rows; there is nothing to choose."""


class DecodingConfig(Config):
    """Nothing is written, so nothing is decoded."""


class EvaluationConfig(Config):
    """``evaluate`` reports accuracy, macro and micro F1; there is nothing to choose."""


class ClassificationRecipe(recipe.Recipe):
    """A whole recipe."""

    task: ClassificationTask
    data: DataConfig
    tokenizer: Tokenization
    model: EncoderConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig | None = None
    evaluation: EvaluationConfig = EvaluationConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures."""
        return {"loss", "accuracy"}

    @property
    def room(self) -> int:
        """Tokens that the texts of a row may have together."""
        return self.model.max_length - N_SPECIALS - self.task.pairs

    @model_validator(mode="after")
    def _has_room(self) -> "ClassificationRecipe":
        if self.room < 1:
            raise ValueError(f"model.max_length={self.model.max_length} leaves no room for a text")
        if self.task.pairs and self.model.segments < 2:
            raise ValueError("task.pairs needs model.segments=2, which tell the texts of a pair apart")
        return self
