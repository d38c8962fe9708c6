"""The recipe of a translator, and of all that write one text for another."""

from typing import Any, ClassVar

from pydantic import NonNegativeInt, model_validator

from heedful.config import Config
from heedful.data.report import Filter
from heedful.decoding.config import BeamConfig, DecodingConfig, GreedyConfig
from heedful.models.registry import EncoderDecoderConfig
from heedful.runs import recipe
from heedful.tasks.registry import TranslationTask
from heedful.tasks.translation import MAX_SOURCE
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig


class DataConfig(recipe.DataConfig):
    """Rows with a source and a target, and what to do with those that cannot be used as they are."""

    filter: Filter = Filter()


class Tokenization(Config):
    """The subword model, and what is done to the text of each side before it.

    Args:
        subwords: which model, and how large.
        shared: one model for both sides, which three-way tying needs; or one for each.
        source, target: lower-casing, Moses tokenisation, normalisation.
    """

    subwords: TokenizerConfig
    shared: bool = True
    source: PreprocessingConfig = PreprocessingConfig()
    target: PreprocessingConfig = PreprocessingConfig()


class ValidationConfig(Config):
    """What a validation measures besides loss and perplexity.

    Args:
        decode: of how many validation sentences to compute BLEU and chrF (0: none; null: all).
        decoding: how; greedy by default, for it is fast.
    """

    decode: NonNegativeInt | None = 0
    decoding: DecodingConfig | None = None


class EvaluationConfig(Config):
    """What ``evaluate`` reports besides sacreBLEU's scores.

    Args:
        tokenised_bleu: the language code whose Moses tokenisation a published score used: reports the
            lower-cased, tokenised BLEU under that name, beside sacreBLEU's and never instead.
    """

    tokenised_bleu: str | None = None


class PretrainedConfig(Config):
    """Word vectors (word2vec text or binary, or GloVe) that fill rows of the embeddings at the start."""

    source: str | None = None
    target: str | None = None


class TranslationRecipe(recipe.Recipe):
    """A whole recipe."""

    task: TranslationTask
    data: DataConfig
    tokenizer: Tokenization
    model: EncoderDecoderConfig
    pretrained: PretrainedConfig = PretrainedConfig()
    validation: ValidationConfig = ValidationConfig()
    decoding: DecodingConfig = BeamConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    decoded_metrics: ClassVar[frozenset[str]] = frozenset({"bleu", "chrf"})

    def metrics(self) -> set[str]:
        """What validation measures."""
        return super().metrics() | (self.decoded_metrics if self.validation.decode != 0 else set())

    @property
    def max_source(self) -> int:
        """The longest source in tokens; more is cut, in validation as in prediction.

        It is what the model has positions for, and not how long the training sentences were.
        """
        longest = self.model.longest
        return MAX_SOURCE if longest is None else min(MAX_SOURCE, longest - 1)

    @model_validator(mode="after")
    def _ties_one_vocabulary(self) -> "TranslationRecipe":
        if getattr(self.model, "tie", None) == "three-way" and not self.tokenizer.shared:
            raise ValueError("model.tie=three-way needs tokenizer.shared=true: one vocabulary for both sides")
        return self

    @model_validator(mode="after")
    def _has_positions_for_all(self) -> "TranslationRecipe":
        """A table of positions ends somewhere, and no sentence may be longer; found now, not hours later."""
        model: Any = self.model
        if model.longest is None:
            return self
        table = f"model.positions={model.positions} ends after model.max_length={model.longest} tokens"
        most = model.longest - 1
        for column in ("source", "target"):
            limit = self.data.filter.limit(column)
            if limit is None or limit > most:
                raise ValueError(f"{table}: set data.filter.max_length to at most {most}")
        for key, decoding in self._decodings().items():
            if decoding.max_length.cap > most:
                raise ValueError(f"{table}: set {key}.max_length.cap to at most {most}")
        return self

    def _decodings(self) -> dict[str, Any]:
        """Every decoding that the run will do, by its key."""
        if self.validation.decode == 0:
            return {"decoding": self.decoding}
        return {"decoding": self.decoding, "validation.decoding": self.validation.decoding or GreedyConfig()}
