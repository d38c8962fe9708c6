"""Image captioning: a ViT encoder over patches and a Transformer decoder that attends to them.

| preset | n_layers | d_model | d_ff | n_heads | parameters |
|---|---|---|---|---|---|
| captioner-mini | 2 + 2 | 128 | 256 | 4 | 692,352 + 128 V, for 48 x 48 pixels in colour |

Lecture S1 names both parts (Dosovitskiy et al. 2021; Vaswani et al. 2017); Liu et al. 2021 (CPTR) combine
them. There is no class token: the decoder attends only to patches, so words are aligned to patches.
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
from heedful.models.patches import PatchesConfig, patches_of
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.positions import Added


class CaptionerConfig(PatchesConfig):
    """Configuration of a captioner; encoder and decoder share d_model, d_ff and the number of heads.

    Args:
        n_layers: number of encoder blocks.
        n_decoder_layers: number of decoder blocks; null: n_layers.
        d_ff: number of hidden units of the feed-forward layers.
        decoder_norm: norm of the decoder blocks; null: ``norm``.
        positions: position encoding of the words; patches have learned positions.
        max_length: maximum number of tokens of a caption with learned positions, including special tokens.
        tie: whether the output layer shares the word embedding table.
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
        """Number of tokens of an image: its patches."""
        return self.grid[0] * self.grid[1]

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens of a caption, including special tokens; None: no limit."""
        return self.max_length if self.positions == "learned" else None


PRESETS: dict[str, CaptionerConfig] = {
    "captioner-mini": CaptionerConfig(
        image_size=48, patch_size=8, d_model=128, d_ff=256, n_heads=4, n_layers=2
    ),
}

VOCABULARIES: dict[str, tuple[int, ...]] = {"captioner-mini": (1000,)}
"""A vocabulary size for small corpora."""


def build(config: CaptionerConfig, vocab_size: int) -> EncoderDecoder:
    """Build a model, with patches initialized as in `heedful.models.vision`, words as in `transformer`."""
    table = embedding_table(vocab_size, config.d_model)
    positions = positions_of(config.positions, config.max_length, config.d_model)
    words = TokenEmbedding(table, Added(positions), scale=math.sqrt(config.d_model), dropout=config.dropout)
    return EncoderDecoder(
        patches_of(config, "learned", None),
        self_attention_stack(config, config.d_ff, causal=False),
        words,
        cross_attention_stack(
            with_norm(config, config.decoder_norm), config.d_ff, config.n_decoder_layers or config.n_layers
        ),
        token_head(config.d_model, vocab_size, table if config.tie else None),
    )
