"""Validation by the loss: means of its terms over the validation data."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from heedful.data.batch import Batch
from heedful.data.plan import Lengths
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


def perplexity(nll: float) -> float:
    """Return the perplexity of a mean negative log-likelihood in nats, or e^700 if it is greater."""
    return math.exp(min(nll, 700.0))
