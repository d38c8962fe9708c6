"""Sections of a layer, except its position mixer: scores, norms and channel mixers.

Each is a `Section`, selected by ``kind``; the tables `SCORES`, `NORMS` and `CHANNELS` list them. A class
added to a table is available in recipes, in their documentation and to all models.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator
from torch import nn

from heedful.config import CustomSection, Section, by_kind
from heedful.nn.attention.scores import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    ScoreFunction,
)
from heedful.nn.experts import Gate, MixtureOfExperts, NoisyTopKGate, TopKGate
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm, RMSNorm

Positive = Annotated[int, Field(ge=1)]

# A larger number is a mistake: it would take minutes to build, and more memory than any machine has.
Layers = Annotated[int, Field(ge=1, le=1000)]
Heads = Annotated[int, Field(ge=1, le=1024)]  # published models have at most 128
Width = Annotated[int, Field(ge=1, le=65_536)]  # of vectors between layers: published, at most 65,536
InnerWidth = Annotated[int, Field(ge=1, le=4096)]  # of vectors for each pair of tokens, or of a head
Kernel = Annotated[int, Field(ge=1, le=16_384)]  # in tokens or pixels
Channels = Annotated[int, Field(ge=1, le=4)]  # of images; recipes have 1 or 3
Pixels = Annotated[int, Field(ge=1, le=4096)]  # along a side; larger images are reduced to it

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

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> ScoreFunction:
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

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> ScoreFunction:
        """Build the score."""
        return ScaledDotScore()


class DotConfig(ScoreSection):
    """q·k."""

    kind: Literal["dot"] = "dot"

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> ScoreFunction:
        """Build the score."""
        return DotScore()


class BilinearConfig(ScoreSection):
    """qᵀ W k (Luong's "general"); W is shared by all heads, after each head's own projections."""

    kind: Literal["bilinear"] = "bilinear"

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> ScoreFunction:
        """Build the score."""
        return BilinearScore(d_q, d_k)


class AdditiveConfig(ScoreSection):
    """vᵀ tanh(W q + U k) (Bahdanau et al. 2015, section A.1.2); each head has its own v.

    Args:
        d_attention: number of hidden units; null: the width of the queries.
        bias: whether the hidden units have a bias.
    """

    kind: Literal["additive"] = "additive"
    d_attention: InnerWidth | None = None
    bias: bool = False

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> ScoreFunction:
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

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> ScoreFunction:
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
    """Base class of norms; all keys except ``kind`` are arguments of the class ``builds``."""

    builds: ClassVar[Callable[..., nn.Module]]

    def build(self, d_model: int) -> nn.Module:
        """Build the norm of vectors of width ``d_model``."""
        return type(self).builds(d_model, **self.model_dump(exclude={"kind"}))


class LayerNormConfig(NormSection):
    """Layer normalisation (Ba et al. 2016).

    Args:
        eps: ε.
        bias: whether it has a bias besides its gain.
    """

    builds: ClassVar[Callable[..., nn.Module]] = LayerNorm
    kind: Literal["layer"] = "layer"
    eps: Epsilon = 1e-5
    bias: bool = True


class RMSNormConfig(NormSection):
    """Root mean square normalisation, without mean and bias (Zhang and Sennrich 2019).

    Args:
        eps: ε.
    """

    builds: ClassVar[Callable[..., nn.Module]] = RMSNorm
    kind: Literal["rms"] = "rms"
    eps: Epsilon = 1e-5


class BatchNormConfig(NormSection):
    """Batch normalisation over the tokens of a batch (Ioffe and Szegedy 2015).

    Args:
        eps: ε.
        momentum: weight of a batch in the running statistics.
    """

    builds: ClassVar[Callable[..., nn.Module]] = BatchNorm
    kind: Literal["batch"] = "batch"
    eps: Epsilon = 1e-5
    momentum: Annotated[float, Field(gt=0, le=1)] = 0.1


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

    builds: ClassVar[Callable[..., nn.Module]] = PowerNorm
    kind: Literal["power"] = "power"
    warmup: Annotated[int, Field(ge=0)] = 500
    n_groups: Width | None = None
    alpha_fwd: Rate = 0.9
    alpha_bkw: Rate = 0.9
    eps: Epsilon = 1e-5


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
        bias: whether the layers have biases.
        dropout: dropout rate of the hidden units.
    """

    builds: ClassVar[Callable[..., nn.Module]] = FeedForward

    kind: Literal["feed-forward"] = "feed-forward"
    d_ff: Width | None = None
    activation: Activation = "relu"
    bias: bool = True
    dropout: Rate = 0.0

    def build(self, d_model: int) -> nn.Module:
        """Build the network."""
        return type(self).builds(
            d_model,
            self.d_ff or 4 * d_model,
            activation=ACTIVATIONS[self.activation](),
            bias=self.bias,
            dropout=self.dropout,
        )


class GatedConfig(FeedForwardConfig):
    """Feed-forward network whose hidden units are multiplied by a gate; with relu, gelu or silu it is ReGLU,
    GEGLU or SwiGLU (Shazeer 2020).

    Args:
        activation: activation of the gate.
    """

    builds: ClassVar[Callable[..., nn.Module]] = GatedFeedForward

    kind: Literal["gated"] = "gated"  # type: ignore[assignment]


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


class CustomScore(ScoreSection, CustomSection):
    """A custom score: a subclass of `heedful.nn.attention.scores.ScoreFunction`."""

    sizes: ClassVar[tuple[str, ...]] = ("d_q", "d_k", "n_heads")
    contract: ClassVar[type] = ScoreFunction
    methods: ClassVar[tuple[str, ...]] = ("forward",)

    def build(self, d_q: int, d_k: int, n_heads: int = 1, key_strength: float | None = None) -> ScoreFunction:
        """Build the score."""
        score: ScoreFunction = self.instance(d_q=d_q, d_k=d_k, n_heads=n_heads)
        return score


class _CustomModule(CustomSection):
    sizes: ClassVar[tuple[str, ...]] = ("d_model",)
    contract: ClassVar[type] = nn.Module
    methods: ClassVar[tuple[str, ...]] = ("forward",)

    def build(self, d_model: int) -> nn.Module:
        module: nn.Module = self.instance(d_model=d_model)
        return module


class CustomNorm(_CustomModule, NormSection):
    """A custom norm: a module ``[T, d_model] -> [T, d_model]``."""

    model_config = ConfigDict(extra="allow")  # pydantic takes it from the last base class


class CustomChannels(_CustomModule, ChannelSection):
    """A custom channel mixer: a module ``[T, d_model] -> [T, d_model]`` that mixes no tokens."""

    model_config = ConfigDict(extra="allow")  # as above


if TYPE_CHECKING:
    ScoreConfig = ScoreSection
    NormConfig = NormSection
    ChannelsConfig = ChannelSection
else:
    ScoreConfig = by_kind(*SCORES, custom=CustomScore)
    NormConfig = by_kind(*NORMS, custom=CustomNorm)
    ChannelsConfig = by_kind(*CHANNELS, custom=CustomChannels)
