"""The recipe of a tagger."""

from typing import ClassVar

from pydantic import Field

from heedful.models.language_model import LanguageModelConfig
from heedful.objectives.registry import TAG, Losses
from heedful.recipes import schema as recipe
from heedful.runs.encoders.recipe import AnyReader, ReadingRecipe, WholeDataConfig
from heedful.tasks.registry import TaggingTask
from heedful.tasks.tagging import BY_FIRST, BY_LAST, WordTemplate


class ObjectiveConfig(recipe.ObjectiveConfig):
    """What is minimised of the tag of a word; ``chunk`` is not used.

    Args:
        label_smoothing: of cross-entropy.
    """

    losses: ClassVar[Losses] = TAG

    label_smoothing: float = Field(default=0.0, ge=0, lt=1)


class TaggingRecipe(ReadingRecipe):
    """A whole recipe; a language model tells the tag of a word before it has read what follows."""

    task: TaggingTask
    data: WholeDataConfig
    model: AnyReader
    objective: ObjectiveConfig = ObjectiveConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures, over words."""
        return {"loss", "accuracy"}

    @property
    def words(self) -> WordTemplate:
        """How words lie before the model."""
        return BY_LAST if isinstance(self.model, LanguageModelConfig) else BY_FIRST
