"""Answers that are held back: those of empty inputs, and those less probable than a threshold.

| answer | is held back if |
|---|---|
| a label, or a span of a passage | its probability (`Prediction.confidence`) is less than the threshold |
| a tag | its own probability is; the other tags of the input stay |
| any | the input is empty |

In its place stands a text that the caller chooses, or no answer (``output`` is null in JSON). The notes say
why, and what the answer would have been. Evaluation holds no answers back: it reports how accurate those
above a threshold are (`heedful.tasks.metrics.calibration`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

from heedful.checks import check_probability
from heedful.errors import RequestError
from heedful.tasks.base import Task
from heedful.tasks.prediction import Prediction, Predictor, TaskInput

THRESHOLD = "threshold"


@dataclass(frozen=True)
class Abstaining:
    """A predictor that holds answers back.

    Args:
        predictor: the predictor.
        threshold: the least probability of an answer; None: any.
        otherwise: the text in place of an answer; None: none.
    """

    predictor: Predictor
    threshold: float | None = None
    otherwise: str | None = None

    @classmethod
    def of(
        cls, task: Task, predictor: Predictor, threshold: SupportsFloat | None, otherwise: str | None
    ) -> "Abstaining":
        """Return the predictor of a task that holds answers back.

        Raises:
            RequestError: its answers have no probability to compare with a threshold, or the threshold is not
                between 0 and 1, or not known (`heedful.tasks.metrics.accuracy_thresholds`).
        """
        if threshold is not None:
            if THRESHOLD not in task.info.options:
                kind = task.recipe.task.kind
                hint = "; set task.threshold of its recipe" if hasattr(task.recipe.task, THRESHOLD) else ""
                raise RequestError(
                    f"threshold: the answers of task {kind} have no probability to compare with it{hint}"
                )
            threshold = check_probability(THRESHOLD, threshold)
        return cls(predictor, None if threshold is None else float(threshold), otherwise)

    def predict(self, inputs: Sequence[TaskInput], *, first: int = 0, **arguments: Any) -> list[Prediction]:
        """See `heedful.tasks.prediction.Predictor`; further arguments are those of the predictor itself."""
        return [self.held_back(answer) for answer in self.predictor.predict(inputs, first=first, **arguments)]

    def held_back(self, answer: Prediction) -> Prediction:
        """Return an answer, or its replacement if it is held back."""
        if answer.error is not None:
            return answer
        if answer.is_empty:
            return answer.without_answer(self.otherwise)
        return answer if self.threshold is None else answer.above(self.threshold, self.otherwise)
