"""What validations of all tasks do: the terms of the loss over batches that fit in memory."""

from collections import Counter
from collections.abc import Iterable

from heedful.data.batch import Batch
from heedful.runs.recipe import Recipe
from heedful.training import distribution
from heedful.training.step import Step


def micro_batch(recipe: Recipe) -> int:
    """The tokens of a micro-batch of training: so many fit in memory."""
    n_parts = distribution.world() * recipe.training.accumulate
    return max(1, recipe.training.tokens_per_update // n_parts)


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
