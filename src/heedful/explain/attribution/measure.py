"""Measure how an answer changes with the input: the numbers that all attribution methods share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from heedful.explain.attribution.features import Answers, Features, answers_of, features_of
from heedful.explain.attribution.variants import Edit, make_variants, target_values
from heedful.models.base import Model
from heedful.tasks.inputs.texts import group_by_length
from heedful.tasks.model_input import ModelInput
from heedful.tasks.prediction import BATCH_TOKENS


@dataclass(frozen=True, eq=False)
class Measured:
    """An input whose answer is measured.

    Args:
        model: the model, in evaluation mode.
        prepared: the input and its answer.
        features: its words or patches.
        answers: the parts of the answer.
    """

    model: Model
    prepared: ModelInput
    features: Features
    answers: Answers

    @classmethod
    def of(cls, model: Model, prepared: ModelInput) -> "Measured":
        """Measure the answer of an input.

        Raises:
            RequestError: the input has no words besides the answer, or the answer is empty.
        """
        return cls(model, prepared, features_of(prepared), answers_of(prepared))

    @property
    def unit(self) -> str:
        """What is measured."""
        if self.prepared.targets.numbers is not None:
            return "number"
        return "log-odds" if self.is_of_classes else "log-probability"

    @property
    def is_of_classes(self) -> bool:
        """Whether the answers are classes, whose log-odds are measured.

        Tokens and positions are too many for their odds to be informative.
        """
        targets = self.prepared.targets
        return targets.numbers is None and not targets.are_tokens and not targets.are_positions

    @property
    def length(self) -> int:
        """The number of tokens that the model reads."""
        batch = self.prepared.batch
        sides = (batch.inputs, batch.source)
        return sum(side.layout.n_tokens for side in sides if side is not None)

    @torch.no_grad()
    def values(
        self, edits: Sequence[Edit], *, as_probability: bool = False, budget: int = BATCH_TOKENS
    ) -> Float[Tensor, "n answers"]:
        """Return what is measured of each answer, for each variant of the input; NaN if the answer is gone.

        Args:
            edits: what each variant changes.
            as_probability: return the log-probability of answers instead of log-odds; numbers are unchanged.
            budget: maximum number of tokens of a batch.
        """
        as_log_odds, found = self.is_of_classes and not as_probability, []
        targets, order = self.prepared.targets, list[int]()
        for group in group_by_length(dict(enumerate(map(self._length_of, edits))), budget):
            variants = make_variants(self.prepared, self.features, [edits[i] for i in group])
            found.append(target_values(self.model, targets, variants, as_log_odds=as_log_odds))
            order += group
        return self.answers.sums(torch.cat(found).double()[np.argsort(order)])

    @torch.no_grad()
    def label_probabilities(
        self, edits: Sequence[Edit], *, budget: int = BATCH_TOKENS
    ) -> Float[Tensor, "n classes"]:
        """Return the probability of every label, for each variant of an input with one label.

        Args:
            edits: what each variant changes.
            budget: maximum number of tokens of a batch.
        """
        found, order = [], list[int]()
        for group in group_by_length(dict(enumerate(map(self._length_of, edits))), budget):
            batch = make_variants(self.prepared, self.features, [edits[i] for i in group]).batch
            hidden = self.model(batch.inputs, batch.source)
            found += [logits.double().softmax(-1) for logits in self.prepared.targets.logits(hidden, batch)]
            order += group
        return torch.cat(found)[np.argsort(order)]

    def _length_of(self, edit: Edit) -> int:
        if self.features.is_image:
            return self.length
        return self.length + sum(len(new) - len(self.features.tokens[i]) for i, new in edit.items())
