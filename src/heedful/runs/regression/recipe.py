"""The recipe of a regression."""

from typing import ClassVar

from pydantic import PositiveFloat

from heedful.objectives.registry import NUMBER, Losses
from heedful.recipes import schema as recipe
from heedful.runs.encoders.recipe import WholeTextRecipe
from heedful.tasks.registry import RegressionTask


class ObjectiveConfig(recipe.ObjectiveConfig):
    """What is minimised of the number, which is standardised by the training data; ``chunk`` is not used.

    Args:
        loss: by its name in `heedful.objectives.registry`; there are ``squared-error``, ``absolute-error``
            and ``huber``.
        huber_delta: of huber: the error, in deviations of the training data, from which on it grows straight.
    """

    losses: ClassVar[Losses] = NUMBER

    loss: str = "squared-error"
    huber_delta: PositiveFloat = 1.0


class RegressionRecipe(WholeTextRecipe):
    """A whole recipe."""

    task: RegressionTask
    objective: ObjectiveConfig = ObjectiveConfig()

    def metrics(self) -> set[str]:
        """What validation measures: the mean loss of the standardised numbers."""
        return {"loss"}

    @property
    def pairs(self) -> bool:
        """Whether two texts have a number together."""
        return self.task.pairs
