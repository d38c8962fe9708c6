"""Decoders of segmentation models, put on an image encoder: scores of the classes in every pixel.

Each is a `Section`, selected by ``kind``; `DECODERS` lists them.
"""

from typing import TYPE_CHECKING, Literal

from torch import nn

from heedful.config import Section, by_kind
from heedful.models.resnet import ResNetConfig
from heedful.models.sections import Heads, Layers, Rate, Width
from heedful.models.vision import VisionConfig
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock
from heedful.nn.feedforward import FeedForward
from heedful.nn.norms import LayerNorm
from heedful.nn.residual import PreNorm
from heedful.nn.segmentation import LinearDecoder, MaskTransformer, SegmentationHead

ImageModelConfig = VisionConfig | ResNetConfig
"""A model whose tokens are patches of an image, or cells of a grid."""


class DecoderSection(Section):
    """Base class of decoders."""

    def check(self, model: ImageModelConfig) -> None:
        """Check that the decoder fits the model.

        Raises:
            ValueError: names the key and the limit.
        """

    def build(self, model: ImageModelConfig, n_classes: int) -> nn.Module:
        """Build the decoder of a model's patches."""
        raise NotImplementedError


class LinearDecoderConfig(DecoderSection):
    """Scores of each patch by one linear layer, interpolated bilinearly to pixels (Segmenter, Strudel et al.
    2021, section 3.1).
    """

    kind: Literal["linear"] = "linear"

    def build(self, model: ImageModelConfig, n_classes: int) -> LinearDecoder:
        """Build a linear layer."""
        return LinearDecoder(model.d_model, n_classes)


class PixelDecoderConfig(DecoderSection):
    """Scores of each pixel of a patch by one linear layer, without interpolation: for sharp edges with large
    patches.
    """

    kind: Literal["pixels"] = "pixels"

    def check(self, model: ImageModelConfig) -> None:
        """Check that every patch has the same number of pixels."""
        if model.image_size % model.grid[0]:
            raise ValueError(
                f"task.decoder.kind=pixels: model.image_size={model.image_size} must be a multiple of the "
                f"{model.grid[0]} rows of the model's grid; change image_size, or set decoder=linear"
            )

    def build(self, model: ImageModelConfig, n_classes: int) -> LinearDecoder:
        """Build a linear layer with an output for each pixel of a patch."""
        return LinearDecoder(model.d_model, n_classes, model.image_size // model.grid[0])


class MaskTransformerConfig(DecoderSection):
    """Class embeddings that read the patches in a Transformer and are then compared with them (Segmenter,
    Strudel et al. 2021, section 3.2); scores are interpolated bilinearly. Its layers are pre-norm, with GELU,
    and as wide as the model.

    Args:
        n_layers: number of layers.
        n_heads: number of heads of each layer; a divisor of ``model.d_model``.
        d_ff: number of hidden units of the feed-forward layers; null: 4 d_model.
        dropout: dropout rate of the output of each sublayer.
    """

    kind: Literal["mask-transformer"] = "mask-transformer"
    n_layers: Layers = 2
    n_heads: Heads = 4
    d_ff: Width | None = None
    dropout: Rate = 0.1

    def check(self, model: ImageModelConfig) -> None:
        """Check the number of heads."""
        if model.d_model % self.n_heads:
            raise ValueError(
                f"model.d_model={model.d_model} must be divisible by task.decoder.n_heads={self.n_heads}"
            )

    def build(self, model: ImageModelConfig, n_classes: int) -> MaskTransformer:
        """Build the blocks and the class embeddings."""
        d = model.d_model
        blocks = [
            EncoderBlock(
                PreNorm(SelfAttention(d, self.n_heads), LayerNorm(d), self.dropout),
                PreNorm(FeedForward(d, self.d_ff or 4 * d, activation=nn.GELU()), LayerNorm(d), self.dropout),
            )
            for _ in range(self.n_layers)
        ]
        return MaskTransformer(blocks, LayerNorm(d), d, n_classes)


DECODERS: tuple[type[DecoderSection], ...] = (LinearDecoderConfig, PixelDecoderConfig, MaskTransformerConfig)
"""All decoders; the first is that of a recipe without ``task.decoder``."""

if TYPE_CHECKING:
    DecoderConfig = DecoderSection
else:
    DecoderConfig = by_kind(*DECODERS)


def segmentation_head(decoder: DecoderSection, model: ImageModelConfig, n_classes: int) -> SegmentationHead:
    """Build the head of a model: it reads all tokens but those before the patches (a class token)."""
    rows, columns = model.grid
    size = (model.image_size, model.image_size)
    return SegmentationHead(
        decoder.build(model, n_classes), (rows, columns), size, model.n_tokens - rows * columns
    )
