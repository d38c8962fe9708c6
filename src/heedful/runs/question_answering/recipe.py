"""The recipe of a run that answers questions."""

from typing import ClassVar, Literal

from pydantic import PositiveInt, model_validator

from heedful.config import Config
from heedful.objectives.registry import ANSWER, Losses
from heedful.recipes import schema as recipe
from heedful.runs.encoders.recipe import EncoderRecipe, WholeDataConfig
from heedful.tasks.answering import N_SPECIALS, Windows
from heedful.tasks.registry import QuestionAnsweringTask


class DataConfig(WholeDataConfig):
    """Questions and passages.

    Args:
        missing: what to do with a row of training or validation whose answer is not found in its passage, or
            is longer than a window of it: leave it out and count it, or stop.
    """

    missing: Literal["drop", "error"] = "drop"


class ObjectiveConfig(recipe.ObjectiveConfig):
    """What is minimised of where the answer begins and ends; ``chunk`` is not used."""

    losses: ClassVar[Losses] = ANSWER


class WindowsConfig(Config):
    """How long passages are read.

    Args:
        stride: tokens that a window begins after the one before; half of a window unless given.
        longest_question: tokens of a question that are read.
    """

    stride: PositiveInt | None = None
    longest_question: PositiveInt = 64


class AnsweringConfig(Config):
    """What can be an answer.

    Args:
        longest: the most tokens of an answer.
        threshold: how much more the score of the best answer must be than that of none, where there may be
            none; raise it to get fewer answers.
    """

    longest: PositiveInt = 30
    threshold: float = 0.0


class QuestionAnsweringRecipe(EncoderRecipe):
    """A whole recipe.

    Args:
        windows: how long passages are read.
        answering: what can be an answer.
    """

    task: QuestionAnsweringTask
    data: DataConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    windows: WindowsConfig = WindowsConfig()
    answering: AnsweringConfig = AnsweringConfig()

    rising_metrics: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    def metrics(self) -> set[str]:
        """What validation measures: accuracy is how often both ends are right, window by window."""
        return {"loss", "accuracy"}

    @property
    def pairs(self) -> bool:
        """A question and a passage are read together."""
        return True

    @property
    def cutting(self) -> Windows:
        """How questions and passages become sequences."""
        return Windows(self.model.max_length, self.windows.longest_question, self.windows.stride)

    @model_validator(mode="after")
    def _room_for_passages(self) -> "QuestionAnsweringRecipe":
        if self.model.max_length <= N_SPECIALS + self.windows.longest_question:
            raise ValueError(
                f"model.max_length={self.model.max_length} leaves no room for a passage beside a question of "
                f"{self.windows.longest_question} tokens: lower windows.longest_question"
            )
        return self
