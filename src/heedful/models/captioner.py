"""From a picture to its caption: ViT's encoder over squares, a Transformer's decoder that attends to them.

| preset | n_layers | d_model | d_ff | n_heads | parameters |
|---|---|---|---|---|---|
| captioner-mini | 2 + 2 | 128 | 256 | 4 | 692,352 + 128 V, for 48 x 48 pixels in colour |

Lecture S1 names both halves (Dosovitskiy et al. 2021; Vaswani et al. 2017); Liu et al. 2021 (CPTR) put them
together. There is no class token: the decoder sees the squares alone, so alignments are of words to squares.
"""

import math
from typing import Literal

from pydantic import model_validator
from torch import nn

from heedful.models.attention_stack import (
    Positive,
    StackConfig,
    cross_attention_stack,
    positions_of,
    self_attention_stack,
)
from heedful.models.encoder import STD
from heedful.models.encoder_decoder import EncoderDecoder, embedding_table, token_head
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.patches import LinearPatches, PatchEmbedding
from heedful.nn.positions import Added, LearnedPositions


class CaptionerConfig(StackConfig):
    """Sizes and choices of a captioner; d_model, d_ff and heads are those of both halves.

    ``n_decoder_layers`` defaults to ``n_layers``.

    Args:
        picture_size: pixels along each side.
        channels: numbers of a pixel: 3 for colours, 1 for grey.
        patch_size: pixels along each side of a square; it divides ``picture_size``.
        positions: of the words; the squares have a learned table.
        max_length: the most tokens of a caption where positions are learned, special ones included.
        tie: whether one matrix embeds the words and makes the logits.
    """

    kind: Literal["captioner"] = "captioner"
    picture_size: Positive = 224
    channels: Positive = 3
    patch_size: Positive = 16
    d_ff: Positive = 2048
    n_decoder_layers: Positive | None = None
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "gelu"
    norm_placement: Literal["post", "pre"] = "pre"
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    max_length: Positive = 1024
    tie: bool = True

    @model_validator(mode="after")
    def _squares_fit(self) -> "CaptionerConfig":
        if self.picture_size % self.patch_size:
            raise ValueError(
                f"patch_size={self.patch_size} does not divide picture_size={self.picture_size}: "
                "squares must fill the picture"
            )
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of squares."""
        side = self.picture_size // self.patch_size
        return side, side

    @property
    def n_tokens(self) -> int:
        """Tokens of a picture: its squares."""
        return self.grid[0] * self.grid[1]

    @property
    def longest(self) -> int | None:
        """The most tokens a caption may have, special ones included; None where nothing ends."""
        return self.max_length if self.positions == "learned" else None


PRESETS: dict[str, CaptionerConfig] = {
    "captioner-mini": CaptionerConfig(
        picture_size=48, patch_size=8, d_model=128, d_ff=256, n_heads=4, n_layers=2
    ),
}


def build(config: CaptionerConfig, vocab_size: int) -> EncoderDecoder:
    """The model, freshly initialised: squares as `heedful.models.vision` has them, words as `transformer`."""
    table = embedding_table(vocab_size, config.d_model)
    positions = positions_of(config.positions, config.max_length, config.d_model)
    words = TokenEmbedding(table, Added(positions), scale=math.sqrt(config.d_model), dropout=config.dropout)
    return EncoderDecoder(
        _squares(config),
        self_attention_stack(config, config.d_ff, causal=False),
        words,
        cross_attention_stack(config, config.d_ff, config.n_decoder_layers or config.n_layers),
        token_head(config.d_model, vocab_size, table if config.tie else None),
    )


def _squares(config: CaptionerConfig) -> PatchEmbedding:
    patches = LinearPatches(config.channels, config.patch_size, config.d_model)
    positions = LearnedPositions(config.n_tokens, config.d_model)
    nn.init.normal_(positions.weight, std=STD)
    size = (config.picture_size, config.picture_size)
    return PatchEmbedding(patches, size, None, Added(positions), dropout=config.dropout)
