"""The recipe of a language model."""

from typing import Any

from pydantic import Field, PositiveInt, model_validator

from heedful.config import Config
from heedful.decoding.config import DecodingConfig, SampleConfig
from heedful.errors import RequestError
from heedful.models.language_model import LanguageModelConfig
from heedful.recipes import schema as recipe
from heedful.tasks.language_modelling import Limits, refuse_source
from heedful.tasks.registry import LanguageModellingTask


class Tokenization(recipe.Tokenization):
    """As of other tasks, without Moses: running text has line ends and spaces, which that would lose."""

    @model_validator(mode="after")
    def _keeps_spaces(self) -> "Tokenization":
        if self.text.moses is not None:
            raise ValueError("text.moses loses the line ends and spaces of running text: leave it away")
        return self


class ObjectiveConfig(recipe.TokenObjectiveConfig):
    """Cross-entropy on the next token, as it is: perplexity is what counts."""

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class ValidationConfig(Config):
    """What a validation measures: loss and perplexity, in windows that do not overlap.

    Args:
        tokens: how many tokens, from the first on; null: all.
    """

    tokens: PositiveInt | None = None


class CompletionConfig(Config):
    """Where a completion ends, if the model does not end it.

    Args:
        max_new_tokens: the most tokens to write.
        stop: texts at which it ends; they are not part of it.
    """

    max_new_tokens: PositiveInt = 200
    stop: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _stops_somewhere(self) -> "CompletionConfig":
        if "" in self.stop:
            raise ValueError("stop: none of the texts may be empty")
        return self

    @property
    def limits(self) -> Limits:
        """The same, as a `Completer` takes it."""
        return Limits(self.max_new_tokens, self.stop)


class EvaluationConfig(Config):
    """How ``evaluate`` reads the text.

    Args:
        stride: besides windows that do not overlap, as in validation, also score windows that move on by
            this many tokens, of which only the last ones, as many, count: then each has at least context -
            stride tokens before it. Smaller is better and slower.
    """

    stride: PositiveInt | None = None


class LanguageModellingRecipe(recipe.Recipe):
    """A whole recipe.

    Args:
        pretrained: word vectors that the embedding begins with.
        completion: where a completion ends.
    """

    task: LanguageModellingTask
    data: recipe.DataConfig
    tokenizer: Tokenization
    model: LanguageModelConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    pretrained: recipe.TextVectorsConfig = recipe.TextVectorsConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig = SampleConfig()
    completion: CompletionConfig = CompletionConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _strides_within_the_context(self) -> "LanguageModellingRecipe":
        stride, context = self.evaluation.stride, self.model.context
        if stride is not None and stride > context:
            raise ValueError(f"evaluation.stride={stride} is longer than model.context={context}")
        return self

    @model_validator(mode="after")
    def _has_no_source(self) -> "LanguageModellingRecipe":
        decoding: Any = self.decoding
        try:
            refuse_source(decoding)
        except RequestError as error:
            raise ValueError(str(error)) from None
        return self
