"""The recipe of a classifier."""

from typing import ClassVar

from heedful.recipes.schema import ClassObjectiveConfig
from heedful.runs.encoders.recipe import WholeTextRecipe
from heedful.tasks.registry import ClassificationTask


class ClassificationRecipe(WholeTextRecipe):
    """A whole recipe."""

    task: ClassificationTask
    objective: ClassObjectiveConfig = ClassObjectiveConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures."""
        return {"loss", "accuracy"}

    @property
    def pairs(self) -> bool:
        """Whether two texts have a label together."""
        return self.task.pairs
