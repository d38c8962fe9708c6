"""The Transformer of Vaswani et al. 2017: an encoder and a decoder of attention and feed-forwards.

| preset | n_layers | d_model | d_ff | n_heads | parameters |
|---|---|---|---|---|---|
| transformer-tiny | 4 + 4 | 128 | 256 | 4 | 1,325,056 + 128 V |
| transformer-small | 6 + 6 | 512 | 1024 | 4 | 31,543,296 + 512 V |
| transformer-base | 6 + 6 | 512 | 2048 | 8 | 44,101,632 + 512 V |
| transformer-big | 6 + 6 | 1024 | 4096 | 16 | 176,283,648 + 1024 V |

Base and big follow the paper: no bias in attention, post-norm, sinusoids, one matrix for both
embeddings and the output. With V = 37,000 that makes 63.05M and 214.2M; the paper prints 65M and 213M.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from torch import nn

from heedful.config import Config
from heedful.models.encoder_decoder import EncoderDecoder, embedding_table, token_head
from heedful.nn.attention.heads import CrossAttention, SelfAttention
from heedful.nn.attention.scores import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    Score,
)
from heedful.nn.blocks import DecoderBlock, DecoderStack, EncoderBlock, EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm
from heedful.nn.positions import (
    Added,
    Concatenated,
    ConstantPositions,
    LearnedPositions,
    NoPositions,
    OneHotPositions,
    Positions,
    SinusoidalPositions,
)
from heedful.nn.residual import PostNorm, PreNorm, Residual

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]


class TransformerConfig(Config):
    """Sizes and choices of an encoder-decoder Transformer.

    ``n_decoder_layers`` defaults to ``n_layers``; ``d_k`` and ``d_v`` to d_model / n_heads.
    ``max_length`` bounds the positions of a learned, one-hot or constant table; sinusoids need none.
    """

    kind: Literal["transformer"] = "transformer"
    d_model: Positive = 512
    d_ff: Positive = 2048
    n_heads: Positive = 8
    n_kv_heads: Positive | None = None
    n_layers: Positive = 6
    n_decoder_layers: Positive | None = None
    d_k: Positive | None = None
    d_v: Positive | None = None
    score: Literal["scaled-dot", "dot", "bilinear", "additive", "cosine"] = "scaled-dot"
    attention_bias: bool = True
    activation: Literal["relu", "gelu"] = "relu"
    norm: Literal["layer", "batch", "power"] = "layer"
    norm_placement: Literal["post", "pre"] = "post"
    norm_warmup: Annotated[int, Field(ge=0)] = 500
    positions: Literal["sinusoidal", "learned", "one-hot", "constant", "none"] = "sinusoidal"
    combine: Literal["add", "concat"] = "add"
    d_positions: Positive | None = None
    max_length: Positive = 1024
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    tie: Literal["three-way", "target", "none"] = "three-way"

    @model_validator(mode="after")
    def _fits(self) -> "TransformerConfig":
        if (self.d_k is None or self.d_v is None) and self.d_model % self.n_heads:
            raise ValueError(
                f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}; "
                "change one of them, or give d_k and d_v"
            )
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads={self.n_heads} is not divisible by n_kv_heads={self.n_kv_heads}")
        if self.combine == "concat" and self.tie != "none":
            raise ValueError("combine=concat makes embeddings narrower than d_model: it needs tie=none")
        if self.combine == "concat" and self.d_embedding < 1:
            raise ValueError(f"{self.d_model - self.d_embedding} columns of positions leave none of d_model")
        if self.combine == "add" and self.positions == "one-hot" and self.max_length != self.d_model:
            raise ValueError(
                "one-hot positions are max_length wide: add them with max_length=d_model, or concat"
            )
        return self

    @property
    def longest(self) -> int | None:
        """The most tokens a sequence may have, special ones included; None where nothing ends."""
        return self.max_length if self.positions in {"learned", "one-hot"} else None

    @property
    def position_width(self) -> int:
        """Columns that the positions take: all that are added to, or their own when concatenated."""
        if self.combine == "add":
            return self.d_model
        if self.positions == "none":
            return 0
        return self.max_length if self.positions == "one-hot" else self.d_positions or self.d_model // 4

    @property
    def d_embedding(self) -> int:
        """Columns of the embedding table."""
        return self.d_model if self.combine == "add" else self.d_model - self.position_width


PRESETS: dict[str, TransformerConfig] = {
    "transformer-tiny": TransformerConfig(d_model=128, d_ff=256, n_heads=4, n_layers=4, dropout=0.3),
    "transformer-small": TransformerConfig(d_model=512, d_ff=1024, n_heads=4, n_layers=6, dropout=0.3),
    "transformer-base": TransformerConfig(attention_bias=False),
    "transformer-big": TransformerConfig(
        d_model=1024, d_ff=4096, n_heads=16, attention_bias=False, dropout=0.3
    ),
}


def build(config: TransformerConfig, source_vocab: int, target_vocab: int) -> EncoderDecoder:
    """The model, freshly initialised; the vocabularies must be one where embeddings are tied three ways."""
    if config.tie == "three-way" and source_vocab != target_vocab:
        raise ValueError(
            f"tie=three-way needs one vocabulary for both sides, not {source_vocab} and {target_vocab}"
        )
    width = config.d_embedding
    source = embedding_table(source_vocab, width)
    target = source if config.tie == "three-way" else embedding_table(target_vocab, width)
    tied = None if config.tie == "none" else target
    return EncoderDecoder(
        _embedding(config, source),
        encoder_stack(config),
        _embedding(config, target),
        decoder_stack(config),
        token_head(config.d_model, target_vocab, tied),
    )


def encoder_stack(config: TransformerConfig) -> EncoderStack:
    """n_layers of self-attention and feed-forward."""
    blocks = [
        EncoderBlock(
            _residual(config, _self_attention(config, causal=False)),
            _residual(config, _feed_forward(config)),
        )
        for _ in range(config.n_layers)
    ]
    return EncoderStack(blocks, _last_norm(config))


def decoder_stack(config: TransformerConfig) -> DecoderStack:
    """Layers of causal self-attention, cross-attention and feed-forward."""
    blocks = [
        DecoderBlock(
            _residual(config, _self_attention(config, causal=True)),
            _residual(config, _cross_attention(config)),
            _residual(config, _feed_forward(config)),
        )
        for _ in range(config.n_decoder_layers or config.n_layers)
    ]
    return DecoderStack(blocks, _last_norm(config))


_NORMS: dict[str, Callable[[TransformerConfig], nn.Module]] = {
    "layer": lambda c: LayerNorm(c.d_model),
    "batch": lambda c: BatchNorm(c.d_model),
    "power": lambda c: PowerNorm(c.d_model, c.norm_warmup),
}

_SCORES: dict[str, Callable[[int], Score]] = {
    "scaled-dot": lambda d_k: ScaledDotScore(),
    "dot": lambda d_k: DotScore(),
    "bilinear": lambda d_k: BilinearScore(d_k, d_k),
    "additive": lambda d_k: AdditiveScore(d_k, d_k, d_k),
    "cosine": lambda d_k: CosineScore(key_strength=math.sqrt(d_k)),
}

_POSITIONS: dict[str, Callable[[TransformerConfig], Positions]] = {
    "sinusoidal": lambda c: SinusoidalPositions(c.position_width),
    "learned": lambda c: LearnedPositions(c.max_length, c.position_width),
    "one-hot": lambda c: OneHotPositions(c.max_length),
    "constant": lambda c: ConstantPositions(c.position_width, 1 / c.max_length),
    "none": lambda c: NoPositions(c.position_width),
}


def _embedding(config: TransformerConfig, weight: nn.Parameter) -> TokenEmbedding:
    combine = Added if config.combine == "add" else Concatenated
    positions = combine(_POSITIONS[config.positions](config))
    return TokenEmbedding(weight, positions, scale=math.sqrt(config.d_model), dropout=config.dropout)


def _residual(config: TransformerConfig, part: nn.Module) -> Residual:
    place = PostNorm if config.norm_placement == "post" else PreNorm
    return place(part, _NORMS[config.norm](config), config.dropout)


def _last_norm(config: TransformerConfig) -> nn.Module:
    return nn.Identity() if config.norm_placement == "post" else _NORMS[config.norm](config)


def _score(config: TransformerConfig) -> Score:
    return _SCORES[config.score](config.d_k or config.d_model // config.n_heads)


def _heads(config: TransformerConfig) -> dict[str, Any]:
    """What self- and cross-attention have in common."""
    return {
        "d_k": config.d_k,
        "d_v": config.d_v,
        "n_kv_heads": config.n_kv_heads,
        "score": _score(config),
        "qkv_bias": config.attention_bias,
        "out_bias": config.attention_bias,
        "dropout": config.attention_dropout,
    }


def _self_attention(config: TransformerConfig, *, causal: bool) -> SelfAttention:
    return SelfAttention(config.d_model, config.n_heads, causal=causal, **_heads(config))


def _cross_attention(config: TransformerConfig) -> CrossAttention:
    return CrossAttention(config.d_model, config.n_heads, **_heads(config))


def _feed_forward(config: TransformerConfig) -> FeedForward:
    activation = nn.ReLU() if config.activation == "relu" else nn.GELU()
    return FeedForward(config.d_model, config.d_ff, activation=activation, dropout=config.activation_dropout)
