"""What the class token of an image looks at, layer by layer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.explain.attention_sites import points
from heedful.explain.patches import class_map
from heedful.explain.reading import ModelInput
from heedful.explain.view import INPUT, Explanation
from heedful.explain.views.shared import rounded_all
from heedful.nn.patches import PatchEmbedding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

STRONGEST = 4
"""Patches of a layer that the terminal names."""

TITLE = "What the class token looks at, mean of heads"


def has(run: "Run") -> bool:
    """Whether a class token stands before patches, and looks at them."""
    embedding = getattr(run.model, "embedding", None)
    return (
        isinstance(embedding, PatchEmbedding)
        and embedding.class_token is not None
        and bool(points(run.model))
    )


def compute(run: "Run", reading: ModelInput, seen: Sequence[Explanation]) -> dict[str, Any]:
    """The weights of the class token, mean of the heads that were asked for.

    Returns:
        ``side``, and ``layers``: each with ``layer`` from 1 and ``weights``, ``[rows][columns]`` of patches;
        what it gives to itself is missing from their sum.
    """
    side = seen[0].sides[INPUT]
    layers = [
        {
            "layer": each.layer + 1,
            "weights": rounded_all(class_map(each.weights.mean(axis=0, dtype=np.float64), side)),
        }
        for each in seen[0].maps
    ]
    return {"side": INPUT, "layers": layers}


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """A line for each layer: the patches that it looks at most, as row,column."""
    told = ["what the class token looks at, mean of heads (row,column of patches)"]
    for name, weights in _layers(values):
        strongest = np.argsort(-weights, axis=None, kind="stable")[:STRONGEST]
        places = [np.unravel_index(int(n), weights.shape) for n in strongest]
        patches = "   ".join(f"{r + 1},{c + 1} {weights[r, c]:.2f}" for r, c in places)
        told.append(f"  {name:<9} {patches}   itself {max(0.0, 1 - weights.sum()):.2f}")
    return told


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The image once for each layer."""
    images = [{"label": name, "values": weights.ravel().tolist()} for name, weights in _layers(values)]
    among = len(seen.sides[values["side"]].tokens)
    return [{"title": TITLE, "kind": "patches", "side": values["side"], "images": images, "among": among}]


def figure(seen: Explanation, values: Mapping[str, Any]) -> "Figure":
    """The same, side by side on one scale."""
    from heedful.explain.drawings import attention_panels

    side = seen.sides[values["side"]]
    return attention_panels(
        list(_layers(values)), side.image, among=len(side.tokens), title=TITLE, note=_answer(seen)
    )


def _answer(seen: Explanation) -> str:
    return f"answer: {seen.answer.get('text', '')}"


def _layers(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for each in values["layers"]:
        yield f"layer {each['layer']}", np.asarray(each["weights"], dtype=float)
