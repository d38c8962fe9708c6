"""View ``class-token``: attention of the class token of an image, by layer."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import Numbers, on_grid
from heedful.explain.drawings import Drawing, PatchPanel, PatchValues
from heedful.explain.views.shared import Figure, rounded_all
from heedful.nn.patches import PatchEmbedding
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import INPUT, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

STRONGEST = 4
"""Number of patches per layer in the terminal."""

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


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
    """Return a line per layer: the patches with the largest weights, as row,column."""
    output = ["attention of the class token, mean of heads (row,column of patches)"]
    for name, weights in _layers(values):
        strongest = np.argsort(-weights, axis=None, kind="stable")[:STRONGEST]
        positions = [np.unravel_index(int(n), weights.shape) for n in strongest]
        patches = "   ".join(f"{r + 1},{c + 1} {weights[r, c]:.2f}" for r, c in positions)
        output.append(f"  {name:<9} {patches}   itself {max(0.0, 1 - weights.sum()):.2f}")
    return output


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a heat map over the image for each layer."""
    panels = [PatchPanel(name, weights) for name, weights in _layers(values)]
    among = len(explanation.axes[values["side"]].tokens)
    return [PatchValues(TITLE, values["side"], panels, among=among)]


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
    """Draw the heat maps of all layers side by side, on one scale."""
    from heedful.explain.drawing.heat_map import attention_panels

    axis, note = explanation.axes[values["side"]], f"answer: {explanation.text}"
    return attention_panels(list(_layers(values)), axis.image, among=len(axis.tokens), title=TITLE, note=note)


def _layers(values: JsonMapping) -> Iterator[tuple[str, Numbers]]:
    for layer in values["layers"]:
        yield f"layer {layer['layer'] + 1}", np.asarray(layer["weights"], dtype=float)
