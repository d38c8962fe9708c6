"""View ``filters``: principal components of the patch projection of an image model."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import RequestError
from heedful.explain.patches import patch_filters, tiled
from heedful.explain.view import Explanation
from heedful.explain.views.shared import embeddings_of, rounded_all
from heedful.nn.patches import PatchEmbedding
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

DIGITS = 4
"""Decimal places of a pixel."""

COLUMNS = 7
"""Tiles per row."""

WIDE = 64
"""Minimum side of a tile on the page, in pixels."""

TITLE = "Principal components of the patch filters"


def has(run: "Run") -> bool:
    """Whether the model projects patches of grey or RGB pixels."""
    found = _embedding(run)
    return found is not None and _channels(found) in (1, 3)


def _embedding(run: "Run") -> PatchEmbedding | None:
    parts = embeddings_of(run.model).values()
    return next((part for part in parts if isinstance(part, PatchEmbedding)), None)


def _channels(embedding: PatchEmbedding) -> int:
    return embedding.patches.projection.weight[0].numel() // embedding.patches.patch**2


def compute(run: "Run", prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return the first principal components (`heedful.explain.patches.patch_filters`).

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


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return the variance explained by the components."""
    shares, patch = values["shares"], values["patch"]
    summary = (
        f"{values['filters']} filters of {patch} x {patch} pixels: {len(shares)} principal components "
        f"explain {sum(shares):.0%} of the variance (images: --out FILE.html, .svg or .png)"
    )
    return [summary, "  " + " ".join(f"{share:.1%}" for share in shares[:10])]


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return the tiles as one image, in descending order of variance."""
    if not values["tiles"]:
        return []
    from PIL import Image

    joined, shares = tiled(values["tiles"], COLUMNS), values["shares"]
    shown = np.concatenate([np.nan_to_num(joined), (~np.isnan(joined[..., :1])).astype(float)], axis=2)
    content = BytesIO()
    Image.fromarray(np.rint(shown * 255).astype(np.uint8)).save(content, "png")
    return [
        {
            "title": TITLE,
            "kind": "image",
            "image": f"data:image/png;base64,{b64encode(content.getvalue()).decode('ascii')}",
            "text": f"{len(shares)} components, which explain {sum(shares):.0%} of the variance",
            "width": joined.shape[1] * max(8, -(-WIDE // values["patch"])),
        }
    ]


def figure(explanation: Explanation, values: JsonMapping) -> "Figure":
    """Draw the tiles in descending order of variance."""
    from heedful.explain.drawings import filter_tiles

    if not values["tiles"]:
        raise RequestError("the patch filters are all equal, so there are no components to draw")
    shares = values["shares"]
    return filter_tiles(values["tiles"], COLUMNS, f"{TITLE}: {sum(shares):.0%} of the variance")
