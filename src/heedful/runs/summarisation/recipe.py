"""The recipe of a summariser: that of a translator, scored in another way."""

from typing import Literal

from heedful.config import Config
from heedful.runs.translation.recipe import TranslationRecipe
from heedful.tasks.registry import SummarisationTask


class EvaluationConfig(Config):
    """How ``evaluate`` counts.

    Args:
        rouge: whether ROUGE compares ``stems`` or ``words`` as they are.
    """

    rouge: Literal["stems", "words"] = "stems"


class SummarisationRecipe(TranslationRecipe):
    """A whole recipe."""

    task: SummarisationTask  # type: ignore[assignment]
    evaluation: EvaluationConfig = EvaluationConfig()  # type: ignore[assignment]
