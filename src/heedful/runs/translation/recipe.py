"""The recipe of a translator, and of all that write one text for another."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, model_validator

from heedful.config import Config
from heedful.data.report import Filter
from heedful.decoding.config import BeamConfig, DecodingConfig, GreedyConfig
from heedful.models.language_model import LanguageModelConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.transformer import TransformerConfig
from heedful.recipes import schema as recipe
from heedful.runs.translation.guidance import GuidedConfig
from heedful.tasks.metrics.translation import Language
from heedful.tasks.registry import TranslationTask
from heedful.tasks.sequence_formats import ConcatenatedFormat, EncoderDecoderFormat, SequenceFormat
from heedful.tasks.translation import MAX_SOURCE
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig


class DataConfig(recipe.DataConfig):
    """Rows with a source and a target, and what to do with those that cannot be used as they are.

    Args:
        filter: of texts that are too long, empty, or of very different lengths.
        bpe_dropout: how probable it is that a merge is left out of a training text, on both sides: it is cut
            into other pieces in every epoch (`heedful.text.merge_dropout`). 0.1 is usual for little data.
    """

    filter: Filter = Filter()
    bpe_dropout: float = Field(default=0.0, ge=0, lt=1)


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


class ObjectiveConfig(recipe.TokenObjectiveConfig):
    """Cross-entropy on the next token.

    Args:
        loss_on: of a language model, which reads source and target as one text: whether it learns to
            predict the ``answer`` (the target) alone, or ``all``.
        guided: let one head learn the word alignments of the training data besides; null: none.
    """

    loss_on: Literal["answer", "all"] = "answer"
    guided: GuidedConfig | None = None


class ValidationConfig(Config):
    """What a validation measures besides loss and perplexity.

    Args:
        decode: of how many validation sentences to compute BLEU and chrF (0: none; null: all).
        decoding: how; greedy by default, for it is fast.
    """

    decode: NonNegativeInt | None = 0
    decoding: DecodingConfig | None = None


class LanguageConfig(Config):
    """The language of what is written, for BLEU.

    Args:
        language: if words are not separated by spaces, or hardly (Korean): sacreBLEU splits Chinese (``zh``),
            Thai, Lao, Khmer, Burmese and Tibetan into characters, Japanese and Korean by a tokeniser that has
            to be installed with it (``pip install 'sacrebleu[ja]'`` or ``'sacrebleu[ko]'``).
    """

    language: Language | None = None


class EvaluationConfig(LanguageConfig):
    """What ``evaluate`` reports besides sacreBLEU's scores.

    Args:
        tokenised_bleu: the language code whose Moses tokenisation a published score used: reports the
            lower-cased, tokenised BLEU under that name, beside sacreBLEU's and never instead.
    """

    tokenised_bleu: str | None = None


class PretrainedConfig(recipe.VectorsConfig):
    """Word vectors (word2vec text or binary, or GloVe) that fill rows of the embeddings at the start.

    Words are filled that one token alone spells. The model reads vectors at their own size; in a recurrent
    model whose output layer shares the table, this needs ``model.scale_embedding=true``. Other words begin as
    without vectors. If both sides share a table, the target's vectors are written last.

    Args:
        source, target: the file for each side; null: none.
    """

    source: str | None = None
    target: str | None = None


class TranslationRecipe(recipe.Recipe):
    """A whole recipe.

    Args:
        pretrained: word vectors that the embeddings begin with.
    """

    task: TranslationTask
    data: DataConfig
    tokenizer: Tokenization
    model: Annotated[TransformerConfig | RecurrentConfig | LanguageModelConfig, Field(discriminator="kind")]
    objective: ObjectiveConfig = ObjectiveConfig()
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

        It is what the model has positions for, and not how long the training sentences were. A language
        model needs some of them for the target: as many as the training targets may have.
        """
        longest: int | None = self.model.longest
        if self.is_one_text and longest is not None:
            return longest - 2 - (self.data.filter.limit("target") or 0)
        return MAX_SOURCE if longest is None else min(MAX_SOURCE, longest - 1)

    @property
    def is_one_text(self) -> bool:
        """Whether source and target are read as one text, by a language model."""
        return isinstance(self.model, LanguageModelConfig)

    @property
    def pairing(self) -> SequenceFormat:
        """How both are laid before the model."""
        if isinstance(self.model, LanguageModelConfig):
            return ConcatenatedFormat(self.model.context, self.objective.loss_on == "answer")
        return EncoderDecoderFormat(self.model.longest)

    @model_validator(mode="after")
    def _fits_one_text(self) -> Self:
        """A language model has one vocabulary, no side of its own for the source, and a context."""
        if not isinstance(self.model, LanguageModelConfig):
            if self.objective.loss_on != "answer":
                raise ValueError("objective.loss_on=all: an encoder-decoder foretells nothing of its source")
            return self
        if not self.tokenizer.shared:
            raise ValueError(
                "model.kind=language-model reads both sides as one text: set tokenizer.shared=true"
            )
        if self.pretrained != PretrainedConfig():
            raise ValueError("pretrained: a language model has no source embedding to fill")
        for key, decoding in self._decodings().items():
            if getattr(decoding, "coverage", 0):
                raise ValueError(f"{key}.coverage: a language model has no attention over a source")
        limits = [self.data.filter.limit(column) for column in ("source", "target")]
        most = self.model.context - 2
        if None in limits or sum(n for n in limits if n) > most:
            raise ValueError(
                f"a language model reads source and target as one text of at most model.context="
                f"{self.model.context} tokens: set data.filter.max_length for both, together at most {most}"
            )
        return self

    @model_validator(mode="after")
    def _guides_a_head_that_is_there(self) -> Self:
        if self.objective.guided is not None:
            self.objective.guided.check(self.model)
        return self

    @model_validator(mode="after")
    def _has_room_for_other_cuts(self) -> Self:
        """Texts grow when merges are left out, and links between pieces no longer fit."""
        if not self.data.bpe_dropout:
            return self
        kind = self.tokenizer.subwords.kind
        if kind not in ("bpe", "byte-bpe"):
            raise ValueError(
                f"data.bpe_dropout leaves out merges, and tokenizer.subwords.kind={kind} has none"
            )
        if self.model.longest is not None:
            raise ValueError(
                "data.bpe_dropout makes texts longer than data.filter allows: take positions without an end "
                "(sinusoidal, rotary, alibi)"
            )
        if self.objective.guided is not None:
            raise ValueError("data.bpe_dropout: objective.guided links the pieces of the usual cut")
        return self

    @model_validator(mode="after")
    def _ties_one_vocabulary(self) -> Self:
        if getattr(self.model, "tie", None) == "three-way" and not self.tokenizer.shared:
            raise ValueError("model.tie=three-way needs tokenizer.shared=true: one vocabulary for both sides")
        return self

    @model_validator(mode="after")
    def _has_positions_for_all(self) -> Self:
        """A table of positions ends somewhere, and no sentence may be longer; found now, not hours later."""
        model: Any = self.model
        if model.longest is None or self.is_one_text:
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
