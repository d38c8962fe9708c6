"""View ``mask``: the predicted mask of an image, class by class."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from heedful.explain.drawings import Drawing, PatchPanel, PatchValues, Table
from heedful.explain.views.shared import rounded
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


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return the pixels of each class, beside the image; in the terminal their share of all pixels."""
    classes = np.asarray(values["classes"])
    panels = [
        PatchPanel(
            f"{label} {100 * share:.1f} %",
            (classes == values["labels"].index(label)).astype(float),
            is_of_patches=False,
        )
        for label, share in values["shares"].items()
    ]
    rows = [[label, f"{share:.1%}"] for label, share in values["shares"].items()]
    return [
        PatchValues(TITLE, values["side"], panels, media={"page", "image"}),
        Table(TITLE, ["class", "share"], rows, media={"terminal"}),
    ]
