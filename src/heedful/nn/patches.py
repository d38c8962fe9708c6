"""Patch embedding of images: P x P patches, projected and combined with positions.

    image [C, H, W]  →  N = H W / P² patches of P² C numbers  →  tokens [N, d], row by row

Two equivalent projections: `LinearPatches` extracts patches and multiplies; `ConvolutionPatches` is a
convolution with kernel size = stride = P. Tokens are packed like text tokens, so that all mixers, norms,
heads and losses also work on images.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.dropout import Dropout
from heedful.nn.layout import Layout
from heedful.nn.taps import Tap


@dataclass(frozen=True, eq=False)
class Images:
    """Batch of images of one size: the input of vision models, as `Tokens` is of text models.

    Args:
        pixels: the images.
        layout: layout of the tokens that the model computes from the images, used by poolings and
            objectives.
    """

    pixels: Float[Tensor, "B C H W"]
    layout: Layout

    @classmethod
    def of(cls, pixels: Float[Tensor, "B C H W"], n_tokens: int) -> "Images":
        """Build a batch in which each image has ``n_tokens`` tokens (given by the model configuration)."""
        return cls(pixels, Layout.of([n_tokens] * len(pixels), device=pixels.device))

    def select(self, images: Sequence[int]) -> "Images":
        """Select images, in the given order."""
        return Images(self.pixels[list(images)], self.layout.select(images))

    def to(self, device: torch.device | str) -> "Images":
        """Return the images on ``device``."""
        return Images(self.pixels.to(device, non_blocking=True), self.layout.to(device))


def grid_of(height: int, width: int, patch: int) -> tuple[int, int]:
    """Return the numbers of rows and columns of patches.

    Raises:
        ValueError: the patch size does not divide the image size.
    """
    if height % patch or width % patch:
        raise ValueError(
            f"the patch size {patch} must divide both sides of the image, got {height} x {width} pixels; "
            "resize the image or choose another patch size"
        )
    return height // patch, width // patch


class LinearPatches(nn.Module):
    """``x_n = W vec(patch_n) + b``: extract patches and multiply them by one matrix.

    W is d x C P²; a patch is flattened by channel, row and column, so W is the flattened kernel of
    `ConvolutionPatches`. C P² d + d parameters. Source: Dosovitskiy et al. 2021 (ViT), equation 1.

    W is initialised to N(0, 1 / (C P²)) and b to 0, as in the released code (which truncates the normal).

    Args:
        channels: number of channels, C.
        patch: patch size, P.
        d_model: model dimension, d.
    """

    def __init__(self, channels: int, patch: int, d_model: int) -> None:
        super().__init__()
        self.patch = patch
        self.projection = nn.Linear(channels * patch**2, d_model)
        _initialise(self.projection)

    def forward(self, pixels: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N d"]:
        """Project all patches of all images."""
        grid_of(pixels.shape[2], pixels.shape[3], self.patch)
        patches = functional.unfold(pixels, self.patch, stride=self.patch)
        return self.projection(patches.mT)


class ConvolutionPatches(nn.Module):
    """Convolution with kernel size = stride = P: the same d filters for every patch, without overlap.

    The kernel is W of `LinearPatches`, viewed as d x C x P x P; the two modules have the same state dict.

    Source: Dosovitskiy et al. 2021, released code. Arguments and initialisation as in `LinearPatches`.
    """

    def __init__(self, channels: int, patch: int, d_model: int) -> None:
        super().__init__()
        self.channels, self.patch = channels, patch
        self.projection = nn.Linear(channels * patch**2, d_model)
        _initialise(self.projection)

    def forward(self, pixels: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N d"]:
        """Project all patches of all images."""
        grid_of(pixels.shape[2], pixels.shape[3], self.patch)
        kernel = self.projection.weight.unflatten(1, (self.channels, self.patch, self.patch))
        patches = functional.conv2d(pixels, kernel, self.projection.bias, stride=self.patch)
        return patches.flatten(2).mT


def _initialise(projection: nn.Linear) -> None:
    nn.init.normal_(projection.weight, std=projection.in_features**-0.5)
    nn.init.zeros_(projection.bias)


class PatchEmbedding(nn.Module):
    """``z = Dropout(combine([class; x_1; …; x_N], PE))`` (Dosovitskiy et al. 2021, equation 1).

    Args:
        patches: `LinearPatches` or `ConvolutionPatches`.
        size: height and width of the images in pixels; positions are specific to one grid.
        class_token: ``[1, d]``, prepended to the patches of each image; or None.
        positions: combines the tokens with their positions, as in `TokenEmbedding`.
        dropout: dropout rate of the sum.
    """

    def __init__(
        self,
        patches: LinearPatches | ConvolutionPatches,
        size: tuple[int, int],
        class_token: nn.Parameter | None,
        positions: nn.Module,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        rows, columns = grid_of(*size, patches.patch)
        self.patches, self.size, self.positions = patches, size, positions
        self.class_token, self.dropout = class_token, Dropout(dropout)
        self.output = Tap("embedded patches, after the class token if there is one")
        self.n_tokens = rows * columns + (class_token is not None)

    @property
    def adds_constant(self) -> dict[str, range]:
        """The projection bias, which adds the same vector to all tokens if there is no class token."""
        bias = self.patches.projection.bias
        return (
            {}
            if bias is None or self.class_token is not None
            else {"patches.projection.bias": range(len(bias))}
        )

    def forward(self, images: Images) -> Float[Tensor, "T d"]:
        """Embed images as packed tokens in the layout of ``images``.

        Raises:
            ValueError: the image size differs from that of the model, or the layout has another number of
                tokens.
        """
        layout, pixels = images.layout, images.pixels
        if pixels.shape[2:] != self.size:
            raise ValueError(
                f"images must have {_by(self.size)} pixels, got {_by(pixels.shape[2:])}; resize the images, "
                "or build a model for their size and resize its position table (resize_positions)"
            )
        if layout.lengths != (self.n_tokens,) * len(pixels):
            raise ValueError(f"layout must have {self.n_tokens} tokens for each of the {len(pixels)} images")
        x = self.patches(pixels.to(self.patches.projection.weight.dtype))
        if self.class_token is not None:
            x = torch.cat((self.class_token.expand(len(x), -1, -1), x), dim=1)
        return self.output(self.dropout(self.positions(x.flatten(0, 1), layout.positions, layout.end)))


class GridEmbedding(nn.Module):
    """``z = Dropout(combine([W x_1 + b; …; W x_N + b], PE))``: cells of a convolutional network as tokens.

    x_n are the hidden states of the last grid of the network, row by row: the feature map in place of
    patches, as in the hybrid architecture of Dosovitskiy et al. 2021 (section 3.1).

    Args:
        network: maps `Images` to the hidden states of their cells, packed: ``[T, d_cell]``.
        projection: W and b, from d_cell to d.
        positions: combines the tokens with their positions, as in `TokenEmbedding`.
        dropout: dropout rate of the sum.
    """

    def __init__(
        self, network: nn.Module, projection: nn.Linear, positions: nn.Module, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.network, self.projection, self.positions = network, projection, positions
        self.dropout = Dropout(dropout)
        self.output = Tap("embedded cells of the grid")
        nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(projection.bias)

    @property
    def adds_constant(self) -> dict[str, range]:
        """The projection bias, which adds the same vector to all tokens."""
        return {"projection.bias": range(self.projection.out_features)}

    def forward(self, images: Images) -> Float[Tensor, "T d"]:
        """Embed the cells of the images as packed tokens in the layout of ``images``."""
        layout, x = images.layout, self.projection(self.network(images))
        return self.output(self.dropout(self.positions(x, layout.positions, layout.end)))


def _by(size: Sequence[int]) -> str:
    return " x ".join(map(str, size))


def resize_positions(
    table: Float[Tensor, "rows d"], old: tuple[int, int], new: tuple[int, int]
) -> Float[Tensor, "new_rows d"]:
    """Resize a position table to another grid size by bicubic interpolation.

    Rows before the grid (class tokens) are kept. Grids are aligned at their edges: the centre of new cell i,
    of n, is at old cell (i + 1/2) old / n - 1/2. Each feature is a sum over the 4 x 4 nearest old cells, with
    Keys' cubic weights (a = -3/4); edge values are repeated beyond the edge. If the grids are equal, the
    table is returned unchanged.

    The paper (Dosovitskiy et al. 2021, section 3.2) interpolates in two dimensions, for fine-tuning at a
    higher resolution; its released code interpolates bilinearly with aligned corners. PyTorch ports use
    bicubic interpolation with aligned edges. There is no antialiasing.

    Args:
        table: one row per token, the grid row by row.
        old: rows and columns of the current grid.
        new: rows and columns of the new grid.

    Raises:
        ValueError: the table has fewer rows than the old grid has cells.
    """
    n_before_grid = len(table) - old[0] * old[1]
    if n_before_grid < 0:
        raise ValueError(f"position table must have at least {_by(old)} rows, got {len(table)}")
    if old == new:
        return table
    grid = table[n_before_grid:].unflatten(0, old).permute(2, 0, 1)[None]
    resized = functional.interpolate(grid.float(), size=new, mode="bicubic", align_corners=False)
    return torch.cat((table[:n_before_grid], resized[0].flatten(1).mT.to(table.dtype)))
