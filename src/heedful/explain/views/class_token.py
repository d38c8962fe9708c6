"""View ``class-token``: attention of the class token of an image, by layer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import on_grid
from heedful.explain.drawings import Drawing, PatchPanel, PatchValues
from heedful.explain.views.shared import rounded_all
from heedful.nn.patches import PatchEmbedding
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import INPUT, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

TITLE = "Attention of the class token, mean of heads"


def supports(run: LoadedRun) -> bool:
    """Whether the model has attention, and a class token before the patches."""
    embedding = getattr(run.model, "embedding", None)
    has_token = isinstance(embedding, PatchEmbedding) and embedding.class_token is not None
    return has_token and bool(find_sites(run.model))


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the attention of the class token, mean over the selected heads.

    Returns:
        ``side`` (name of the axis), and ``layers``: each with ``layer`` from 0 and ``weights``,
        ``[rows][columns]`` of patches; their sum is 1 minus the weight of the class token on itself.

    Raises:
        RequestError: no attention was selected.
    """
    if not explanations[0].maps:
        raise RequestError("view class-token needs attention; select some, or remove the selection")
    axis = explanations[0].axes[INPUT]
    rows = {each.layer: each.weights.mean(axis=0, dtype=np.float64)[0] for each in explanations[0].maps}
    layers = [{"layer": layer, "weights": rounded_all(on_grid(row, axis))} for layer, row in rows.items()]
    return {"side": INPUT, "layers": layers}


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a heat map over the image for each layer."""
    axis = explanation.axes[values["side"]]
    panels = []
    for layer in values["layers"]:
        weights = np.asarray(layer["weights"], dtype=float)
        label = f"layer {layer['layer'] + 1}; {axis.tokens[0]} {max(0.0, 1 - weights.sum()):.2f}"
        panels.append(PatchPanel(label, weights))
    return [PatchValues(TITLE, values["side"], panels, among=len(axis.tokens))]
