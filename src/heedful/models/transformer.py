"""The encoder-decoder Transformer of Vaswani et al. 2017.

| preset | n_layers | d_model | d_ff | n_heads | parameters |
|---|---|---|---|---|---|
| transformer-tiny | 4 + 4 | 128 | 256 | 4 | 1,325,056 + 128 V |
| transformer-small | 6 + 6 | 512 | 1024 | 4 | 31,543,296 + 512 V |
| transformer-base | 6 + 6 | 512 | 2048 | 8 | 44,101,632 + 512 V |
| transformer-big | 6 + 6 | 1024 | 4096 | 16 | 176,283,648 + 1024 V |

Base and big follow the paper: no attention biases, post-norm, sinusoids, embeddings and output layer tied.
With V = 37,000 the totals are 63.05M and 214.2M; the paper prints 65M and 213M.
"""

import math
from typing import Literal

from pydantic import model_validator
from torch import nn

from heedful.models.attention_stack import (
    Layers,
    Norm,
    Positive,
    StackConfig,
    cross_attention_stack,
    positions_of,
    self_attention_stack,
    with_norm,
)
from heedful.models.encoder_decoder import EncoderDecoder, embedding_table, token_head
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.positions import Added, Concatenated


class TransformerConfig(StackConfig):
    """Configuration of an encoder-decoder Transformer.

    Args:
        n_layers: number of encoder blocks.
        n_decoder_layers: number of decoder blocks; null: n_layers.
        d_ff: number of hidden units of the feed-forward layers.
        decoder_norm: norm of the decoder blocks; null: ``norm``. Power normalisation was released with
            ``norm: power`` and ``decoder_norm: layer``.
        positions: position encoding; ``half-split`` are sinusoids with all sines first, as in Marian models;
            ``rotary`` and ``alibi`` act inside self-attention. With alibi the encoder knows distances but
            cannot distinguish a source from its reverse.
        combine: whether positions are added to the embeddings or concatenated with them.
        d_positions: for ``concat``: width of the positions; null: d_model / 4. One-hot positions have width
            max_length.
        max_length: maximum number of tokens for ``learned`` and ``one-hot`` positions, and divisor of
            ``constant`` positions; not used by others.
        tie: share one matrix between both embeddings and the output layer (``three-way``), between the target
            embedding and the output layer (``target``), or not (``none``).
        head_bias: whether the output layer has a bias, as in Marian models.
    """

    kind: Literal["transformer"] = "transformer"
    d_ff: Positive = 2048
    n_decoder_layers: Layers | None = None
    decoder_norm: Norm | None = None
    positions: Literal[
        "sinusoidal", "half-split", "learned", "one-hot", "constant", "none", "rotary", "alibi"
    ] = "sinusoidal"
    combine: Literal["add", "concat"] = "add"
    d_positions: Positive | None = None
    max_length: Positive = 1024
    tie: Literal["three-way", "target", "none"] = "three-way"
    head_bias: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "TransformerConfig":
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
        """Maximum number of tokens of a sequence, including special tokens; None: no limit."""
        return self.max_length if self.positions in {"learned", "one-hot"} else None

    @property
    def position_width(self) -> int:
        """Width of the positions: d_model if added, their own width if concatenated."""
        if self.combine == "add":
            return self.d_model
        if self.positions in {"none", "rotary", "alibi"}:
            return 0
        return self.max_length if self.positions == "one-hot" else self.d_positions or self.d_model // 4

    @property
    def d_embedding(self) -> int:
        """Width of the embedding table."""
        return self.d_model if self.combine == "add" else self.d_model - self.position_width


PRESETS: dict[str, TransformerConfig] = {
    "transformer-tiny": TransformerConfig(d_model=128, d_ff=256, n_heads=4, n_layers=4, dropout=0.3),
    "transformer-small": TransformerConfig(d_model=512, d_ff=1024, n_heads=4, n_layers=6, dropout=0.3),
    "transformer-base": TransformerConfig(attention_bias=False),
    "transformer-big": TransformerConfig(
        d_model=1024, d_ff=4096, n_heads=16, attention_bias=False, dropout=0.3
    ),
}

VOCABULARIES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("transformer-tiny", "transformer-small"), (10_000, 10_000)),
    **dict.fromkeys(("transformer-base", "transformer-big"), (37_000, 37_000)),
}
"""Vocabulary sizes of source and target: the paper's English-German (section 5.1), or for small corpora."""


def build(config: TransformerConfig, source_vocab: int, target_vocab: int) -> EncoderDecoder:
    """Build a model; with tie=three-way, both sides must share one vocabulary."""
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
        token_head(config.d_model, target_vocab, tied, bias=config.head_bias),
    )


def encoder_stack(config: TransformerConfig) -> EncoderStack:
    """Build the encoder: blocks of self-attention and feed-forward."""
    return self_attention_stack(config, config.d_ff, causal=False)


def decoder_stack(config: TransformerConfig) -> DecoderStack:
    """Build the decoder: blocks of causal self-attention, cross-attention and feed-forward."""
    own = with_norm(config, config.decoder_norm)
    return cross_attention_stack(own, config.d_ff, config.n_decoder_layers or config.n_layers)


def _embedding(config: TransformerConfig, weight: nn.Parameter) -> TokenEmbedding:
    combine = Added if config.combine == "add" else Concatenated
    positions = combine(positions_of(config.positions, config.max_length, config.position_width))
    return TokenEmbedding(weight, positions, scale=math.sqrt(config.d_model), dropout=config.dropout)
