"""The recipe of a regression."""

from pydantic import PositiveInt

from heedful.config import Config
from heedful.runs.encoders.recipe import WholeTextRecipe
from heedful.tasks.registry import RegressionTask


class ObjectiveConfig(Config):
    """Squared error of the standardised number.

    Args:
        chunk: what other objectives have too; not used.
    """

    chunk: PositiveInt = 1024


class RegressionRecipe(WholeTextRecipe):
    """A whole recipe."""

    task: RegressionTask
    objective: ObjectiveConfig = ObjectiveConfig()  # type: ignore[assignment]

    def metrics(self) -> set[str]:
        """What validation measures: the mean squared error, in units of the training data's variance."""
        return {"loss"}

    @property
    def pairs(self) -> bool:
        """Whether two texts have a number together."""
        return self.task.pairs
