"""Image captioning: a ViT encoder over patches and a Transformer decoder that attends to them.

| preset | n_layers | d_model | d_ff | n_heads | parameters |
|---|---|---|---|---|---|
| captioner-mini | 2 + 2 | 128 | 256 | 4 | 692,352 + 128 V, for 48 x 48 pixels in colour |

Lecture S1 names both parts (Dosovitskiy et al. 2021; Vaswani et al. 2017); Liu et al. 2021 (CPTR) combine
them. There is no class token: the decoder attends only to patches, so words are aligned to patches.
"""

import math
from typing import ClassVar, Literal

from pydantic import model_validator

from heedful.models.positions import LearnedConfig
from heedful.models.sections import Positive
from heedful.models.stacks import DecoderConfig, decoder_stack, embedding_table, stack, token_head
from heedful.models.transformer import EncoderDecoder
from heedful.models.vision import PatchesConfig, patches_of
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.positions import Added
from heedful.typing import JsonObject


class CaptionerConfig(PatchesConfig, DecoderConfig):
    """Configuration of a captioner; encoder and decoder share d_model and, unless changed, their layers.

    Args:
        positions: position encoding of the words; patches have learned positions.
        max_length: maximum number of tokens of a caption with learned positions, including special tokens.
        tie: whether the output layer shares the word embedding table.
    """

    default_sections: ClassVar[JsonObject] = {
        "layer": {
            "channels": {"kind": "feed-forward", "d_ff": 2048, "activation": "gelu"},
            "norm_placement": "pre",
        },
        "positions": {"kind": "sinusoidal"},
    }

    kind: Literal["captioner"] = "captioner"
    max_length: Positive = 1024
    tie: bool = True

    @model_validator(mode="after")
    def _positions_fit(self) -> "CaptionerConfig":
        self.refuse_positions("sinusoidal", "learned", "none")
        self.check_positions("d_model", self.d_model)
        return self

    @property
    def n_tokens(self) -> int:
        """Number of tokens of an image: its patches."""
        return self.grid[0] * self.grid[1]

    @property
    def longest(self) -> int | None:
        """Maximum number of tokens of a caption, including special tokens; None: no limit."""
        return self.max_length if self.positions.kind == "learned" else None


PRESETS: dict[str, CaptionerConfig] = {
    "captioner-mini": CaptionerConfig.model_validate(
        {
            "image_size": 48,
            "patch_size": 8,
            "d_model": 128,
            "n_layers": 2,
            "layer": {"mixer": {"n_heads": 4}, "channels": {"d_ff": 256}},
        }
    ),
}

VOCABULARIES: dict[str, tuple[int, ...]] = {"captioner-mini": (1000,)}
"""A vocabulary size for small corpora."""


def build(config: CaptionerConfig, vocab_size: int) -> EncoderDecoder:
    """Build a model, with patches initialised as in `heedful.models.vision`, words as in `transformer`."""
    table = embedding_table(vocab_size, config.d_model)
    positions = Added(config.positions.build(config.max_length, config.d_model))
    words = TokenEmbedding(table, positions, scale=math.sqrt(config.d_model), dropout=config.dropout)
    return EncoderDecoder(
        patches_of(config, LearnedConfig(), None, d_model=config.d_model, dropout=config.dropout),
        stack(config, config.n_tokens),
        words,
        decoder_stack(config),
        token_head(config.d_model, vocab_size, table if config.tie else None),
    )
