"""What validations of all tasks do: the terms of the loss over batches that fit in memory."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from torch import nn

from heedful.data.batch import Batch
from heedful.data.plan import Lengths, plan
from heedful.runs.recipe import Recipe
from heedful.training import distribution
from heedful.training.step import Step


def micro_batch(recipe: Recipe) -> int:
    """The tokens of a micro-batch of training: so many fit in memory."""
    n_parts = distribution.world() * recipe.training.accumulate
    return max(1, recipe.training.tokens_per_update // n_parts)


class Batches(Protocol):
    """Batches of what was encoded."""

    @property
    def lengths(self) -> Lengths:
        """``[N]``: tokens of each sample."""
        ...

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """The batch of some samples."""
        ...


class Validator:
    """Means of some terms of the loss over the validation data.

    Args:
        step: with the model.
        make: the batches.
        budget: tokens of each.
        measures: for each metric, the name of its term.
    """

    def __init__(self, step: Step, make: Batches, budget: int, measures: Mapping[str, str]) -> None:
        self.step, self.make, self.measures = step, make, measures
        self.batches = plan(make.lengths, tokens_per_update=budget, seed=0, epoch=0, shuffle=False)

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        """See `heedful.training.loop.Validate`."""
        found = means(self.step, (self.make(samples.tolist(), 0) for samples in self.batches))
        return {metric: found[term] for metric, term in self.measures.items()}


def means(step: Step, batches: Iterable[Batch]) -> dict[str, float]:
    """Each term of the loss by its name: its sum over all batches, over its count."""
    device = next(step.parameters()).device
    sums: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for batch in batches:
        there = batch.to(device)
        for term in step(there, step.counts(there))[1]:
            sums[term.name] += term.sum.item()
            counts[term.name] += term.count
    return {name: total / counts[name] for name, total in sums.items()}
