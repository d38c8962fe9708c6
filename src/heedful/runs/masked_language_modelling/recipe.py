"""The recipe of a masked language model."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from heedful.config import Config
from heedful.data.masking import SpanLengths
from heedful.models.encoder import EncoderConfig
from heedful.objectives.registry import MASKED_TOKEN, Losses
from heedful.recipes import schema as recipe
from heedful.runs.language_modelling.recipe import Tokenization
from heedful.tasks.masking import WITHOUT_WORDS
from heedful.tasks.registry import MaskedLanguageModellingTask


class ObjectiveConfig(recipe.ObjectiveConfig):
    """What is hidden, and how (Devlin et al. 2019, section 3.1; spans: Joshi et al. 2020).

    Args:
        rate: the share of the tokens that is chosen; S1 says "up to 15 %".
        masked: of these, the share that becomes the mask.
        random: of these, the share that becomes any token; the rest stays as it is.
        hide: single ``tokens``, whole ``words``, or ``spans`` of words.
        span_p: of the geometric law of the spans' lengths in words.
        longest_span: the most words of a span.
        boundary: of spans, whether they are also told from the tokens beside them.
    """

    losses: ClassVar[Losses] = MASKED_TOKEN

    rate: float = Field(default=0.15, gt=0, lt=1)
    masked: float = Field(default=0.8, ge=0, le=1)
    random: float = Field(default=0.1, ge=0, le=1)
    hide: Literal["tokens", "words", "spans"] = "tokens"
    span_p: float = Field(default=0.2, gt=0, lt=1)
    longest_span: PositiveInt = 10
    boundary: bool = False

    @model_validator(mode="after")
    def _shares(self) -> "ObjectiveConfig":
        if self.masked + self.random > 1:
            raise ValueError(f"masked={self.masked} and random={self.random} are more than all together")
        if self.boundary and self.hide != "spans":
            raise ValueError("boundary=true needs hide=spans")
        return self

    @property
    def spans(self) -> SpanLengths | None:
        """The law of the spans' lengths, where spans are hidden."""
        return SpanLengths(self.span_p, self.longest_span) if self.hide == "spans" else None


class ValidationConfig(Config):
    """Loss and perplexity of hidden tokens, the same ones at every validation; nothing to choose."""


class DecodingConfig(Config):
    """Nothing is written from left to right, so nothing is decoded."""


class EvaluationConfig(Config):
    """Perplexity and accuracy of hidden tokens; nothing to choose."""


class MaskedLanguageModellingRecipe(recipe.Recipe):
    """A whole recipe.

    Args:
        pretrained: word vectors that the embedding begins with.
    """

    task: MaskedLanguageModellingTask
    data: recipe.DataConfig
    tokenizer: Tokenization
    model: EncoderConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    pretrained: recipe.TextVectorsConfig = recipe.TextVectorsConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig | None = None
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _has_words_to_hide(self) -> "MaskedLanguageModellingRecipe":
        hide, kind = self.objective.hide, self.tokenizer.subwords.kind
        if hide != "tokens" and kind in WITHOUT_WORDS:
            raise ValueError(
                f"objective.hide={hide} needs tokens that show where words begin, and "
                f"tokenizer.subwords.kind={kind} has none: take objective.hide=tokens, or subwords"
            )
        return self

    @model_validator(mode="after")
    def _has_room(self) -> "MaskedLanguageModellingRecipe":
        fewest = 4 + self.task.next_sentence
        if self.model.max_length < fewest:
            raise ValueError(
                f"model.max_length={self.model.max_length} leaves no room: it must be {fewest} at least"
            )
        if self.task.next_sentence and self.model.segments < 2:
            raise ValueError(
                "task.next_sentence needs model.segments=2, which tell the texts of a pair apart"
            )
        return self
