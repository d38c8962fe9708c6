"""View ``filters``: principal components of the patch projection of an image model."""

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from heedful.explain.drawing.matrix import Numbers, mosaic
from heedful.explain.drawings import Drawing, Picture
from heedful.explain.views.shared import embeddings_of, rounded_all
from heedful.nn.patches import PatchEmbedding
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

MAX_COMPONENTS = 28
"""Maximum number of components; there are at most one fewer than filters."""

DIGITS = 4
"""Decimal places of a pixel."""

COLUMNS = 7
"""Tiles per row."""

MIN_TILE_SIDE = 64
"""Minimum side of a tile on the page, in pixels."""

LISTED = 10
"""Maximum number of components whose variance is listed."""

TITLE = "Principal components of the patch filters"


def supports(run: LoadedRun) -> bool:
    """Whether the model projects patches of grey or RGB pixels."""
    embedding = _embedding(run)
    if embedding is None:
        return False
    return embedding.patches.projection.weight[0].numel() // embedding.patches.patch**2 in (1, 3)


def _embedding(run: LoadedRun) -> PatchEmbedding | None:
    modules = embeddings_of(run.model).values()
    return next((module for module in modules if isinstance(module, PatchEmbedding)), None)


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the first principal components (`patch_filters`).

    Returns:
        ``patch``, the side of a patch in pixels; ``filters``, the number of filters; ``shares`` of the
        variance explained by the components; and ``tiles``, ``[n][rows][columns][channels]`` from 0 to 1.
    """
    embedding = _embedding(run)
    assert embedding is not None
    patches = embedding.patches
    weight, patch = patches.projection.weight.detach().float().cpu().numpy(), patches.patch
    tiles, shares = patch_filters(weight, patch)
    return {
        "patch": patch,
        "filters": len(weight),
        "shares": rounded_all(shares),
        "tiles": rounded_all(tiles, DIGITS),
    }


def patch_filters(weight: ArrayLike, patch: int, count: int = MAX_COMPONENTS) -> tuple[Numbers, Numbers]:
    """Return the principal components of the patch projection (Dosovitskiy et al. 2021, figure 7, left).

    The components v_1, v_2, ... are the right singular vectors of the d filters (vectors of C P² values),
    after subtracting their mean. The sign of a component is arbitrary; it is chosen so that the entry with
    the largest magnitude is positive. The tile of a component is ``1/2 + v / (2 max |v|)``, so that 0 is
    grey.

    Args:
        weight: ``[d, C P²]``, each filter by channel, then by row; or ``[d, C, P, P]``.
        patch: P.
        count: maximum number of components.

    Returns:
        Tiles ``[count, P, P, C]`` with values from 0 to 1, and the share of the variance that each explains.
    """
    filters = np.asarray(weight, dtype=float)
    filters = filters.reshape(len(filters), -1)
    _, strengths, components = np.linalg.svd(filters - filters.mean(axis=0), full_matrices=False)
    is_nonzero = strengths > strengths.max(initial=0) * max(filters.shape) * np.finfo(float).eps
    components = components[is_nonzero][:count]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    channels = filters.shape[1] // patch**2
    patches = (0.5 + components / (2 * largest)).reshape(len(components), channels, patch, patch)
    shares = strengths[is_nonzero] ** 2 / (strengths**2).sum() if is_nonzero.any() else strengths[is_nonzero]
    return patches.transpose(0, 2, 3, 1), shares[:count]


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return the tiles as one image, in descending order of variance; none if all filters are equal."""
    if not values["tiles"]:
        return []
    from PIL import Image

    joined, shares, patch = arrange_tiles(values["tiles"]), values["shares"], values["patch"]
    pixels = np.concatenate([np.nan_to_num(joined), (~np.isnan(joined[..., :1])).astype(float)], axis=2)
    content = BytesIO()
    Image.fromarray(np.rint(pixels * 255).astype(np.uint8)).save(content, "png")
    text = (
        f"{values['filters']} filters of {patch} x {patch} pixels: {len(shares)} principal components "
        f"explain {sum(shares):.0%} of the variance"
    )
    note = f"Variance of the first components: {', '.join(f'{share:.1%}' for share in shares[:LISTED])}"
    width = joined.shape[1] * max(8, -(-MIN_TILE_SIDE // patch))
    return [Picture(TITLE, content.getvalue(), text, width, note=note)]


def arrange_tiles(tiles: ArrayLike) -> Numbers:
    """Arrange tiles ``[n, P, P, C]`` in rows, left to right, with NaN between them and in empty cells."""
    array = np.asarray(tiles, dtype=float)
    columns = min(COLUMNS, len(array))
    rows = -(-len(array) // columns)
    cells = np.full((rows * columns, *array.shape[1:]), np.nan)
    cells[: len(array)] = array
    return mosaic(cells.reshape(rows, columns, *array.shape[1:]))
