"""The recipe of a tagger."""

from typing import ClassVar

from pydantic import Field

from heedful.objectives.registry import TAG, Losses
from heedful.runs import recipe
from heedful.runs.encoders.recipe import EncoderRecipe, WholeDataConfig
from heedful.tasks.registry import TaggingTask


class ObjectiveConfig(recipe.ObjectiveConfig):
    """What is minimised of the tag of a word; ``chunk`` is not used.

    Args:
        label_smoothing: of cross-entropy.
    """

    losses: ClassVar[Losses] = TAG

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class TaggingRecipe(EncoderRecipe):
    """A whole recipe."""

    task: TaggingTask
    data: WholeDataConfig
    objective: ObjectiveConfig = ObjectiveConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures, over words."""
        return {"loss", "accuracy"}
