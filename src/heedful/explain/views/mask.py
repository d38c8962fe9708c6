"""View ``mask``: the predicted mask of an image, class by class."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from heedful.explain.drawing.matrix import Numbers
from heedful.explain.drawings import Drawing, PatchPanel, PatchValues
from heedful.explain.views.shared import Figure, rounded
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import INPUT, ModelInput
from heedful.tasks.segmentation.prediction import Segmentation
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

TITLE = "Predicted mask: the pixels of each class"


def supports(run: LoadedRun) -> bool:
    """Whether predictions are masks."""
    return run.task.info.predicts_images


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the predicted class of each pixel that the model reads.

    Returns:
        ``side`` (name of the axis); ``labels`` of all classes; ``classes``, ``[rows][columns]`` of pixels,
        the index of the label of each; and ``shares`` of the labels that occur, the largest first.
    """
    answer = prepared.answer
    assert isinstance(answer, Segmentation)
    return {
        "side": INPUT,
        "labels": list(answer.classes.labels),
        "classes": answer.indices.tolist(),
        "shares": {label: rounded(share) for label, share in answer.shares.items()},
    }


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
    """Return a line for each class that occurs: its share of the pixels."""
    shares = [f"  {share:7.1%}  {label}" for label, share in values["shares"].items()]
    return ["predicted mask: share of the pixels of each class", *shares]


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return the pixels of each class, beside the image."""
    panels = [PatchPanel(name, pixels, is_of_patches=False) for name, pixels in _panels(values)]
    return [PatchValues(TITLE, values["side"], panels)]


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
    """Draw the pixels of each class beside the image."""
    from heedful.explain.drawing.heat_map import attention_panels

    image = explanation.axes[values["side"]].image
    return attention_panels(list(_panels(values)), image, title=TITLE, note=f"answer: {explanation.text}")


def _panels(values: JsonMapping) -> Iterator[tuple[str, Numbers]]:
    """Yield each class that occurs, with its share, and a 1 for each of its pixels."""
    classes = np.asarray(values["classes"])
    for label, share in values["shares"].items():
        yield f"{label} {100 * share:.1f} %", (classes == values["labels"].index(label)).astype(float)
