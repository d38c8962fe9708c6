"""Squares of pixels: the options and the embedding that encoders of pictures and captioners share."""

from collections.abc import Callable
from typing import Literal

from pydantic import model_validator
from torch import nn

from heedful.models.attention_stack import Positive, StackConfig, positions_of
from heedful.models.encoder import STD
from heedful.nn.patches import ConvolutionPatches, LinearPatches, PatchEmbedding
from heedful.nn.positions import Added, GridPositions, LearnedPositions, Positions


class SquaresConfig(StackConfig):
    """Sizes of a picture and its squares, by default those of ViT-B/16; the blocks over them are ViT's too.

    Args:
        picture_size: pixels along each side.
        channels: numbers of a pixel: 3 for colours, 1 for grey.
        patch_size: pixels along each side of a square; it divides ``picture_size``.
        patches: how squares become tokens: cut out and multiplied (``linear``), or by a convolution whose
            stride is its kernel; both compute the same with the same weights, so a run goes on with either.
    """

    picture_size: Positive = 224
    channels: Positive = 3
    patch_size: Positive = 16
    patches: Literal["linear", "convolution"] = "linear"
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "gelu"
    norm_placement: Literal["post", "pre"] = "pre"

    @model_validator(mode="after")
    def _squares_fit(self) -> "SquaresConfig":
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


_PATCHES: dict[str, Callable[[int, int, int], LinearPatches | ConvolutionPatches]] = {
    "linear": LinearPatches,
    "convolution": ConvolutionPatches,
}


def squares_of(config: SquaresConfig, positions: str, class_token: nn.Parameter | None) -> PatchEmbedding:
    """What makes tokens of a picture, freshly initialised: a table of positions as N(0, 0.02²).

    Args:
        config: the sizes.
        positions: the kind of what tells the squares' places.
        class_token: what stands before the squares, or None.
    """
    rows, columns = config.grid
    patches = _PATCHES[config.patches](config.channels, config.patch_size, config.d_model)
    before = int(class_token is not None)
    places: Positions
    if positions == "sinusoidal":
        places = GridPositions(rows, columns, config.d_model, before)
    else:
        places = positions_of(positions, before + rows * columns, config.d_model)
    if isinstance(places, LearnedPositions):
        nn.init.normal_(places.weight, std=STD)
    size = (config.picture_size, config.picture_size)
    return PatchEmbedding(patches, size, class_token, Added(places), dropout=config.dropout)
