"""View ``replacement``: by how much the answer falls if a word or patch is replaced by training data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.occlusion import DRAWS, occlusion
from heedful.explain.attribution.replacements import training_replacements
from heedful.explain.drawings import Drawing
from heedful.explain.views.attributed import attribution_drawings, attribution_values, signs_note
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation


def supports(run: LoadedRun) -> bool:
    """Whether words or patches can be replaced; the training data are only read by `compute`."""
    return True


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the effect of replacing each word (`heedful.explain.attribution.occlusion`).

    Each word is replaced by `DRAWS` words, drawn from the training data as often as they occur there, the
    same for all words; the score is the value minus the mean of the values then. A patch is replaced by the
    patch at its place in training images. In contrast to ``occlusion``, no other word changes its position.

    Returns:
        As of ``occlusion``, and the number of ``draws``.

    Raises:
        RequestError: as of ``occlusion``; or the training data cannot be read.
    """
    measured = Measured.of(run.model, prepared)
    scores = occlusion(measured, training_replacements(run, measured))
    return {**attribution_values(run, measured, "replacement", scores), "draws": DRAWS}


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return bars by word, a matrix, or maps over an image."""
    feature = "word" if explanation.axes[values["side"]].grid is None else "patch"
    signs = signs_note(values["unit"], feature)
    note = f"mean of {values['draws']} replacements from the training data; {signs}"
    return attribution_drawings(explanation, values, f"Fall of the {{}} if a {feature} is replaced", note)
