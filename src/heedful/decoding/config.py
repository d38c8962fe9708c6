"""Decoding configuration of recipes and requests, and `decode`, which applies it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from heedful.config import Config
from heedful.decoding.beam import Unfinished, beam_search
from heedful.decoding.greedy import greedy
from heedful.decoding.protocol import Hypothesis, Request
from heedful.decoding.sampling import sample
from heedful.decoding.scoring import AverageLength, CoveragePenalty, GnmtLength, LengthPenalty, NoPenalty
from heedful.errors import RequestError

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Axis = Annotated[
    int, Field(ge=1, le=1000)
]  # hypotheses per sentence; each step ranks this number times the vocabulary size


class MaxLength(Config):
    """Maximum number of generated tokens: ``min(cap, int(ratio * source_length) + extra)``.

    The end token counts. Without a source, ``source_length`` is 0: set ``extra``.

    Args:
        ratio: tokens per source token.
        extra: additional tokens.
        cap: upper limit.
    """

    ratio: NotNegative = 2.0
    extra: int = Field(default=10, ge=0)
    cap: int = Field(default=256, ge=0)

    def of(self, source_length: int) -> int:
        """Return the maximum length for a source of ``source_length`` tokens."""
        return min(self.cap, int(self.ratio * source_length) + self.extra)


class NoPenaltyConfig(Config):
    """The score is the log-probability."""

    kind: Literal["none"] = "none"

    def build(self) -> LengthPenalty:
        """Build the penalty."""
        return NoPenalty()


class AverageLengthConfig(Config):
    """Log-probability over ``L ** alpha``.

    Args:
        alpha: exponent; 0: no penalty, 1: average over the tokens.
    """

    kind: Literal["average"] = "average"
    alpha: NotNegative = 1.0

    def build(self) -> LengthPenalty:
        """Build the penalty."""
        return AverageLength(self.alpha)


class GnmtLengthConfig(Config):
    """Log-probability over ``((5 + L) / 6) ** alpha``.

    Args:
        alpha: exponent; 0: no penalty; larger values favour longer outputs.
    """

    kind: Literal["gnmt"] = "gnmt"
    alpha: NotNegative = 0.6

    def build(self) -> LengthPenalty:
        """Build the penalty."""
        return GnmtLength(self.alpha)


LengthPenaltyConfig = Annotated[
    NoPenaltyConfig | AverageLengthConfig | GnmtLengthConfig, Field(discriminator="kind")
]


class GreedyConfig(Config):
    """Greedy decoding: the most probable token at every step (`heedful.decoding.greedy.greedy`).

    Args:
        max_length: maximum number of generated tokens.
    """

    kind: Literal["greedy"] = "greedy"
    max_length: MaxLength = MaxLength()


class BeamConfig(Config):
    """Beam search (`heedful.decoding.beam.beam_search`), by default as in Vaswani et al. 2017, section 6.1.

    Args:
        max_length: maximum number of generated tokens.
        beam: number of hypotheses per sentence.
        n_best: number of hypotheses to return.
        length_penalty: normalization of log-probabilities by length.
        coverage: beta of the coverage penalty (Wu et al. 2016, equation 14); 0 disables it.
        unfinished: rank hypotheses without an end token at the maximum length by score among the finished
            ones (``keep``, as in transformers), or use them only if too few have finished (``drop``).
    """

    kind: Literal["beam"] = "beam"
    max_length: MaxLength = MaxLength()
    beam: Axis = 4
    n_best: Axis = 1
    length_penalty: LengthPenaltyConfig = GnmtLengthConfig()
    coverage: NotNegative = 0.0
    unfinished: Unfinished = "drop"

    @model_validator(mode="after")
    def _n_best_fits(self) -> "BeamConfig":
        if self.n_best > self.beam:
            raise ValueError(f"n_best must be at most beam ({self.beam}), got {self.n_best}")
        return self


class SampleConfig(Config):
    """Sampling from the distribution of the model (`heedful.decoding.sampling.sample`).

    Args:
        max_length: maximum number of generated tokens; not supported for language models, which have
            ``completion``.
        temperature: divisor of log-probabilities; 0 selects the most probable token.
        top_k: keep the k most probable tokens; null: all.
        top_p: keep the most probable tokens with this total probability; 1: all.
        min_p: keep tokens with at least this probability relative to the largest; 0: all.
        seed: random seed.
        n: number of samples per input.
    """

    kind: Literal["sample"] = "sample"
    max_length: MaxLength = MaxLength()
    temperature: NotNegative = 1.0
    top_k: int | None = Field(default=None, ge=1)
    top_p: Fraction = 1.0
    min_p: Fraction = 0.0
    seed: int = Field(default=0, ge=0)
    n: Axis = 1


DecodingConfig = Annotated[GreedyConfig | BeamConfig | SampleConfig, Field(discriminator="kind")]


def decode(config: GreedyConfig | BeamConfig | SampleConfig, request: Request) -> list[list[Hypothesis]]:
    """Decode as configured; used by validation, prediction and serving.

    ``request.max_lengths`` must be at most ``config.max_length.of`` for each sentence.

    Returns:
        The hypotheses of each sentence, in the order of the sentences; at least one each.

    Raises:
        WorkError: the logits are not a distribution, or only forbidden tokens are possible.
        RequestError: the model or the request does not support the configuration.
    """
    if request.on_token is not None:
        check_streaming(config)
    match config:
        case GreedyConfig():
            return [[hypothesis] for hypothesis in greedy(request)]
        case BeamConfig():
            length = config.length_penalty.build()
            coverage = CoveragePenalty(config.coverage) if config.coverage else None
            return beam_search(
                request, beam=config.beam, n_best=config.n_best, length=length, coverage=coverage,
                unfinished=config.unfinished,
            )  # fmt: skip
        case SampleConfig():
            return sample(
                request, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p,
                min_p=config.min_p, seed=config.seed, n=config.n,
            )  # fmt: skip


def check_streaming(config: GreedyConfig | BeamConfig | SampleConfig) -> None:
    """Check that tokens are final as soon as they are chosen, so that they can be streamed.

    Raises:
        RequestError: the result is only known at the end.
    """
    if isinstance(config, BeamConfig) and config.beam > 1:
        raise RequestError(
            f"streaming requires beam 1, got {config.beam}: a beam search has no final token before its end; "
            "use a beam of 1 (--beam 1), or kind 'greedy' or 'sample' (--decoding kind=sample)"
        )
    if isinstance(config, SampleConfig) and config.n > 1:
        raise RequestError(f"streaming supports only one sample, got n={config.n}; set 'n' to 1")
