"""What a reading is: the batch of the one input, the sides along the axes, and the questions answered."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.explain.view import Axis
from heedful.tasks.prediction import Prediction


@dataclass(frozen=True)
class AnswerOptions:
    """How an input is to be answered.

    Args:
        decoding: instead of the recipe's, or None.
        target: an answer that is given: a text where the run writes one, a label of a classifier; or None.
        alternative: which of the run's answers, the best being 0.
    """

    decoding: Any = None
    target: str | None = None
    alternative: int = 0


ITS_BEST = AnswerOptions()
"""The run's own best answer."""


@dataclass(frozen=True)
class Questions:
    """n questions that were answered at places of a side, each with C possible answers.

    Args:
        side: where they stand.
        places: the token of that side that each is about; ``()`` where they are about the whole input.
        answers: the number of each answer, ``[n]``.
        logits: hidden states ``[T, d]`` to logits of all questions in order, in pieces ``[m, C]``.
        name: how answer number c of question i is shown: ``name(i, c)``.
        given: so many of the first are about what was not answered, but given (a prompt).
        are_tokens: whether the answers are the tokens of the side, or stand in their place (gaps).
        numbers: hidden states to the answers ``[n]`` where they are numbers, which have no probability.
    """

    side: str
    places: tuple[int, ...]
    answers: Int[Tensor, " n"]
    logits: Callable[[Tensor], Iterator[Tensor]]
    name: Callable[[int, int], str]
    given: int = 0
    are_tokens: bool = False
    numbers: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def names(self) -> list[str]:
        """The answers, as they are shown."""
        return [self.name(i, answer) for i, answer in enumerate(self.answers.tolist())]

    def scores(self, hidden: Float[Tensor, "T d"]) -> Float[Tensor, " n"]:
        """The natural log-probability of each answer; of numbers, the numbers themselves."""
        if self.numbers is not None:
            return self.numbers(hidden)
        found, at = [], 0
        for logits in self.logits(hidden):
            wanted = self.answers[at : at + len(logits)].to(logits.device)
            found.append(logits.float().log_softmax(-1).gather(1, wanted[:, None])[:, 0])
            at += len(logits)
        return torch.cat(found)


@dataclass(frozen=True)
class ModelInput:
    """An input as a model reads it, what the run answered, and what is asked of the model about it.

    Args:
        batch: one sequence, on the model's device.
        sides: by their names.
        answer: of the run; where it was given, without probabilities.
        questions: what was answered.
        is_given: whether the answer is the target that was given.
    """

    batch: Batch
    sides: Mapping[str, Axis]
    answer: Prediction
    questions: Questions
    is_given: bool = field(default=False)
