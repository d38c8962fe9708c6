"""From a picture to its caption: ViT's encoder over squares, a Transformer's decoder that attends to them.

| preset | n_layers | d_model | d_ff | n_heads | parameters |
|---|---|---|---|---|---|
| captioner-mini | 2 + 2 | 128 | 256 | 4 | 692,352 + 128 V, for 48 x 48 pixels in colour |

Lecture S1 names both halves (Dosovitskiy et al. 2021; Vaswani et al. 2017); Liu et al. 2021 (CPTR) put them
together. There is no class token: the decoder sees the squares alone, so alignments are of words to squares.
"""

import math
from typing import Literal

from heedful.models.attention_stack import (
    Layers,
    Norm,
    Positive,
    cross_attention_stack,
    positions_of,
    self_attention_stack,
    with_norm,
)
from heedful.models.encoder_decoder import EncoderDecoder, embedding_table, token_head
from heedful.models.patches import SquaresConfig, squares_of
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.positions import Added


class CaptionerConfig(SquaresConfig):
    """Sizes and choices of a captioner; d_model, d_ff and heads are those of both halves.

    Args:
        n_layers: blocks of the encoder.
        n_decoder_layers: blocks of the decoder; null: n_layers.
        d_ff: hidden units of the feed-forwards.
        decoder_norm: of the decoder's blocks; null: ``norm``.
        positions: of the words; the squares have a learned table.
        max_length: the most tokens of a caption where positions are learned, special ones included.
        tie: whether one matrix embeds the words and makes the logits.
    """

    kind: Literal["captioner"] = "captioner"
    d_ff: Positive = 2048
    n_decoder_layers: Layers | None = None
    decoder_norm: Norm | None = None
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    max_length: Positive = 1024
    tie: bool = True

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

VOCABULARIES: dict[str, tuple[int, ...]] = {"captioner-mini": (1000,)}
"""Of a size for a small corpus."""


def build(config: CaptionerConfig, vocab_size: int) -> EncoderDecoder:
    """The model, freshly initialised: squares as `heedful.models.vision` has them, words as `transformer`."""
    table = embedding_table(vocab_size, config.d_model)
    positions = positions_of(config.positions, config.max_length, config.d_model)
    words = TokenEmbedding(table, Added(positions), scale=math.sqrt(config.d_model), dropout=config.dropout)
    return EncoderDecoder(
        squares_of(config, "learned", None),
        self_attention_stack(config, config.d_ff, causal=False),
        words,
        cross_attention_stack(
            with_norm(config, config.decoder_norm), config.d_ff, config.n_decoder_layers or config.n_layers
        ),
        token_head(config.d_model, vocab_size, table if config.tie else None),
    )
