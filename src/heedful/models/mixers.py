"""Position mixers of layers, and their table.

| kind | description |
|---|---|
| attention | multi-head self-attention to all tokens, or to those of a pattern (`heedful.models.visible`) |
| compressed-attention | attention to a compressed memory of all earlier tokens (Liu et al. 2018); causal |
| recurrent | RNN, LSTM or GRU: width d_model in one direction, or d_model / 2 in each |
| fourier | FNet (Lee-Thorp et al. 2021); no parameters |
| mlp | MLP-Mixer's network along the positions (Tolstikhin et al. 2021) |
| separable | depthwise separable convolution (Chollet 2017) |
| convolution | full 1-D convolution with an activation (Kim 2014) |
| parallel-convolutions | the same with several widths in parallel, as in Kim's network |
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from torch import nn

from heedful.config import CustomSection, Section, by_kind
from heedful.models.cells import CellConfig, LSTMConfig
from heedful.models.positions import PositionsSection, RotaryConfig
from heedful.models.sections import (
    ACTIVATIONS,
    Activation,
    Heads,
    InnerWidth,
    Kernel,
    Rate,
    ScaledDotConfig,
    ScoreConfig,
    Width,
)
from heedful.models.visible import AllConfig, VisibleConfig
from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.heads import HeadOptions
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.mixers import (
    Convolution,
    DepthwiseSeparableConvolution,
    FourierMixer,
    ParallelConvolutions,
    PositionMLP,
)
from heedful.nn.recurrent import Bidirectional, Recurrence, RecurrentLayer


@dataclass(frozen=True)
class StackSizes:
    """Sizes and settings of a stack that its position mixers are built with.

    Args:
        d_model: width of the hidden states.
        n_positions: maximum number of tokens of a sequence; 0 if there is no limit.
        causal: whether a token sees no later tokens.
        positions: position encoding, which may act inside attention.
    """

    d_model: int
    n_positions: int
    causal: bool
    positions: PositionsSection


class MixerSection(Section):
    """Base class of position mixers."""

    attends: ClassVar[bool] = False
    """Whether it is an attention, to which positions can be given inside."""

    both_ways: ClassVar[bool] = True
    one_way: ClassVar[bool] = True
    """Whether it can be used where a token may see later tokens, and where it may not."""

    local: ClassVar[bool] = False
    """Whether a token sees only its neighbours."""

    def check(self, d_model: int, positions: PositionsSection, *, causal: bool) -> None:
        """Check that the mixer fits the model.

        Raises:
            ValueError: names the key and the limit.
        """
        if positions.acts_inside and not self.attends:
            raise ValueError(
                f"positions.kind={positions.kind} requires attention, got layer.mixer.kind={self.kind}; "
                "choose other positions"
            )
        if not (self.one_way if causal else self.both_ways):
            reason = "which does not see later tokens" if causal else "whose tokens see later tokens"
            raise ValueError(f"layer.mixer.kind={self.kind} is not supported by this model, {reason}")

    def build(self, sizes: StackSizes) -> nn.Module:
        """Build the module, called as ``mixer(x, layout, cache=None)`` with ``x [T, d_model]``."""
        raise NotImplementedError


class HeadsConfig(Section):
    """Sizes and score of multi-head attention.

    Args:
        n_heads: number of attention heads.
        n_kv_heads: number of key and value heads, each shared by n_heads / n_kv_heads query heads; null:
            n_heads.
        d_k, d_v: widths of the keys and values of one head; null: d_model / n_heads.
        score: attention score function. Parameters of a score are shared by all heads, after each head's own
            projections.
        bias: whether the projections have biases.
        dropout: dropout rate of the attention weights.
    """

    n_heads: Heads = 8
    n_kv_heads: Heads | None = None
    d_k: InnerWidth | None = None
    d_v: InnerWidth | None = None
    score: ScoreConfig = ScaledDotConfig()
    bias: bool = True
    dropout: Rate = 0.0

    @model_validator(mode="after")
    def _heads_are_shared_evenly(self) -> "HeadsConfig":
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads={self.n_heads} must be divisible by n_kv_heads={self.n_kv_heads}")
        return self

    def key_width(self, d_model: int) -> int:
        """Return the width of the queries and keys of one head."""
        return self.d_k or d_model // self.n_heads

    def check_heads(self, d_model: int) -> None:
        """Check that the heads divide d_model.

        Raises:
            ValueError: names both numbers.
        """
        if (self.d_k is None or self.d_v is None) and d_model % self.n_heads:
            raise ValueError(
                f"d_model={d_model} must be divisible by n_heads={self.n_heads}; change one of them, or set "
                "d_k and d_v"
            )

    def heads(self, d_model: int) -> HeadOptions:
        """Return the options of `heedful.nn.attention.heads.MultiHead`."""
        d_k = self.key_width(d_model)
        return {
            "d_k": self.d_k,
            "d_v": self.d_v,
            "n_kv_heads": self.n_kv_heads,
            "score": self.score.build(d_k, d_k, self.n_heads, key_strength=math.sqrt(d_k)),
            "qkv_bias": self.bias,
            "out_bias": self.bias,
            "dropout": self.dropout,
        }


class AttentionConfig(HeadsConfig, MixerSection):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2).

    Args:
        visible: tokens that a token sees.
    """

    attends: ClassVar[bool] = True

    kind: Literal["attention"] = "attention"
    visible: VisibleConfig = AllConfig()

    def check(self, d_model: int, positions: PositionsSection, *, causal: bool) -> None:
        """Check sizes, positions and visible tokens."""
        self.check_heads(d_model)
        if isinstance(positions, RotaryConfig):
            positions.check_heads(self.key_width(d_model), self.score.kind)

    def build(self, sizes: StackSizes) -> SelfAttention:
        """Build self-attention, with positions that act inside it."""
        d_model, pattern = sizes.d_model, self.visible.build()
        if pattern is not None:
            pattern.check(sizes.n_positions, sizes.n_positions)
        positions = sizes.positions.inside(self.key_width(d_model), self.n_heads)
        return SelfAttention(
            d_model, self.n_heads, causal=sizes.causal, pattern=pattern, **positions, **self.heads(d_model)
        )


class CrossAttentionConfig(HeadsConfig):
    """Attention of a decoder to the output of the encoder.

    Args:
        visible: source tokens that a target token sees, by the positions of both.
    """

    kind: Literal["cross-attention"] = "cross-attention"
    visible: VisibleConfig = AllConfig()

    def build(self, d_model: int) -> CrossAttention:
        """Build cross-attention."""
        return CrossAttention(d_model, self.n_heads, pattern=self.visible.build(), **self.heads(d_model))


class CompressedAttentionConfig(HeadsConfig, MixerSection):
    """Memory-compressed attention (Liu et al. 2018, section 4.2.3).

    Args:
        factor: number of tokens per slot of the compressed memory.
    """

    both_ways: ClassVar[bool] = False

    kind: Literal["compressed-attention"] = "compressed-attention"
    factor: Annotated[int, Field(ge=2)] = 3

    def check(self, d_model: int, positions: PositionsSection, *, causal: bool) -> None:
        """Check sizes and positions."""
        if positions.acts_inside:
            raise ValueError(
                f"positions.kind={positions.kind} is not supported with layer.mixer.kind={self.kind}, whose "
                "memory slots have no single position; choose other positions"
            )
        super().check(d_model, positions, causal=causal)
        self.check_heads(d_model)

    def build(self, sizes: StackSizes) -> MemoryCompressedAttention:
        """Build the attention."""
        return MemoryCompressedAttention(
            sizes.d_model, self.n_heads, factor=self.factor, **self.heads(sizes.d_model)
        )


class RecurrentMixerConfig(MixerSection):
    """A recurrence over the tokens, with a residual connection and a norm around it like any mixer.

    Args:
        cell: the recurrent cell.
        direction: reading direction; with ``both``, each direction has width d_model / 2; causal models
            read from left to right whatever it is.
    """

    kind: Literal["recurrent"] = "recurrent"
    cell: CellConfig = LSTMConfig()
    direction: Literal["left-to-right", "right-to-left", "both"] = "both"

    def check(self, d_model: int, positions: PositionsSection, *, causal: bool) -> None:
        """Check that two directions share d_model evenly."""
        super().check(d_model, positions, causal=causal)
        if not causal and self.direction == "both" and d_model % 2:
            raise ValueError(f"d_model={d_model} must be even with direction=both: each direction has half")

    def build(self, sizes: StackSizes) -> RecurrentLayer:
        """Build the recurrence."""
        cell = self.cell.build
        if sizes.causal or self.direction != "both":
            return Recurrence(
                cell(sizes.d_model, sizes.d_model),
                reverse=not sizes.causal and self.direction == "right-to-left",
            )
        half = sizes.d_model // 2
        return Bidirectional(
            Recurrence(cell(sizes.d_model, half)), Recurrence(cell(sizes.d_model, half), reverse=True)
        )


class FourierConfig(MixerSection):
    """Real part of the Fourier transform over tokens and features (Lee-Thorp et al. 2021, section 3.2)."""

    one_way: ClassVar[bool] = False

    kind: Literal["fourier"] = "fourier"

    def build(self, sizes: StackSizes) -> FourierMixer:
        """Build the transform."""
        return FourierMixer()


class PositionMLPConfig(MixerSection):
    """MLP-Mixer's network along the positions (Tolstikhin et al. 2021, equation 1).

    Args:
        d_tokens: number of hidden units; null: half the number of positions.
        activation: activation of the hidden units.
        dropout: dropout rate of the hidden units.
    """

    one_way: ClassVar[bool] = False

    kind: Literal["mlp"] = "mlp"
    d_tokens: Width | None = None
    activation: Activation = "gelu"
    dropout: Rate = 0.0

    def build(self, sizes: StackSizes) -> PositionMLP:
        """Build the network for at most ``n_positions`` tokens."""
        return PositionMLP(
            sizes.d_model,
            sizes.n_positions,
            self.d_tokens or max(1, sizes.n_positions // 2),
            activation=ACTIVATIONS[self.activation](),
            dropout=self.dropout,
        )


class SeparableConvolutionConfig(MixerSection):
    """Depthwise separable convolution (Chollet 2017).

    Args:
        kernel: kernel width in tokens, including the token itself; odd, unless the model is causal.
        bias: whether it has biases.
    """

    local: ClassVar[bool] = True

    kind: Literal["separable"] = "separable"
    kernel: Kernel = 5
    bias: bool = True

    def check(self, d_model: int, positions: PositionsSection, *, causal: bool) -> None:
        """Check that the kernel is odd."""
        super().check(d_model, positions, causal=causal)
        _check_odd(self.kernel, causal=causal)

    def build(self, sizes: StackSizes) -> DepthwiseSeparableConvolution:
        """Build the convolution."""
        return DepthwiseSeparableConvolution(sizes.d_model, self.kernel, causal=sizes.causal, bias=self.bias)


class ConvolutionConfig(MixerSection):
    """Full 1-D convolution with an activation (Kim 2014, equation 2).

    Args:
        kernel: kernel width in tokens, including the token itself; odd, unless the model is causal.
        activation: activation of the output.
        bias: whether it has biases.
    """

    local: ClassVar[bool] = True

    kind: Literal["convolution"] = "convolution"
    kernel: Kernel = 5
    activation: Activation = "relu"
    bias: bool = True

    def check(self, d_model: int, positions: PositionsSection, *, causal: bool) -> None:
        """Check that the kernel is odd."""
        super().check(d_model, positions, causal=causal)
        _check_odd(self.kernel, causal=causal)

    def build(self, sizes: StackSizes) -> Convolution:
        """Build the convolution."""
        activation = ACTIVATIONS[self.activation]()
        return Convolution(
            sizes.d_model, self.kernel, causal=sizes.causal, activation=activation, bias=self.bias
        )


class ParallelConvolutionsConfig(MixerSection):
    """Convolutions of several widths side by side, each with an equal share of the features (Kim 2014).

    Args:
        widths: kernel widths, 3, 4 and 5 in Kim 2014, section 3.1. Each has an equal share of the d_model
            features. An even width sees one more token after than before, unless the model is causal.
        activation: activation of the output.
    """

    local: ClassVar[bool] = True

    kind: Literal["parallel-convolutions"] = "parallel-convolutions"
    widths: Annotated[list[Kernel], Field(min_length=1)] = [3, 4, 5]  # noqa: RUF012
    activation: Activation = "relu"

    def check(self, d_model: int, positions: PositionsSection, *, causal: bool) -> None:
        """Check that every width has a feature."""
        super().check(d_model, positions, causal=causal)
        if len(self.widths) > d_model:
            raise ValueError(
                f"layer.mixer.widths must have at most d_model={d_model} items, got {len(self.widths)}"
            )

    def build(self, sizes: StackSizes) -> ParallelConvolutions:
        """Build the convolutions."""
        activation = ACTIVATIONS[self.activation]()
        return ParallelConvolutions(sizes.d_model, self.widths, causal=sizes.causal, activation=activation)


MIXERS: tuple[type[MixerSection], ...] = (
    AttentionConfig,
    CompressedAttentionConfig,
    RecurrentMixerConfig,
    FourierConfig,
    PositionMLPConfig,
    SeparableConvolutionConfig,
    ConvolutionConfig,
    ParallelConvolutionsConfig,
)
"""Position mixers, the default first; a mixer added here is available in every stack."""


class CustomMixer(MixerSection, CustomSection):
    """A custom position mixer: a module called as ``mixer(x, layout, cache=None)``."""

    sizes: ClassVar[tuple[str, ...]] = ("d_model", "n_positions", "causal")
    contract: ClassVar[type] = nn.Module
    methods: ClassVar[tuple[str, ...]] = ("forward",)

    def build(self, sizes: StackSizes) -> nn.Module:
        """Build the module."""
        module: nn.Module = self.instance(
            d_model=sizes.d_model, n_positions=sizes.n_positions, causal=sizes.causal
        )
        return module


if TYPE_CHECKING:
    MixerConfig = MixerSection
else:
    MixerConfig = by_kind(*MIXERS, custom=CustomMixer)


def _check_odd(kernel: int, *, causal: bool) -> None:
    if kernel % 2 == 0 and not causal:
        raise ValueError(f"layer.mixer.kernel must be odd, got {kernel}")
