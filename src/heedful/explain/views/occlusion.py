"""View ``occlusion``: by how much the answer falls if a word or patch is left out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.explain.attribution.measure import Measured
from heedful.explain.attribution.occlusion import occlusion
from heedful.explain.drawings import Drawing
from heedful.explain.views.attributed import attribution_drawings, attribution_values, signs_note
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation


def supports(run: LoadedRun) -> bool:
    """Whether words or patches can be left out."""
    return True


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the effect of leaving out each word (`heedful.explain.attribution.occlusion`).

    A patch of an image is replaced by the mean of the training data.

    Returns:
        ``side`` (name of the axis); ``unit``, what is measured; ``words`` (of an image, patches); the parts
        of the answer as ``answers``, the words that they are ``about`` if they are tags, their ``values``;
        ``scores``, ``[answers][words]``: the value minus that without the word, None if the word takes the
        part of the answer with it; and ``removal``, if it can be judged
        (`heedful.explain.attribution.removal.removal`).

    Raises:
        RequestError: the input has no words besides the answer, or the answer is empty.
    """
    measured = Measured.of(run.model, prepared)
    return attribution_values(run, measured, "occlusion", occlusion(measured))


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return bars by word, a matrix, or maps over an image."""
    feature = "word" if explanation.axes[values["side"]].grid is None else "patch"
    title, note = f"Fall of the {{}} if a {feature} is left out", signs_note(values["unit"], feature)
    return attribution_drawings(explanation, values, title, note)
