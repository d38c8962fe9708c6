"""Sections of a layer, except its position mixer: scores, norms, channel mixers, and position encodings.

Each is a `Section`, selected by ``kind``; the tables `SCORES`, `NORMS`, `CHANNELS` and `POSITIONS` list
them. A class added to a table is available in recipes, in its documentation (``docs/settings.md``) and to
all models.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from torch import nn

from heedful.config import OwnSection, Section, by_kind
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.scores import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    Score,
)
from heedful.nn.experts import Gate, MixtureOfExperts, NoisyTopKGate, TopKGate
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm, RMSNorm
from heedful.nn.positions import (
    ConstantPositions,
    LearnedPositions,
    NoPositions,
    OneHotPositions,
    Positions,
    SinusoidalPositions,
)
from heedful.typing import JsonObject

Positive = Annotated[int, Field(ge=1)]
Layers = Annotated[int, Field(ge=1, le=1000)]  # a larger number is a mistake and would take minutes to build
Rate = Annotated[float, Field(ge=0, lt=1)]
Epsilon = Annotated[float, Field(gt=0, lt=1)]
Weight = Annotated[float, Field(ge=0)]
Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": lambda: nn.GELU("tanh"),
    "silu": nn.SiLU,
}
"""``gelu-tanh`` is GPT-2's approximation of ``gelu`` (Hendrycks and Gimpel 2016, section 2), ``silu`` is
x sigmoid(x), also called swish."""


# Scores of attention


class ScoreSection(Section):
    """Base class of scores."""

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> Score:
        """Build the score.

        Args:
            d_q: width of queries.
            d_k: width of keys.
            n_heads: number of heads.
            key_strength: initial β of a cosine score whose configuration gives none.
        """
        raise NotImplementedError


class ScaledDotConfig(ScoreSection):
    """q·k / √d_k, the score of the Transformer (Vaswani et al. 2017, equation 1)."""

    kind: Literal["scaled-dot"] = "scaled-dot"

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> Score:
        """Build the score."""
        return ScaledDotScore()


class DotConfig(ScoreSection):
    """q·k."""

    kind: Literal["dot"] = "dot"

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> Score:
        """Build the score."""
        return DotScore()


class BilinearConfig(ScoreSection):
    """qᵀ W k (Luong's "general"); W is shared by all heads, after each head's own projections."""

    kind: Literal["bilinear"] = "bilinear"

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> Score:
        """Build the score."""
        return BilinearScore(d_q, d_k)


class AdditiveConfig(ScoreSection):
    """vᵀ tanh(W q + U k) (Bahdanau et al. 2015, section A.1.2); each head has its own v.

    Args:
        d_attention: number of hidden units; null: the width of the queries.
        bias: whether the hidden units have a bias.
    """

    kind: Literal["additive"] = "additive"
    d_attention: Positive | None = None
    bias: bool = False

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> Score:
        """Build the score."""
        return AdditiveScore(d_q, d_k, self.d_attention or d_q, self.bias, n_heads=n_heads)


class CosineConfig(ScoreSection):
    """β cos(q, k) (Graves et al. 2014, section 3.3.1).

    Args:
        key_strength: initial value of a learned β; null: √d_k in multi-head attention; in recurrent
            decoders, β is 1 and is not learned.
    """

    kind: Literal["cosine"] = "cosine"
    key_strength: Annotated[float, Field(gt=0)] | None = None

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> Score:
        """Build the score; the argument replaces a ``key_strength`` of None."""
        return CosineScore(self.key_strength or key_strength)


SCORES: tuple[type[ScoreSection], ...] = (
    ScaledDotConfig,
    DotConfig,
    BilinearConfig,
    AdditiveConfig,
    CosineConfig,
)


# Norms


class NormSection(Section):
    """Base class of norms."""

    def build(self, d_model: int) -> nn.Module:
        """Build the norm of vectors of width ``d_model``."""
        raise NotImplementedError


class LayerNormConfig(NormSection):
    """Layer normalisation (Ba et al. 2016).

    Args:
        eps: ε.
        bias: whether it has a bias besides its gain.
    """

    kind: Literal["layer"] = "layer"
    eps: Epsilon = 1e-5
    bias: bool = True

    def build(self, d_model: int) -> nn.Module:
        """Build the norm."""
        return LayerNorm(d_model, self.eps, self.bias)


class RMSNormConfig(NormSection):
    """Root mean square normalisation, without mean and bias (Zhang and Sennrich 2019).

    Args:
        eps: ε.
    """

    kind: Literal["rms"] = "rms"
    eps: Epsilon = 1e-5

    def build(self, d_model: int) -> nn.Module:
        """Build the norm."""
        return RMSNorm(d_model, self.eps)


class BatchNormConfig(NormSection):
    """Batch normalisation over the tokens of a batch (Ioffe and Szegedy 2015).

    Args:
        eps: ε.
        momentum: weight of a batch in the running statistics.
    """

    kind: Literal["batch"] = "batch"
    eps: Epsilon = 1e-5
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.1

    def build(self, d_model: int) -> nn.Module:
        """Build the norm."""
        return BatchNorm(d_model, self.eps, self.momentum)


class PowerNormConfig(NormSection):
    """Power normalisation over the tokens of a batch (Shen et al. 2020).

    Args:
        warmup: number of batches that are divided by their own mean square. It must be much smaller than the
            number of updates: the 10,000 of the released code suit days of training.
        n_groups: number of groups of features of each token that are first scaled to a mean square of 1, as
            in the released code; null: no scaling.
        alpha_fwd, alpha_bkw: decay of the running mean square (fwd), and of the running correction of the
            gradient (bkw).
        eps: ε.
    """

    kind: Literal["power"] = "power"
    warmup: Annotated[int, Field(ge=0)] = 500
    n_groups: Positive | None = None
    alpha_fwd: Rate = 0.9
    alpha_bkw: Rate = 0.9
    eps: Epsilon = 1e-5

    def build(self, d_model: int) -> nn.Module:
        """Build the norm."""
        return PowerNorm(d_model, self.warmup, self.n_groups, self.alpha_fwd, self.alpha_bkw, self.eps)


NORMS: tuple[type[NormSection], ...] = (LayerNormConfig, RMSNormConfig, BatchNormConfig, PowerNormConfig)


# Channel mixers


class ChannelSection(Section):
    """Base class of channel mixers."""

    def build(self, d_model: int) -> nn.Module | None:
        """Build the module ``[T, d_model] -> [T, d_model]``; None: there is no channel mixer."""
        raise NotImplementedError


class FeedForwardConfig(ChannelSection):
    """Two linear layers with an activation between them (Vaswani et al. 2017, equation 2).

    Args:
        d_ff: number of hidden units; null: 4 d_model.
        activation: activation of the hidden units.
        bias: whether the two layers have biases.
        dropout: dropout rate of the hidden units.
    """

    kind: Literal["feed-forward"] = "feed-forward"
    d_ff: Positive | None = None
    activation: Activation = "relu"
    bias: bool = True
    dropout: Rate = 0.0

    def build(self, d_model: int) -> nn.Module:
        """Build the network."""
        return _feed_forward(FeedForward, self, d_model)


class GatedConfig(ChannelSection):
    """Feed-forward network whose hidden units are multiplied by a gate; with relu, gelu or silu it is ReGLU,
    GEGLU or SwiGLU (Shazeer 2020).

    Args:
        d_ff: number of hidden units; null: 4 d_model.
        activation: activation of the gate.
        bias: whether the layers have biases.
        dropout: dropout rate of the hidden units.
    """

    kind: Literal["gated"] = "gated"
    d_ff: Positive | None = None
    activation: Activation = "relu"
    bias: bool = True
    dropout: Rate = 0.0

    def build(self, d_model: int) -> nn.Module:
        """Build the network."""
        return _feed_forward(GatedFeedForward, self, d_model)


if TYPE_CHECKING:
    ExpertConfig = FeedForwardConfig | GatedConfig
else:
    ExpertConfig = by_kind(FeedForwardConfig, GatedConfig)


class ExpertsConfig(ChannelSection):
    """Mixture of experts (`heedful.nn.experts`).

    Balance: ``max_load`` in metrics.jsonl is the number of tokens of the busiest expert over the mean (1 is
    best, n / k worst); ``heedful evaluate`` reports the share of tokens of each expert in each layer. Experts
    have no capacity limit, so no token is dropped.

    Args:
        n: number of experts.
        k: number of experts per token.
        gate: with noise in training, or without.
        importance, load: weights of the loss terms that balance the experts; ``load`` requires noise and is
            equal to ``importance`` by default.
        expert: network of each expert.
    """

    kind: Literal["experts"] = "experts"
    n: Annotated[int, Field(ge=3, le=1000)] = 128
    k: Annotated[int, Field(ge=2)] = 2
    gate: Literal["noisy-top-k", "top-k"] = "noisy-top-k"
    importance: Weight = 0.1
    load: Weight | None = None
    expert: ExpertConfig = FeedForwardConfig()

    @model_validator(mode="after")
    def _fits(self) -> "ExpertsConfig":
        if self.k >= self.n:
            raise ValueError(f"experts.k must be smaller than experts.n (k={self.k}, n={self.n})")
        if self.gate == "top-k" and self.load is not None:
            raise ValueError("load requires gate=noisy-top-k, got gate=top-k; remove load")
        return self

    def build(self, d_model: int) -> nn.Module:
        """Build the experts and their gate."""
        numbers, importance = (d_model, self.n, self.k), self.importance
        gate: Gate
        if self.gate == "noisy-top-k":
            load = importance if self.load is None else self.load
            gate = NoisyTopKGate(*numbers, importance=importance, load=load)
        else:
            gate = TopKGate(*numbers, importance=importance)
        return MixtureOfExperts(gate, [self.expert.build(d_model) for _ in range(self.n)])


class NoChannelsConfig(ChannelSection):
    """No channel mixer, as in recurrent networks."""

    kind: Literal["none"] = "none"

    def build(self, d_model: int) -> None:
        """Return None."""
        return


CHANNELS: tuple[type[ChannelSection], ...] = (FeedForwardConfig, GatedConfig, ExpertsConfig, NoChannelsConfig)


def _feed_forward(
    network: Callable[..., nn.Module], config: FeedForwardConfig | GatedConfig, d_model: int
) -> nn.Module:
    return network(
        d_model,
        config.d_ff or 4 * d_model,
        activation=ACTIVATIONS[config.activation](),
        bias=config.bias,
        dropout=config.dropout,
    )


# Position encodings


class PositionsSection(Section):
    """Base class of position encodings."""

    acts_inside: ClassVar[bool] = False
    """Whether positions act inside self-attention; other position mixers do not support them."""

    def width(self, d: int, n: int) -> int:
        """Return the width of the vectors of n positions beside embeddings that leave them the width d."""
        return d

    def build(self, n: int, d: int) -> Positions:
        """Build the vectors of n positions; by default none."""
        return NoPositions(d)

    def inside(self, d_k: int, n_heads: int) -> JsonObject:
        """Return the options of self-attention; by default none."""
        return {}

    def check(self, d: int) -> None:
        """Check that vectors of width ``d`` are possible.

        Raises:
            ValueError: says what is expected.
        """

    def check_heads(self, d_k: int, score: str) -> None:
        """Check that the positions can act inside attention with these heads and this kind of score.

        Raises:
            ValueError: names the key and the limit.
        """


class SinusoidalConfig(PositionsSection):
    """Sinusoids (Vaswani et al. 2017, section 3.5).

    Args:
        base: pair i of the d components has the angle position / base^(2i / d).
        interleaved: whether sines and cosines alternate; if not, all sines come first, as in Marian models.
        offset: number of the first position.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: Annotated[float, Field(gt=1)] = 10000.0
    interleaved: bool = True
    offset: Annotated[int, Field(ge=0)] = 0

    def check(self, d: int) -> None:
        """Check that sines and cosines are pairs."""
        if d % 2 or not d:
            raise ValueError(f"must be even and at least 2 with positions.kind={self.kind}, got {d}")

    def build(self, n: int, d: int) -> Positions:
        """Build the encoding."""
        return SinusoidalPositions(d, self.base, self.interleaved, self.offset)


class GridConfig(PositionsSection):
    """Sinusoids of the row and column of a patch (`heedful.nn.positions.GridPositions`); for images alone."""

    kind: Literal["grid"] = "grid"


class LearnedConfig(PositionsSection):
    """A learned vector for each position up to the maximum length."""

    kind: Literal["learned"] = "learned"

    def build(self, n: int, d: int) -> Positions:
        """Build the table."""
        return LearnedPositions(n, d)


class OneHotConfig(PositionsSection):
    """A one-hot vector for each position up to the maximum length, which is its width."""

    kind: Literal["one-hot"] = "one-hot"

    def width(self, d: int, n: int) -> int:
        """Return the number of positions."""
        return n

    def build(self, n: int, d: int) -> Positions:
        """Build the encoding."""
        return OneHotPositions(n)


class ConstantConfig(PositionsSection):
    """The position itself, divided by the maximum length, in all components."""

    kind: Literal["constant"] = "constant"

    def build(self, n: int, d: int) -> Positions:
        """Build the encoding."""
        return ConstantPositions(d, 1 / n)


class NoPositionsConfig(PositionsSection):
    """None: order is known only from a causal mask, a recurrence or a convolution."""

    kind: Literal["none"] = "none"

    def width(self, d: int, n: int) -> int:
        """Return 0."""
        return 0


class RotaryConfig(PositionsSection):
    """Rotation of queries and keys inside every self-attention (Su et al. 2021, section 3.2.2).

    Args:
        base: pair i of the components of a head is rotated by base^(-2i / d_rotated) radians per token; a
            larger base distinguishes longer distances.
        d_rotated: number of leading components of each query and key of a head that are rotated; even;
            null: all d_k. GPT-NeoX rotates a quarter of them (Black et al. 2022, section 2.1.1).
        interleaved: whether pairs are adjacent components; if not, component i and i + d_rotated / 2, which
            reads adjacent numbers in memory.
    """

    kind: Literal["rotary"] = "rotary"
    base: Annotated[float, Field(gt=1)] = 10000.0
    d_rotated: Annotated[int, Field(ge=2)] | None = None
    interleaved: bool = False
    acts_inside: ClassVar[bool] = True

    def width(self, d: int, n: int) -> int:
        """Return 0."""
        return 0

    def check_heads(self, d_k: int, score: str) -> None:
        """Check that the rotated components are pairs, and that the score can be rotated."""
        if self.d_rotated is None and d_k % 2:
            raise ValueError(
                f"d_k={d_k} must be even with positions.kind=rotary; or set a smaller even "
                "positions.d_rotated"
            )
        if self.d_rotated is not None and (self.d_rotated % 2 or self.d_rotated > d_k):
            raise ValueError(f"positions.d_rotated={self.d_rotated} must be even and at most d_k={d_k}")
        if score == "additive":
            raise ValueError(
                "positions.kind=rotary requires a score that depends only on dot products, got "
                "layer.mixer.score.kind=additive; choose other positions"
            )

    def inside(self, d_k: int, n_heads: int) -> JsonObject:
        """Return the rotation of queries and keys."""
        return {"rotary": Rotary(d_k, d_rotated=self.d_rotated, base=self.base, interleaved=self.interleaved)}


class AlibiConfig(PositionsSection):
    """A bias of the scores that is proportional to the distance (Press et al. 2022); for encoders, it does
    not distinguish a text from its reverse.
    """

    kind: Literal["alibi"] = "alibi"
    acts_inside: ClassVar[bool] = True

    def width(self, d: int, n: int) -> int:
        """Return 0."""
        return 0

    def inside(self, d_k: int, n_heads: int) -> JsonObject:
        """Return the bias."""
        return {"score_bias": Alibi(n_heads)}


POSITIONS: tuple[type[PositionsSection], ...] = (
    *(NoPositionsConfig, LearnedConfig, SinusoidalConfig, RotaryConfig, AlibiConfig),
    *(OneHotConfig, ConstantConfig, GridConfig),
)


class OwnScore(ScoreSection, OwnSection):
    """A custom score: a subclass of `heedful.nn.attention.scores.Score`."""

    sizes: ClassVar[tuple[str, ...]] = ("d_q", "d_k", "n_heads")
    contract: ClassVar[type] = Score

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> Score:
        """Build the score."""
        score: Score = self.instance(d_q=d_q, d_k=d_k, n_heads=n_heads)
        return score


class OwnNorm(NormSection, OwnSection):
    """A custom norm: a module ``[T, d_model] -> [T, d_model]``."""

    sizes: ClassVar[tuple[str, ...]] = ("d_model",)
    contract: ClassVar[type] = nn.Module

    def build(self, d_model: int) -> nn.Module:
        """Build the module."""
        module: nn.Module = self.instance(d_model=d_model)
        return module


class OwnChannels(ChannelSection, OwnSection):
    """A custom channel mixer: a module ``[T, d_model] -> [T, d_model]`` that mixes no tokens."""

    sizes: ClassVar[tuple[str, ...]] = ("d_model",)
    contract: ClassVar[type] = nn.Module

    def build(self, d_model: int) -> nn.Module:
        """Build the module."""
        module: nn.Module = self.instance(d_model=d_model)
        return module


if TYPE_CHECKING:
    ScoreConfig = ScoreSection
    NormConfig = NormSection
    ChannelsConfig = ChannelSection
    PositionsConfig = PositionsSection
else:
    ScoreConfig = by_kind(*SCORES, own=OwnScore)
    NormConfig = by_kind(*NORMS, own=OwnNorm)
    ChannelsConfig = by_kind(*CHANNELS, own=OwnChannels)
    PositionsConfig = by_kind(*POSITIONS)
