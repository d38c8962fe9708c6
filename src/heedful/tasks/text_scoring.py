"""Scores of given texts: the log-probability of each token, by tasks whose models predict tokens."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from heedful.models.base import Model
from heedful.tasks.inputs.texts import join_notes, unknown_note
from heedful.tasks.prediction import Prediction, Progress, TaskInput
from heedful.tasks.task_info import Columns
from heedful.text.tokenizer import Tokenizer


class TextScoring(ABC):
    """A task that gives probabilities to the tokens of a text, or of a target given its source."""

    @property
    @abstractmethod
    def scored(self) -> Columns:
        """The parts of an input of `score`, as ``inputs``; the last one is the text that is scored."""

    @abstractmethod
    def score(self, model: Model, inputs: Sequence[TaskInput], progress: Progress) -> list[Prediction]:
        """Return each text with the log-probabilities of its tokens (`heedful.Run.score`).

        Args:
            model: a trained model in evaluation mode.
            inputs: texts, or tuples of a source and a text.
            progress: called with the number of inputs just scored.
        """


def scored_prediction(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], log_probs: Sequence[float], notes: Sequence[str] = ()
) -> Prediction:
    """Return a given text with its score, the sum of its log-probabilities.

    Args:
        tokenizer: of the text.
        text: the text.
        ids: its tokens.
        log_probs: of its tokens, and of the end token if the model predicts it.
        notes: what is unusual; by default, unknown words.
    """
    return Prediction(
        text,
        score=sum(log_probs),
        tokens=tokenizer.tokens(ids),
        log_probs=list(log_probs),
        notes=join_notes(notes or unknown_note(tokenizer, [text], [ids])),
        ids=tuple(ids),
    )
