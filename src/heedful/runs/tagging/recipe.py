"""The recipe of a tagger."""

from typing import ClassVar

from heedful.runs.encoders.recipe import EncoderRecipe, WholeDataConfig
from heedful.tasks.registry import TaggingTask


class TaggingRecipe(EncoderRecipe):
    """A whole recipe."""

    task: TaggingTask
    data: WholeDataConfig

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures, over words."""
        return {"loss", "accuracy"}
