"""Configuration shared by all stacks of attention and feed-forward blocks, and builders of their modules."""

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
from heedful.typing import JsonObject

Positive = Annotated[int, Field(ge=1)]
Layers = Annotated[int, Field(ge=1, le=1000)]  # a larger number is a mistake and would take minutes to build
Rate = Annotated[float, Field(ge=0, lt=1)]
Norm = Literal["layer", "rms", "batch", "power"]


class StackConfig(Config):
    """Configuration of a stack.

    Args:
        d_model: width of the hidden states.
        n_heads: number of attention heads.
        n_kv_heads: number of key and value heads, each shared by n_heads / n_kv_heads query heads; null:
            n_heads.
        n_layers: number of blocks.
        d_k, d_v: widths of the keys and values of one head; null: d_model / n_heads.
        score: attention score function; ``scaled-dot`` is that of the Transformer. Parameters of a score are
            shared by all heads, on top of each head's own projections, except that with ``additive`` each
            head has its own last vector, v.
        attention_bias: whether the attention projections have biases.
        feed_forward_bias: whether the two feed-forward layers have biases.
        activation: activation of the feed-forward layers; ``gelu-tanh`` is GPT-2's approximation of ``gelu``
            (Hendrycks and Gimpel 2016, section 2), ``silu`` is x sigmoid(x), also called swish.
        feed_forward: ``gated`` with relu, gelu or silu is ReGLU, GEGLU or SwiGLU.
        norm: ``layer``, ``rms`` (without mean), or over the tokens of a batch: ``batch``, ``power``.
        norm_placement: after each sum (``post``) or before each sublayer (``pre``).
        norm_warmup: for ``power``: number of batches that are divided by their own mean square. It must be
            much smaller than the number of updates: the 10,000 of the released code suit days of training.
        norm_groups: for ``power``: number of groups of features of each token that are first scaled to a
            mean square of 1, as in the released code; null: no scaling.
        norm_alpha_fwd, norm_alpha_bkw: for ``power``: decay of the running mean square (fwd), and of the
            running correction of the gradient (bkw).
        dropout: dropout rate of embeddings and of the output of each sublayer.
        attention_dropout: dropout rate of the attention weights.
        activation_dropout: dropout rate of the hidden units of feed-forward layers.
        positions: position encoding; the choices depend on the model family. ``rotary`` and ``alibi`` act
            inside every self-attention, without positions in the embeddings.
        rotary_base: for ``rotary``: pair i of the components of a head is rotated by rotary_base^(-2i /
            rotary_width) radians per token; a larger base distinguishes longer distances (Su et al. 2021,
            section 3.2.2).
        rotary_width: for ``rotary``: number of leading components of each query and key of a head that are
            rotated; even; null: all d_k. GPT-NeoX rotates a quarter of them (Black et al. 2022, section
            2.1.1).
        norm_eps: ε of the norms.
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
                f"d_model={self.d_model} must be divisible by n_heads={self.n_heads}; "
                "change one of them, or set d_k and d_v"
            )
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads={self.n_heads} must be divisible by n_kv_heads={self.n_kv_heads}")
        if self.norm_groups is not None and self.d_model % self.norm_groups:
            raise ValueError(f"d_model={self.d_model} must be divisible by norm_groups={self.norm_groups}")
        return self

    @model_validator(mode="after")
    def _sinusoids_fit(self) -> "StackConfig":
        width = self.position_width
        if self.positions in {"sinusoidal", "half-split"} and (width % 2 or not width):
            key = "d_model" if width == self.d_model else "d_positions"
            raise ValueError(
                f"{key}={width} must be even and at least 2 with positions={self.positions}; "
                f"change {key}, or set positions=learned"
            )
        return self

    @property
    def position_width(self) -> int:
        """Width of the position vectors."""
        return self.d_model

    @model_validator(mode="after")
    def _rotary_fits(self) -> "StackConfig":
        if self.positions != "rotary":
            for key in ("rotary_base", "rotary_width"):
                if (value := getattr(self, key)) != type(self).model_fields[key].default:
                    raise ValueError(f"{key}={value} requires positions=rotary, got {self.positions}")
            return self
        if self.rotary_width is None and self.key_width % 2:
            raise ValueError(
                f"d_k={self.key_width} must be even with positions=rotary; or set a smaller even rotary_width"
            )
        if self.rotary_width is not None and (self.rotary_width % 2 or self.rotary_width > self.key_width):
            raise ValueError(
                f"rotary_width={self.rotary_width} must be even and at most d_k={self.key_width}"
            )
        if self.score == "additive":
            raise ValueError(
                "positions=rotary requires a score that depends only on dot products, got score=additive; "
                "choose other positions"
            )
        return self

    @property
    def key_width(self) -> int:
        """Width of the queries and keys of one head."""
        return self.d_k or self.d_model // self.n_heads


class WindowedConfig(StackConfig):
    """Configuration of a stack with optional sliding-window self-attention (not for other position mixers).

    Args:
        window: for self-attention: a token sees itself and window - 1 tokens before it, and as many after it
            if attention is not causal (Beltagy et al. 2020, section 3.1; Mistral 7B, Jiang et al. 2023,
            section 2); null: no window.
        full_every: every full_every-th layer, counted from 1, has no window: 2 in Gemma 2, 6 in Gemma 3
            (Gemma Team 2024, section 2; 2025, section 2); null: no such layers.
    """

    window: Annotated[int, Field(ge=2)] | None = None
    full_every: Annotated[int, Field(ge=2)] | None = None

    @model_validator(mode="after")
    def _has_full_layers(self) -> "WindowedConfig":
        if self.full_every is None:
            return self
        if self.window is None:
            raise ValueError("full_every requires a window; set window, or full_every=null")
        if self.full_every > self.n_layers:
            raise ValueError(
                f"full_every={self.full_every} must be at most n_layers={self.n_layers}; set full_every=null "
                "if no layer should see everything"
            )
        return self


Windowed = TypeVar("Windowed", bound=WindowedConfig)


def in_layer(config: Windowed, number: int) -> Windowed:
    """Return the configuration of one layer, counted from 1."""
    if config.full_every is None or number % config.full_every:
        return config
    return config.model_copy(update={"window": None, "full_every": None})


def self_attention_stack(config: StackConfig, d_ff: int, *, causal: bool) -> EncoderStack:
    """Build n_layers blocks of self-attention and feed-forward, followed by a norm if pre-norm."""
    return stack_of(
        config,
        ((self_attention(config, causal=causal), feed_forward(config, d_ff)) for _ in range(config.n_layers)),
    )


def stack_of(config: StackConfig, layers: Iterable[tuple[nn.Module, nn.Module | None]]) -> EncoderStack:
    """Build a stack of these layers, each a position mixer and a channel mixer or None."""
    blocks = [
        EncoderBlock(
            residual(config, mixer), nn.Identity() if channels is None else residual(config, channels)
        )
        for mixer, channels in layers
    ]
    return EncoderStack(blocks, last_norm(config))


def cross_attention_stack(config: StackConfig, d_ff: int, n_layers: int) -> DecoderStack:
    """Build n_layers blocks of causal self-attention, cross-attention and feed-forward, and the last norm."""
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
    """Build self-attention; ``reach`` is a window or blocks."""
    inside = _POSITIONS_INSIDE.get(config.positions, lambda c: {})(config)
    return SelfAttention(config.d_model, config.n_heads, causal=causal, **reach, **inside, **_heads(config))


def compressed_attention(config: StackConfig, factor: int) -> MemoryCompressedAttention:
    """Build memory-compressed attention."""
    return MemoryCompressedAttention(config.d_model, config.n_heads, factor=factor, **_heads(config))


def cross_attention(config: StackConfig) -> CrossAttention:
    """Build cross-attention."""
    return CrossAttention(config.d_model, config.n_heads, **_heads(config))


def feed_forward(config: StackConfig, d_ff: int) -> FeedForward | GatedFeedForward:
    """Build a feed-forward network with d_ff hidden units."""
    return _FEED_FORWARDS[config.feed_forward](
        config.d_model,
        d_ff,
        activation=activation_of(config),
        bias=config.feed_forward_bias,
        dropout=config.activation_dropout,
    )


def activation_of(config: StackConfig) -> nn.Module:
    """Build the activation."""
    return _ACTIVATIONS[config.activation]()


def residual(config: StackConfig, part: nn.Module) -> Residual:
    """Wrap a sublayer in a residual connection with a norm."""
    wrapper = PostNorm if config.norm_placement == "post" else PreNorm
    return wrapper(part, norm_of(config), config.dropout)


def last_norm(config: StackConfig) -> nn.Module:
    """Build what follows the last block: a norm in pre-norm stacks, otherwise an identity."""
    return nn.Identity() if config.norm_placement == "post" else norm_of(config)


def with_norm(config: StackConfig, norm: Norm | None) -> StackConfig:
    """Return the configuration with another norm; None keeps the norm."""
    return config if norm is None else config.model_copy(update={"norm": norm})


def norm_of(config: StackConfig) -> nn.Module:
    """Build a norm."""
    return _NORMS[config.norm](config)


def embedding_scale(config: Any) -> float:
    """Return the factor of the embeddings, as set by ``scale_embedding``.

    By default it is sqrt(d_model) with sinusoidal and constant positions, which have size 1 and would
    dominate embeddings of size 0.02, and 1 with other positions.
    """
    scaled: bool | None = config.scale_embedding
    if scaled is None:
        scaled = config.positions in {"sinusoidal", "constant"}
    return math.sqrt(config.d_model) if scaled else 1.0


def positions_of(kind: str, n: int, width: int) -> Positions:
    """Build the encoding of ``n`` positions."""
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

# Half-split pairing, which reads adjacent numbers in memory.
_POSITIONS_INSIDE: dict[str, Callable[[StackConfig], JsonObject]] = {
    "rotary": lambda c: {
        "rotary": Rotary(c.key_width, d_rotated=c.rotary_width, base=c.rotary_base, interleaved=False)
    },
    "alibi": lambda c: {"score_bias": Alibi(c.n_heads)},
}


def _heads(config: StackConfig) -> HeadOptions:
    """Return the options shared by all attentions of the stack."""
    return {
        "d_k": config.d_k,
        "d_v": config.d_v,
        "n_kv_heads": config.n_kv_heads,
        "score": _SCORES[config.score](config),
        "qkv_bias": config.attention_bias,
        "out_bias": config.attention_bias,
        "dropout": config.attention_dropout,
    }
