"""How a recipe or a request says how to decode, and the one function that carries it out."""

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
]  # hypotheses of a sentence; each step ranks them times the vocabulary


class MaxLength(Config):
    """The most tokens to generate: ``min(cap, int(ratio * source_length) + extra)``.

    The end token counts. Without a source, ``source_length`` is 0: set ``extra``.

    Args:
        ratio: tokens for each token of the source.
        extra: tokens besides.
        cap: the most tokens in any case.
    """

    ratio: NotNegative = 2.0
    extra: int = Field(default=10, ge=0)
    cap: int = Field(default=256, ge=0)

    def of(self, source_length: int) -> int:
        """The maximum length for a source of so many tokens."""
        return min(self.cap, int(self.ratio * source_length) + self.extra)


class NoPenaltyConfig(Config):
    """The score is the log-probability."""

    kind: Literal["none"] = "none"

    def build(self) -> LengthPenalty:
        """The penalty described."""
        return NoPenalty()


class AverageLengthConfig(Config):
    """Log-probability over ``L ** alpha``.

    Args:
        alpha: 0 is no penalty, 1 the average over the tokens.
    """

    kind: Literal["average"] = "average"
    alpha: NotNegative = 1.0

    def build(self) -> LengthPenalty:
        """The penalty described."""
        return AverageLength(self.alpha)


class GnmtLengthConfig(Config):
    """Log-probability over ``((5 + L) / 6) ** alpha``.

    Args:
        alpha: 0 is no penalty; larger ones favour longer outputs.
    """

    kind: Literal["gnmt"] = "gnmt"
    alpha: NotNegative = 0.6

    def build(self) -> LengthPenalty:
        """The penalty described."""
        return GnmtLength(self.alpha)


LengthPenaltyConfig = Annotated[
    NoPenaltyConfig | AverageLengthConfig | GnmtLengthConfig, Field(discriminator="kind")
]


class GreedyConfig(Config):
    """The most probable token at every step (`heedful.decoding.greedy.greedy`).

    Args:
        max_length: the most tokens to write.
    """

    kind: Literal["greedy"] = "greedy"
    max_length: MaxLength = MaxLength()


class BeamConfig(Config):
    """`heedful.decoding.beam.beam_search`, by default as Vaswani et al. 2017, section 6.1.

    Args:
        max_length: the most tokens to write.
        beam: hypotheses that run side by side.
        n_best: how many of them are answers.
        length_penalty: how log-probabilities of different lengths are compared.
        coverage: beta of the coverage penalty (Wu et al. 2016, equation 14); 0 leaves it out.
        unfinished: hypotheses without an end token at the maximum length are ranked by score among the
            finished ones (``keep``, as transformers does), or used only if too few have finished (``drop``).
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
            raise ValueError(f"n_best ({self.n_best}) cannot be greater than beam ({self.beam})")
        return self


class SampleConfig(Config):
    """Every token drawn from the model's distribution (`heedful.decoding.sampling.sample`).

    Args:
        max_length: the most tokens to write; a language model has ``completion`` for that, and refuses it.
        temperature: what log-probabilities are divided by; 0 takes the most probable token.
        top_k: how many of the most probable tokens are kept; null: all.
        top_p: the probability that is kept; 1: all.
        min_p: the least probability that is kept, relative to the greatest; 0: all.
        seed: of the draws.
        n: samples for each input.
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
    """Decode as ``config`` says: the same function for validation, prediction and serving.

    The request's ``max_lengths`` hold the result of ``config.max_length.of`` for each sentence, or less.

    Returns:
        The hypotheses of each sentence, in the order of the sentences; at least one for each.

    Raises:
        WorkError: the logits hold no distribution, or leave only forbidden tokens possible.
        RequestError: the model or the request lacks what the configuration needs.
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
    """See that tokens are final as soon as they are chosen, so that they can be shown then.

    Raises:
        RequestError: which answer it will be is only known in the end.
    """
    if isinstance(config, BeamConfig) and config.beam > 1:
        raise RequestError(
            f"a beam search has no token to show before its end, and beam is {config.beam}; "
            "stream with a beam of 1 (--beam 1), or with kind 'greedy' or 'sample' (--decoding kind=sample)"
        )
    if isinstance(config, SampleConfig) and config.n > 1:
        raise RequestError("the tokens of several samples cannot be streamed; set 'n' to 1")
