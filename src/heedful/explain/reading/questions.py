"""Classes for a prepared input: answer options, questions, and the model input."""

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
    """Options for the answer that is explained.

    Args:
        decoding: decoding settings that replace those of the recipe, or None.
        target: a given answer instead of a predicted one: a text for tasks that generate text, a label for
            classification; or None.
        alternative: index of the predicted answer; 0 is the best.
    """

    decoding: Any = None
    target: str | None = None
    alternative: int = 0


ITS_BEST = AnswerOptions()
"""The best predicted answer."""


@dataclass(frozen=True)
class Questions:
    """n questions that the model answers at positions of a side, each with C possible answers.

    Args:
        side: name of the side.
        places: the token of the side that each question is about; ``()`` if they are about the whole input.
        answers: the index of each answer, ``[n]``.
        logits: maps hidden states ``[T, d]`` to the logits of all questions in order, in chunks ``[m, C]``.
        name: maps (question i, answer index c) to the text shown for the answer.
        given: number of questions, from the first, whose answers were given (a prompt) instead of predicted.
        are_tokens: whether the answers are tokens of the side, or replace its mask tokens.
        numbers: maps hidden states to the answers ``[n]`` if they are numbers, which have no probability.
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
        """Texts shown for the answers."""
        return [self.name(i, answer) for i, answer in enumerate(self.answers.tolist())]

    def scores(self, hidden: Float[Tensor, "T d"]) -> Float[Tensor, " n"]:
        """Return the natural log-probability of each answer, or the values if they are numbers."""
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
    """An input in the form the model reads, the answer of the run, and the questions about it.

    Args:
        batch: one sequence, on the device of the model.
        sides: by name.
        answer: the prediction; without probabilities if it was given.
        questions: the questions that the answer responds to.
        is_given: whether the answer is the given target.
    """

    batch: Batch
    sides: Mapping[str, Axis]
    answer: Prediction
    questions: Questions
    is_given: bool = field(default=False)
