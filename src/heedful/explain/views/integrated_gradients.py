"""View ``integrated-gradients``: the gradient of the answer along a path from a baseline to the input."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.explain.attribution.integrated_gradients import integrated_gradients
from heedful.explain.attribution.measure import Measured
from heedful.explain.drawings import Drawing
from heedful.explain.summary import probability_text
from heedful.explain.views.attributed import attribution_drawings, attribution_values
from heedful.explain.views.shared import EMBEDDINGS, rounded_all
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation


SIGNS = "positive: it supports the answer; negative: it speaks against it"


def supports(run: LoadedRun) -> bool:
    """Whether the model embeds its input or reads pixels."""
    return bool(run.task.columns.images) or any(hasattr(run.model, name) for name in EMBEDDINGS)


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return integrated gradients by word (`heedful.explain.attribution.integrated_gradients`).

    Returns:
        As of ``occlusion``; the number of ``steps``; and for each part of the answer, the value of the
        ``baseline``, which has the mean token in place of every word, and the ``gap``: the value minus that
        of the baseline, minus the sum of the scores, which would be 0 with infinitely many steps.

    Raises:
        RequestError: as of ``occlusion``; or the model has no token embedding.
    """
    measured = Measured.of(run.model, prepared)
    attribution = integrated_gradients(measured)
    values = attribution_values(run, measured, "integrated-gradients", attribution.scores)
    baseline, gap = (rounded_all(each.cpu().numpy()) for each in (attribution.baseline, attribution.gap))
    return {**values, "baseline": baseline, "steps": attribution.steps, "gap": gap}


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return bars by word, a matrix, or maps over an image."""
    largest = max(map(abs, values["gap"]))
    signs = "positive: it raises the number; negative: it lowers it" if values["unit"] == "number" else SIGNS
    note = (
        f"{signs}; {values['steps']} steps; completeness gap, by which the sum differs: at most {largest:.2g}"
    )
    if len(values["scores"]) == 1 and None not in values["values"]:
        note = f"{_sum(explanation, values)}; {note}"
    return attribution_drawings(explanation, values, "Integrated gradients: {}", note)


def _sum(explanation: "Explanation", values: JsonMapping) -> str:
    """Return what the scores sum to, and whether a text of mean words already gets the answer."""
    (value,), (baseline,), (scores,) = values["values"], values["baseline"], values["scores"]
    feature = "word" if explanation.axes[values["side"]].grid is None else "pixel"
    total = f"{sum(scores):+.2f} (these {feature}s)"
    text = f"{value:.2f} = {baseline:.2f} (the mean {feature} at every place) {total}"
    if values["unit"] == "log-odds" and baseline > 0:
        probability = probability_text(1 / (1 + math.exp(-baseline)))
        text += (
            f", which make the answer surer: with the mean {feature} at every place, it is the same, with "
            f"probability {probability}"
        )
        if "removal" in values:
            text += f"; what it is without {feature}s of this input is another question (table below)"
    return text
