"""Pictures to tokens: squares of P x P pixels, cut out, projected, and told their places.

    picture [C, H, W]  →  N = H W / P² squares of P² C numbers  →  tokens [N, d], row by row

Two parts project, and compute the same: `LinearPatches` cuts, then multiplies; `ConvolutionPatches` is a
convolution whose kernel and stride are P. The tokens of a batch are packed like those of texts, so that every
mixer, norm, head and loss serves pictures too.
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
class Pictures:
    """Pictures of one size: what a model of pictures reads, as one of texts reads `Tokens`.

    Args:
        pixels: the pictures.
        layout: of the tokens that the model makes of them: it says how many there are to a picture, and
            what reads the hidden states (poolings, objectives) finds it beside them.
    """

    pixels: Float[Tensor, "B C H W"]
    layout: Layout

    @classmethod
    def of(cls, pixels: Float[Tensor, "B C H W"], n_tokens: int) -> "Pictures":
        """Pictures of which each becomes ``n_tokens`` tokens (a configuration knows how many)."""
        return cls(pixels, Layout.of([n_tokens] * len(pixels), device=pixels.device))

    def select(self, pictures: Sequence[int]) -> "Pictures":
        """Some of them, in the order asked for."""
        return Pictures(self.pixels[list(pictures)], self.layout.select(pictures))

    def to(self, device: torch.device | str) -> "Pictures":
        """The same pictures on another device."""
        return Pictures(self.pixels.to(device, non_blocking=True), self.layout.to(device))


def grid_of(height: int, width: int, patch: int) -> tuple[int, int]:
    """Rows and columns of squares.

    Raises:
        ValueError: the squares do not fill the picture.
    """
    if height % patch or width % patch:
        raise ValueError(
            f"a picture of {height} x {width} pixels cannot be cut into squares of {patch} x {patch}: "
            f"{patch} must divide both sides; resize the picture or take another patch size"
        )
    return height // patch, width // patch


class LinearPatches(nn.Module):
    """``x_n = W vec(square_n) + b``: squares are cut out and multiplied by one matrix.

    W is d x C P²; a square is read channel by channel, each row by row, so W is the flattened kernel of
    `ConvolutionPatches`. C P² d + d parameters. Source: Dosovitskiy et al. 2021 (ViT), equation 1.

    W starts N(0, 1 / (C P²)) and b 0, as in the released code (but for its cutting the normal off).

    Args:
        channels: C.
        patch: P.
        d_model: d.
    """

    def __init__(self, channels: int, patch: int, d_model: int) -> None:
        super().__init__()
        self.patch = patch
        self.projection = nn.Linear(channels * patch**2, d_model)
        _initialise(self.projection)

    def forward(self, pixels: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N d"]:
        """Project all squares of all pictures."""
        grid_of(pixels.shape[2], pixels.shape[3], self.patch)
        squares = functional.unfold(pixels, self.patch, stride=self.patch)
        return self.projection(squares.mT)


class ConvolutionPatches(nn.Module):
    """A convolution with kernel and stride P: every square meets the same d filters, and none overlap.

    The kernel is W of `LinearPatches`, seen as d x C x P x P: either part takes the other's parameters.

    Source: Dosovitskiy et al. 2021, released code. Arguments, parameters and first values as `LinearPatches`.
    """

    def __init__(self, channels: int, patch: int, d_model: int) -> None:
        super().__init__()
        self.channels, self.patch = channels, patch
        self.projection = nn.Linear(channels * patch**2, d_model)
        _initialise(self.projection)

    def forward(self, pixels: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N d"]:
        """Project all squares of all pictures."""
        grid_of(pixels.shape[2], pixels.shape[3], self.patch)
        kernel = self.projection.weight.unflatten(1, (self.channels, self.patch, self.patch))
        found = functional.conv2d(pixels, kernel, self.projection.bias, stride=self.patch)
        return found.flatten(2).mT


def _initialise(projection: nn.Linear) -> None:
    nn.init.normal_(projection.weight, std=projection.in_features**-0.5)
    nn.init.zeros_(projection.bias)


class PatchEmbedding(nn.Module):
    """``z = Dropout(combine([class; x_1; …; x_N], PE))`` (Dosovitskiy et al. 2021, equation 1).

    Args:
        patches: makes tokens of pixels: `LinearPatches` or `ConvolutionPatches`.
        size: height and width of the pictures in pixels; places mean something in one grid alone.
        class_token: ``[1, d]``, put before the squares of each picture; or None.
        positions: combines the tokens with their positions, as of a `TokenEmbedding`.
        dropout: on the sum.
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
        self.output = Tap("the embedded squares, after the class token where there is one")
        self.n_tokens = rows * columns + (class_token is not None)

    @property
    def adds_constant(self) -> dict[str, range]:
        """The bias of the projection adds the same vector to all tokens, where none is a class token."""
        bias = self.patches.projection.bias
        return (
            {}
            if bias is None or self.class_token is not None
            else {"patches.projection.bias": range(len(bias))}
        )

    def forward(self, pictures: Pictures) -> Float[Tensor, "T d"]:
        """Embed pictures, as packed tokens in the layout of ``pictures``.

        Raises:
            ValueError: the pictures have another size than the model was made for, or the layout has
                another number of tokens.
        """
        layout, pixels = pictures.layout, pictures.pixels
        if pixels.shape[2:] != self.size:
            raise ValueError(
                f"pictures of {_by(pixels.shape[2:])} pixels in a model for {_by(self.size)}: resize the "
                "pictures, or make a model for theirs and resize its table of positions (resize_positions)"
            )
        if layout.lengths != (self.n_tokens,) * len(pixels):
            raise ValueError(f"each of the {len(pixels)} pictures becomes {self.n_tokens} tokens")
        x = self.patches(pixels.to(self.patches.projection.weight.dtype))
        if self.class_token is not None:
            x = torch.cat((self.class_token.expand(len(x), -1, -1), x), dim=1)
        return self.output(self.dropout(self.positions(x.flatten(0, 1), layout.positions, layout.end)))


def _by(size: Sequence[int]) -> str:
    return " x ".join(map(str, size))


def resize_positions(
    table: Float[Tensor, "rows d"], old: tuple[int, int], new: tuple[int, int]
) -> Float[Tensor, "new_rows d"]:
    """A table of positions for a grid of another size, by bicubic interpolation between the old places.

    Rows before those of the grid (of a class token) are kept. Grids are laid over each other edge to edge:
    the middle of new place i, of n, is old place (i + 1/2) old / n - 1/2. Each feature becomes a sum over the
    4 x 4 old places around it, with Keys' cubic weights (a = -3/4); beyond the edge, the edge goes on.
    Where the grids agree, so do the tables.

    The paper (Dosovitskiy et al. 2021, section 3.2) says to interpolate in two dimensions, for fine-tuning at
    a higher resolution; its released code does so bilinearly, corner to corner. Bicubic, edge to edge, is
    what ports to torch do. Nothing is smoothed before a grid is made smaller.

    Args:
        table: one row for each token, the grid's row by row.
        old: rows and columns of the table's grid.
        new: of the grid that is wanted.

    Raises:
        ValueError: the table has fewer rows than the old grid has places.
    """
    first = len(table) - old[0] * old[1]
    if first < 0:
        raise ValueError(f"a table of {len(table)} positions has no grid of {_by(old)} places")
    if old == new:
        return table
    grid = table[first:].unflatten(0, old).permute(2, 0, 1)[None]
    resized = functional.interpolate(grid.float(), size=new, mode="bicubic", align_corners=False)
    return torch.cat((table[:first], resized[0].flatten(1).mT.to(table.dtype)))
