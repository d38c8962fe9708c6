"""What validations and scores of several tasks do: terms of the loss over batches, and what was answered."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from heedful.data.batch import Batch
from heedful.data.plan import Lengths, in_order
from heedful.data.report import Tally
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.recipes.schema import Recipe
from heedful.tasks.prediction import Prediction
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
        self.batches = in_order(make.lengths, budget)

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        """See `heedful.training.loop.Validate`."""
        found = means(self.step, (self.make(samples.tolist(), 0) for samples in self.batches))
        return {metric: found[term] for metric, term in self.measures.items()}


@dataclass(frozen=True)
class Answered:
    """The rows of a data set whose inputs could be read, and their predictions.

    Args:
        rows: of those that can be scored.
        predictions: of each.
        left_out: those that could not be read.
    """

    rows: list[LocatedRow[Row]]
    predictions: list[Prediction]
    left_out: Tally

    @property
    def counted(self) -> dict[str, int]:
        """For the counts of scores."""
        return {"unreadable": self.left_out.count} if self.left_out.count else {}

    @property
    def notes(self) -> list[str]:
        """What is to be said of those that were left out."""
        return [self.left_out.line("dropped", "unreadable")] if self.left_out.count else []


def answered(
    split: str, rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction], *, drop: bool
) -> Answered:
    """What can be scored of a data set.

    Args:
        split: what messages call the data set.
        rows: all that were to be scored.
        predictions: of each.
        drop: leave out what cannot be read.

    Raises:
        DataError: an input cannot be read and is not to be left out, or none can be read.
    """
    errors = [p.error for p in predictions if p.error]
    if errors and (not drop or len(errors) == len(rows)):
        raise DataError(f"{split}: {errors[0]}")
    found = Answered([], [], Tally())
    for row, prediction in zip(rows, predictions, strict=True):
        if prediction.error:
            found.left_out.add(row.where)
        else:
            found.rows.append(row)
            found.predictions.append(prediction)
    return found


def cut_notes(rows: Sequence[LocatedRow[Row]], predictions: Sequence[Prediction]) -> list[str]:
    """How many inputs of a data set were not read whole, and the first of them; nothing if all were."""
    cut = Tally()
    for row, prediction in zip(rows, predictions, strict=True):
        if prediction.cut:
            cut.add(row.where)
    return [cut.line("truncated", "longer than the model reads")] if cut.count else []


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
    if empty := [name for name in sums if not counts[name]]:
        raise DataError(f"validation: there is nothing that the loss {empty[0]!r} could be taken of")
    return {name: total / counts[name] for name, total in sums.items()}
