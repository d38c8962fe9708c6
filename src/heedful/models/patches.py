"""Image patches: the configuration and the embedding shared by vision encoders and captioners."""

from collections.abc import Callable
from typing import Literal

from pydantic import model_validator
from torch import nn

from heedful.config import Config
from heedful.models.encoder import STD
from heedful.models.sections import PositionsConfig, Positive
from heedful.nn.patches import ConvolutionPatches, LinearPatches, PatchEmbedding
from heedful.nn.positions import Added, GridPositions, LearnedPositions, Positions


class PatchesConfig(Config):
    """Configuration of image and patch sizes, by default those of ViT-B/16.

    Args:
        image_size: height and width of the images in pixels.
        channels: number of channels: 3 for RGB, 1 for greyscale.
        patch_size: height and width of a patch in pixels; a divisor of ``image_size``.
        patches: patch projection: a linear map of extracted patches (``linear``), or a convolution with
            kernel size = stride. Both are equivalent and have the same weights, so a run can be continued
            with either.
    """

    image_size: Positive = 224
    channels: Positive = 3
    patch_size: Positive = 16
    patches: Literal["linear", "convolution"] = "linear"

    @model_validator(mode="after")
    def _patches_fit(self) -> "PatchesConfig":
        if self.image_size % self.patch_size:
            raise ValueError(f"patch_size must divide image_size={self.image_size}, got {self.patch_size}")
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of rows and columns of patches."""
        side = self.image_size // self.patch_size
        return side, side


_PATCHES: dict[str, Callable[[int, int, int], LinearPatches | ConvolutionPatches]] = {
    "linear": LinearPatches,
    "convolution": ConvolutionPatches,
}


def patches_of(
    config: PatchesConfig,
    positions: PositionsConfig,
    class_token: nn.Parameter | None,
    *,
    d_model: int,
    dropout: float,
) -> PatchEmbedding:
    """Build the patch embedding; a learned position table is initialized to N(0, 0.02²).

    Args:
        config: the sizes.
        positions: position encoding.
        class_token: token prepended to the patches, or None.
        d_model: width of the tokens.
        dropout: dropout rate of the embedding.
    """
    rows, columns = config.grid
    patches = _PATCHES[config.patches](config.channels, config.patch_size, d_model)
    before = int(class_token is not None)
    encoding: Positions
    if positions.kind == "grid":
        encoding = GridPositions(rows, columns, d_model, before)
    else:
        encoding = positions.build(before + rows * columns, d_model)
    if isinstance(encoding, LearnedPositions):
        nn.init.normal_(encoding.weight, std=STD)
    size = (config.image_size, config.image_size)
    return PatchEmbedding(patches, size, class_token, Added(encoding), dropout=dropout)
