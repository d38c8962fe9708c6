"""Options that all stacks of attention and feed-forward share, and how their parts are made of them."""

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator
from torch import nn

from heedful.config import Config
from heedful.nn.attention.compressed import MemoryCompressedAttention
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.heads import HeadOptions
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.scores import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    Score,
)
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import DecoderBlock, DecoderStack, EncoderBlock, EncoderStack
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
from heedful.nn.residual import PostNorm, PreNorm, Residual

Positive = Annotated[int, Field(ge=1)]
Layers = Annotated[int, Field(ge=1, le=1000)]  # more are a mistake, and would be built for minutes
Rate = Annotated[float, Field(ge=0, lt=1)]
Norm = Literal["layer", "rms", "batch", "power"]


class StackConfig(Config):
    """Sizes and choices of a stack.

    Args:
        d_model: width of the hidden states.
        n_heads: of every attention.
        n_kv_heads: heads of keys and values, each of which serves n_heads / n_kv_heads heads; null: n_heads.
        n_layers: blocks, one after another.
        d_k, d_v: widths of a key and of a value of one head; null: d_model / n_heads.
        score: how a query and a key are compared; ``scaled-dot`` is the Transformer's. What a score learns
            serves all heads, on top of each head's own projections; but of ``additive`` each head has its
            own last vector, v.
        attention_bias: whether the projections of attention have biases.
        feed_forward_bias: whether the two layers of a feed-forward have biases.
        activation: of the feed-forwards; ``gelu-tanh`` is GPT-2's approximation of ``gelu``
            (Hendrycks and Gimpel 2016, section 2), ``silu`` is x sigmoid(x), which is also called swish.
        feed_forward: ``gated`` with relu, gelu or silu is ReGLU, GEGLU or SwiGLU.
        norm: ``layer``, ``rms`` without a mean, or over the tokens of a batch: ``batch``, ``power``.
        norm_placement: after each sum (``post``) or before each part (``pre``).
        norm_warmup: of the norm ``power``: batches that are divided by their own mean square. A run must
            outlast them well: the 10,000 of the released code suit days of training.
        norm_groups: of ``power``: groups of features of each token that are scaled before, each to a mean
            square of 1, as in the released code; null: none are.
        norm_alpha_fwd, norm_alpha_bkw: of ``power``: what a batch leaves of the running mean square (fwd),
            and of the running correction of the gradient (bkw).
        dropout: on embeddings, and on what each part adds.
        attention_dropout: on attention weights.
        activation_dropout: on the hidden units of feed-forwards.
        positions: each family says which it offers; ``rotary`` and ``alibi`` act inside every self-attention,
            and the embeddings then have none.
        rotary_base: of ``rotary``: pair i of the components of a head turns by rotary_base^(-2i /
            rotary_width) radians from one token to the next; the larger it is, the longer the distances that
            are told apart (Su et al. 2021, section 3.2.2).
        rotary_width: of ``rotary``: how many components of each query and key of a head are turned, the
            first ones; even; null: all d_k. GPT-NeoX turns a quarter of them (Black et al. 2022, section
            2.1.1).
        norm_eps: the ε of the norms.
    """

    kind: str
    d_model: Positive = 512
    n_heads: Positive = 8
    n_kv_heads: Positive | None = None
    n_layers: Layers = 6
    d_k: Positive | None = None
    d_v: Positive | None = None
    score: Literal["scaled-dot", "dot", "bilinear", "additive", "cosine"] = "scaled-dot"
    attention_bias: bool = True
    feed_forward: Literal["plain", "gated"] = "plain"
    feed_forward_bias: bool = True
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "relu"
    norm: Norm = "layer"
    norm_placement: Literal["post", "pre"] = "post"
    norm_warmup: Annotated[int, Field(ge=0)] = 500
    norm_groups: Positive | None = None
    norm_alpha_fwd: Rate = 0.9
    norm_alpha_bkw: Rate = 0.9
    norm_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    positions: str = "none"
    rotary_base: Annotated[float, Field(gt=1)] = 10000.0
    rotary_width: Annotated[int, Field(ge=2)] | None = None

    @model_validator(mode="after")
    def _heads_fit(self) -> "StackConfig":
        if (self.d_k is None or self.d_v is None) and self.d_model % self.n_heads:
            raise ValueError(
                f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}; "
                "change one of them, or give d_k and d_v"
            )
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads={self.n_heads} is not divisible by n_kv_heads={self.n_kv_heads}")
        if self.norm_groups is not None and self.d_model % self.norm_groups:
            raise ValueError(f"d_model={self.d_model} is not divisible by norm_groups={self.norm_groups}")
        return self

    @model_validator(mode="after")
    def _sinusoids_fit(self) -> "StackConfig":
        width = self.position_width
        if self.positions in {"sinusoidal", "half-split"} and (width % 2 or not width):
            key = "d_model" if width == self.d_model else "d_positions"
            raise ValueError(
                f"{key}={width} must be even and at least 2 with positions={self.positions}; "
                f"change {key}, or take positions=learned"
            )
        return self

    @property
    def position_width(self) -> int:
        """Columns that the positions take."""
        return self.d_model

    @model_validator(mode="after")
    def _pairs_turn(self) -> "StackConfig":
        if self.positions != "rotary":
            for key in ("rotary_base", "rotary_width"):
                if (value := getattr(self, key)) != type(self).model_fields[key].default:
                    raise ValueError(f"{key}={value} is for positions=rotary, not {self.positions}")
            return self
        if self.rotary_width is None and self.key_width % 2:
            raise ValueError(
                f"rotary positions turn pairs: d_k={self.key_width} must be even, or rotary_width less"
            )
        if self.rotary_width is not None and (self.rotary_width % 2 or self.rotary_width > self.key_width):
            raise ValueError(
                f"rotary positions turn pairs: rotary_width={self.rotary_width} must be even, and at most "
                f"d_k={self.key_width}"
            )
        if self.score == "additive":
            raise ValueError(
                "rotary positions turn queries and keys, and change nothing only in products: "
                "with score=additive take other positions"
            )
        return self

    @property
    def key_width(self) -> int:
        """Width of a query or key of one head."""
        return self.d_k or self.d_model // self.n_heads


class WindowedConfig(StackConfig):
    """Sizes and choices of a stack whose self-attention may be in sliding windows, which other attention,
    recurrence and convolutions have none of.

    Args:
        window: of self-attention: a token sees itself and window - 1 tokens before it, and as many after it
            where it reads ahead (Beltagy et al. 2020, section 3.1; Mistral 7B, Jiang et al. 2023, section
            2); null: everything.
        full_every: layers of this number and its multiples, counted from 1, see everything even so: 2 in
            Gemma 2, 6 in Gemma 3 (Gemma Team 2024, section 2; 2025, section 2); null: none do.
    """

    window: Annotated[int, Field(ge=2)] | None = None
    full_every: Annotated[int, Field(ge=2)] | None = None

    @model_validator(mode="after")
    def _has_full_layers(self) -> "WindowedConfig":
        if self.full_every is None:
            return self
        if self.window is None:
            raise ValueError("full_every says which layers have no window: give a window, or full_every=null")
        if self.full_every > self.n_layers:
            raise ValueError(
                f"full_every={self.full_every}: there is no such layer, n_layers is {self.n_layers}; "
                "full_every=null says that no layer sees everything"
            )
        return self


Windowed = TypeVar("Windowed", bound=WindowedConfig)


def in_layer(config: Windowed, number: int) -> Windowed:
    """The options as they hold in one layer, counted from 1."""
    if config.full_every is None or number % config.full_every:
        return config
    return config.model_copy(update={"window": None, "full_every": None})


def self_attention_stack(config: StackConfig, d_ff: int, *, causal: bool) -> EncoderStack:
    """n_layers of self-attention and feed-forward, then the norm that pre-norm stacks need."""
    return stack_of(
        config,
        ((self_attention(config, causal=causal), feed_forward(config, d_ff)) for _ in range(config.n_layers)),
    )


def stack_of(config: StackConfig, layers: Iterable[tuple[nn.Module, nn.Module | None]]) -> EncoderStack:
    """A stack of these layers, each a position mixer and, but for None, a channel mixer."""
    blocks = [
        EncoderBlock(
            residual(config, mixer), nn.Identity() if channels is None else residual(config, channels)
        )
        for mixer, channels in layers
    ]
    return EncoderStack(blocks, last_norm(config))


def cross_attention_stack(config: StackConfig, d_ff: int, n_layers: int) -> DecoderStack:
    """n_layers of causal self-attention, cross-attention and feed-forward, then the norm that they need."""
    blocks = [
        DecoderBlock(
            residual(config, self_attention(config, causal=True)),
            residual(config, cross_attention(config)),
            residual(config, feed_forward(config, d_ff)),
        )
        for _ in range(n_layers)
    ]
    return DecoderStack(blocks, last_norm(config))


def self_attention(config: StackConfig, *, causal: bool, **reach: Any) -> SelfAttention:
    """Self-attention as the options say; ``reach`` is a window or blocks."""
    inside = _POSITIONS_INSIDE.get(config.positions, lambda c: {})(config)
    return SelfAttention(config.d_model, config.n_heads, causal=causal, **reach, **inside, **_heads(config))


def compressed_attention(config: StackConfig, factor: int) -> MemoryCompressedAttention:
    """Memory-compressed attention as the options say."""
    return MemoryCompressedAttention(config.d_model, config.n_heads, factor=factor, **_heads(config))


def cross_attention(config: StackConfig) -> CrossAttention:
    """Cross-attention as the options say."""
    return CrossAttention(config.d_model, config.n_heads, **_heads(config))


def feed_forward(config: StackConfig, d_ff: int) -> FeedForward | GatedFeedForward:
    """A feed-forward with d_ff hidden units."""
    return _FEED_FORWARDS[config.feed_forward](
        config.d_model,
        d_ff,
        activation=activation_of(config),
        bias=config.feed_forward_bias,
        dropout=config.activation_dropout,
    )


def activation_of(config: StackConfig) -> nn.Module:
    """An activation as the options say."""
    return _ACTIVATIONS[config.activation]()


def residual(config: StackConfig, part: nn.Module) -> Residual:
    """The part with its residual connection and its norm."""
    place = PostNorm if config.norm_placement == "post" else PreNorm
    return place(part, norm_of(config), config.dropout)


def last_norm(config: StackConfig) -> nn.Module:
    """What follows the last block: a norm where the blocks leave their sums as they are."""
    return nn.Identity() if config.norm_placement == "post" else norm_of(config)


def with_norm(config: StackConfig, norm: Norm | None) -> StackConfig:
    """The same options with another norm; None: with the same."""
    return config if norm is None else config.model_copy(update={"norm": norm})


def norm_of(config: StackConfig) -> nn.Module:
    """A norm as the options say."""
    return _NORMS[config.norm](config)


def embedding_scale(config: Any) -> float:
    """What embedded tokens are multiplied by: ``scale_embedding`` of the configuration says it.

    By default it is sqrt(d_model) with sines, cosines and constants, and 1 with other positions: the former
    are of size 1, and would drown a table of size 0.02.
    """
    scaled: bool | None = config.scale_embedding
    if scaled is None:
        scaled = config.positions in {"sinusoidal", "constant"}
    return math.sqrt(config.d_model) if scaled else 1.0


def positions_of(kind: str, n: int, width: int) -> Positions:
    """The part that gives each of ``n`` positions its vector."""
    return _POSITIONS[kind](n, width)


_FEED_FORWARDS: dict[str, Callable[..., FeedForward | GatedFeedForward]] = {
    "plain": FeedForward,
    "gated": GatedFeedForward,
}

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": lambda: nn.GELU("tanh"),
    "silu": nn.SiLU,
}

_NORMS: dict[str, Callable[[StackConfig], nn.Module]] = {
    "layer": lambda c: LayerNorm(c.d_model, c.norm_eps),
    "rms": lambda c: RMSNorm(c.d_model, c.norm_eps),
    "batch": lambda c: BatchNorm(c.d_model, c.norm_eps),
    "power": lambda c: PowerNorm(
        c.d_model, c.norm_warmup, c.norm_groups, c.norm_alpha_fwd, c.norm_alpha_bkw, c.norm_eps
    ),
}

_SCORES: dict[str, Callable[[StackConfig], Score]] = {
    "scaled-dot": lambda c: ScaledDotScore(),
    "dot": lambda c: DotScore(),
    "bilinear": lambda c: BilinearScore(c.key_width, c.key_width),
    "additive": lambda c: AdditiveScore(c.key_width, c.key_width, c.key_width, n_heads=c.n_heads),
    "cosine": lambda c: CosineScore(key_strength=math.sqrt(c.key_width)),
}

_POSITIONS: dict[str, Callable[[int, int], Positions]] = {
    "sinusoidal": lambda n, width: SinusoidalPositions(width),
    "half-split": lambda n, width: SinusoidalPositions(width, interleaved=False),
    "learned": LearnedPositions,
    "one-hot": lambda n, width: OneHotPositions(n),
    "constant": lambda n, width: ConstantPositions(width, 1 / n),
    "none": lambda n, width: NoPositions(width),
    "rotary": lambda n, width: NoPositions(width),
    "alibi": lambda n, width: NoPositions(width),
}

# Of the two pairings the one that reads neighbouring numbers in memory.
_POSITIONS_INSIDE: dict[str, Callable[[StackConfig], dict[str, Any]]] = {
    "rotary": lambda c: {
        "rotary": Rotary(c.key_width, d_rotated=c.rotary_width, base=c.rotary_base, interleaved=False)
    },
    "alibi": lambda c: {"score_bias": Alibi(c.n_heads)},
}


def _heads(config: StackConfig) -> HeadOptions:
    """What all attentions of the stack have in common."""
    return {
        "d_k": config.d_k,
        "d_v": config.d_v,
        "n_kv_heads": config.n_kv_heads,
        "score": _SCORES[config.score](config),
        "qkv_bias": config.attention_bias,
        "out_bias": config.attention_bias,
        "dropout": config.attention_dropout,
    }
