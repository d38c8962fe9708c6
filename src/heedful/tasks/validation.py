"""Validation by the loss: means of its terms over the validation data."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from torch import nn

from heedful.data.batch import Batch
from heedful.data.plan import Lengths, in_order
from heedful.errors import DataError
from heedful.recipes.schema import Recipe
from heedful.training import distribution
from heedful.training.model_with_loss import ModelWithLoss


def micro_batch(recipe: Recipe) -> int:
    """The tokens of a micro-batch of training: this many fit in memory."""
    n_parts = distribution.world() * recipe.training.accumulate
    return max(1, recipe.training.tokens_per_update // n_parts)


class Batches(Protocol):
    """Batches of encoded rows."""

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
        module: with the model.
        make: the batches.
        budget: tokens of each batch.
        terms: for each metric, the name of its term.
    """

    def __init__(self, module: ModelWithLoss, make: Batches, budget: int, terms: Mapping[str, str]) -> None:
        self.module, self.make, self.terms = module, make, terms
        self.batches = in_order(make.lengths, budget)

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        """See `heedful.training.loop.Validate`."""
        found = means(self.module, (self.make(samples.tolist(), 0) for samples in self.batches))
        return {metric: found[term] for metric, term in self.terms.items()}


def means(module: ModelWithLoss, batches: Iterable[Batch]) -> dict[str, float]:
    """Return each term of the loss by its name: its sum over all batches, divided by its count."""
    device = next(module.parameters()).device
    sums: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for batch in batches:
        there = batch.to(device)
        for term in module(there, module.counts(there))[1]:
            sums[term.name] += term.sum.item()
            counts[term.name] += term.count
    if empty := [name for name in sums if not counts[name]]:
        raise DataError(f"validation: the loss term {empty[0]!r} has nothing to be computed from")
    return {name: total / counts[name] for name, total in sums.items()}
