"""Image captioning: an encoder of images and a Transformer decoder that attends to its tokens.

| preset | encoder | n_layers | d_model | d_ff | n_heads | parameters, for 48 x 48 pixels in colour |
|---|---|---|---|---|---|---|
| captioner-mini | ViT | 2 + 2 | 128 | 256 | 4 | 692,352 + 128 V |
| captioner-resnet | ResNet | 2 | 128 | 256 | 4 | 640,032 + 128 V |

The encoder is a ViT over patches (lecture S1; Dosovitskiy et al. 2021; Liu et al. 2021 (CPTR) combine it with
the decoder of Vaswani et al. 2017), or a residual network, whose last grid is attended to cell by cell as in
lecture S4 (Xu et al. 2015; there the decoder is recurrent, `heedful.models.recurrent_captioner`). There is no
class token: the decoder attends only to patches or cells, so words are aligned to places in the image.
"""

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator
from torch import nn

from heedful.config import Section, by_kind
from heedful.models.positions import LearnedConfig
from heedful.models.resnet import ResNetEncoderConfig
from heedful.models.sections import Positive
from heedful.models.stacks import (
    DecoderConfig,
    LayerConfig,
    decoder_stack,
    embedding_table,
    stack,
    token_head,
)
from heedful.models.transformer import EncoderDecoder
from heedful.models.vision import PatchesConfig, patches_of
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.patches import GridEmbedding, PatchEmbedding
from heedful.nn.positions import Added, LearnedPositions
from heedful.typing import JsonObject


class PatchesEncoderConfig(Section):
    """ViT as the encoder of a captioner: patches of ``patch_size`` pixels, and ``n_layers`` of ``layer``."""

    kind: Literal["patches"] = "patches"


if TYPE_CHECKING:
    ImageEncoderConfig = Section
else:
    ImageEncoderConfig = by_kind(PatchesEncoderConfig, ResNetEncoderConfig)


class CaptionerConfig(PatchesConfig, DecoderConfig):
    """Configuration of a captioner; encoder and decoder share d_model and, unless changed, their layers.

    Args:
        encoder: what reads the image: a ViT, or a residual network, whose grid cells are projected to d_model
            and have learned positions. The network has no layers of ``layer``, and does not use
            ``patch_size`` and ``patches``.
        n_layers: number of layers of the ViT and, unless n_decoder_layers is set, of the decoder.
        positions: position encoding of the words; patches and cells have learned positions.
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
    encoder: ImageEncoderConfig = PatchesEncoderConfig()
    max_length: Positive = 1024
    tie: bool = True

    @model_validator(mode="after")
    def _positions_fit(self) -> "CaptionerConfig":
        self.refuse_positions("sinusoidal", "learned", "none")
        self.check_positions("d_model", self.d_model)
        return self

    @property
    def reads_patches(self) -> bool:
        """Whether the encoder is a ViT, which cuts the images into patches."""
        return not isinstance(self.encoder, ResNetEncoderConfig)

    @property
    def layers(self) -> tuple[LayerConfig, ...]:
        """Configurations of the encoder's layers; a residual network has none."""
        return super().layers if self.reads_patches else ()

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of rows and columns of patches or cells."""
        encoder = self.encoder
        return encoder.grid_of(self.image_size) if isinstance(encoder, ResNetEncoderConfig) else super().grid

    @property
    def n_tokens(self) -> int:
        """Number of tokens of an image: its patches or cells."""
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
    "captioner-resnet": CaptionerConfig.model_validate(
        {
            "image_size": 48,
            "encoder": {
                "kind": "resnet", "n_blocks": [2, 2], "width": 32, "n_groups": 8, "root_kernel": 5,
            },
            "d_model": 128,
            "n_layers": 2,
            "layer": {"mixer": {"n_heads": 4}, "channels": {"d_ff": 256}},
        }
    ),
}  # fmt: skip

VOCABULARIES: dict[str, tuple[int, ...]] = dict.fromkeys(PRESETS, (1000,))
"""A vocabulary size for small corpora."""


def build(config: CaptionerConfig, vocab_size: int) -> EncoderDecoder:
    """Build a model, with patches initialised as in `heedful.models.vision`, words as in `transformer`."""
    table = embedding_table(vocab_size, config.d_model)
    positions = Added(config.positions.build(config.max_length, config.d_model))
    words = TokenEmbedding(table, positions, scale=math.sqrt(config.d_model), dropout=config.dropout)
    return EncoderDecoder(
        _image_embedding(config),
        stack(config, config.n_tokens),
        words,
        decoder_stack(config),
        token_head(config.d_model, vocab_size, table if config.tie else None),
    )


def _image_embedding(config: CaptionerConfig) -> PatchEmbedding | GridEmbedding:
    d_model, encoder = config.d_model, config.encoder
    if not isinstance(encoder, ResNetEncoderConfig):
        return patches_of(config, LearnedConfig(), None, d_model=d_model, dropout=config.dropout)
    positions = Added(LearnedPositions(config.n_tokens, d_model))
    network = encoder.build(config.image_size, config.channels)
    projection = nn.Linear(encoder.d_model, d_model)
    return GridEmbedding(network, projection, positions, dropout=config.dropout)
