"""Segmentation: from the hidden states of image patches to class scores of every pixel.

    hidden [T, d]  →  patches [B, N, d]  →  decoder: [B, N, c², K]  →  grid [B, K, c·rows, c·columns]
                   →  bilinear interpolation  →  [B, H, W, K]

A decoder computes the scores of the K classes in c x c cells of each patch. With c = 1, a patch has one
vector of scores, and pixels are interpolated between the centres of patches; with c = the patch size, every
pixel has scores of its own.

Source: Strudel et al. 2021, "Segmenter: Transformer for semantic segmentation", section 3.
"""

from collections.abc import Sequence
from math import isqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.layout import Layout

STD = 0.02

INITIAL_SCALE = 10.0
"""Initial factor of the cosines of a `MaskTransformer`: a softmax of cosines alone is almost uniform."""


class LinearDecoder(nn.Module):
    """``s_n = W x_n + b``: scores of each class in each cell of patch n (Strudel et al. 2021, section 3.1).

    (d + 1) c² K parameters. The paper has c = 1. W is initialised to N(0, 0.02²), b to 0.

    Args:
        d_model: d.
        n_classes: K.
        cells: c, the number of cells along each side of a patch.
    """

    def __init__(self, d_model: int, n_classes: int, cells: int = 1) -> None:
        super().__init__()
        self.cells = cells
        self.layer = nn.Linear(d_model, cells**2 * n_classes)
        nn.init.normal_(self.layer.weight, std=STD)
        nn.init.zeros_(self.layer.bias)

    def forward(self, patches: Float[Tensor, "B N d"]) -> Float[Tensor, "B N cells K"]:
        """Compute the scores of the classes in the cells of each patch, cells row by row."""
        return self.layer(patches).unflatten(2, (self.cells**2, -1))


class MaskTransformer(nn.Module):
    """Class embeddings that read the patches, and are compared with them (Strudel et al. 2021, section 3.2).

        [z_1 … z_N, c_1 … c_K] = Norm(blocks([x_1 … x_N, e_1 … e_K]))
        s_nk = α cos(W_z z_n, W_c c_k)

    x are the patches, e learned class embeddings, α a learned scale. The released code normalises the scores
    of each patch over the classes (a layer norm) in place of α; of two classes, it would leave only the sign.

    Args:
        blocks: Transformer blocks, called on packed tokens and their layout.
        norm: the norm after the last block.
        d_model: d.
        n_classes: K.
    """

    def __init__(self, blocks: Sequence[nn.Module], norm: nn.Module, d_model: int, n_classes: int) -> None:
        super().__init__()
        self.classes = nn.Parameter(torch.empty(n_classes, d_model))
        self.blocks, self.norm = nn.ModuleList(blocks), norm
        self.patch_projection = nn.Linear(d_model, d_model, bias=False)
        self.class_projection = nn.Linear(d_model, d_model, bias=False)
        self.scale = nn.Parameter(torch.tensor(INITIAL_SCALE))
        nn.init.normal_(self.classes, std=STD)
        for layer in (self.patch_projection, self.class_projection):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, patches: Float[Tensor, "B N d"]) -> Float[Tensor, "B N cells K"]:
        """Compute the scores of the classes in each patch, which is one cell."""
        n_images, n_patches, _ = patches.shape
        n_tokens = n_patches + len(self.classes)
        classes = self.classes.to(patches.dtype).expand(n_images, -1, -1)
        x = torch.cat([patches, classes], dim=1).flatten(0, 1)
        layout = Layout.of([n_tokens] * n_images, device=patches.device)
        for block in self.blocks:
            x = block(x, layout)
        x = self.norm(x).unflatten(0, (n_images, n_tokens))
        z = functional.normalize(self.patch_projection(x[:, :n_patches]).float(), dim=-1)
        c = functional.normalize(self.class_projection(x[:, n_patches:]).float(), dim=-1)
        return (self.scale * (z @ c.mT)).unsqueeze(2)


class SegmentationHead(nn.Module):
    """Class scores of every pixel, from the hidden states of an image model.

    Args:
        decoder: maps patches to scores: `LinearDecoder` or `MaskTransformer`.
        grid: rows and columns of patches.
        size: height and width of the images in pixels.
        n_before: number of tokens before the patches (a class token), which are not read.
    """

    def __init__(
        self, decoder: nn.Module, grid: tuple[int, int], size: tuple[int, int], n_before: int = 0
    ) -> None:
        super().__init__()
        self.decoder, self.grid, self.size, self.n_before = decoder, grid, size, n_before

    def forward(self, hidden: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "B H W K"]:
        """Return the scores of all pixels in fp32, interpolated bilinearly if cells are not pixels."""
        cells = self._cells(hidden, layout)
        (rows, columns), side = self.grid, isqrt(cells.shape[2])
        n_images, n_classes = cells.shape[0], cells.shape[3]
        by_axis = cells.view(n_images, rows, columns, side, side, n_classes).permute(0, 5, 1, 3, 2, 4)
        scores = by_axis.reshape(n_images, n_classes, rows * side, columns * side)
        if scores.shape[2:] != self.size:
            scores = functional.interpolate(scores, self.size, mode="bilinear", align_corners=False)
        return scores.movedim(1, -1)

    def patch_scores(self, hidden: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "B N K"]:
        """Return the scores of each patch, before any interpolation: the mean of its cells."""
        return self._cells(hidden, layout).mean(2)

    def _cells(self, hidden: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "B N cells K"]:
        n_tokens = self.n_before + self.grid[0] * self.grid[1]
        if layout.lengths != (n_tokens,) * layout.n_sequences:
            raise ValueError(f"layout must have {n_tokens} tokens for each image")
        patches = hidden.view(layout.n_sequences, n_tokens, hidden.shape[1])[:, self.n_before :]
        scores: Tensor = self.decoder(patches)
        return scores.float()
