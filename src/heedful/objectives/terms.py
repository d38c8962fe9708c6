"""Loss terms: a loss is a list of terms, each a sum over its valid items with its own denominator."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.errors import RequestError, type_name
from heedful.nn.taps import recording


@dataclass(frozen=True)
class Term:
    """One term of a loss: ``weight * sum / (its count over the whole update)``.

    Args:
        name: key of its count, and its name in logs.
        sum: the loss summed over the valid items of this batch, a scalar tensor.
        count: number of items in ``sum``.
        weight: weight in the loss; 0 for a value that is only reported.
    """

    name: str
    sum: Float[Tensor, ""]
    count: int
    weight: float = 1.0


@runtime_checkable
class Objective(Protocol):
    """A loss: selects rows of the hidden states, applies a head to them in chunks, and returns terms.

    One whose terms are not sums over the samples of a batch declares it (`couples_batch`).
    """

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the count of every term, known before the forward pass."""
        ...

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Return the terms of this batch."""
        ...


class AuxiliaryLoss(ABC):
    """Loss terms that are computed from values inside the model (taps), in addition to the objective.

    Args:
        model: the model.
        taps: names of the taps (`heedful.nn.taps`) that the terms read.
    """

    def __init__(self, model: nn.Module, taps: Sequence[str]) -> None:
        self.model, self.taps = model, taps

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the count of every term, known before the forward pass; empty: the batch has no terms."""

    @abstractmethod
    def terms(self, recorded: Mapping[str, list[Tensor]], batch: Batch) -> list[Term]:
        """Return the terms of a batch, from the values of the taps."""

    @contextmanager
    def attached(self, batch: Batch) -> Iterator[Callable[[], list[Term]]]:
        """Record the taps during one forward pass; yield a function that returns the terms."""
        if not self.counts(batch):
            yield list
            return
        with recording(self.model, self.taps) as recorded:
            yield lambda: self.terms(recorded, batch)


def checked_counts(objective: Objective, counts: object) -> dict[str, int]:
    """Return a copy of the counts of an objective after checking that they are a mapping.

    Raises:
        RequestError: they are not.
    """
    if not isinstance(counts, Mapping):
        raise RequestError(
            f"{type(objective).__name__}: expected a dict of counts, such as {{'token': 17}}, got "
            f"{type_name(counts)}"
        )
    return dict(counts)


def checked_terms(objective: Objective, terms: object) -> Sequence[Term]:
    """Return the terms of an objective after checking that they are terms, and one has a weight.

    Raises:
        RequestError: they are not.
    """
    name = type(objective).__name__
    if not isinstance(terms, list | tuple) or not all(isinstance(term, Term) for term in terms):
        raise RequestError(
            f"{name}: expected a list of heedful.objectives.terms.Term, got {type_name(terms)}"
        )
    if not any(term.weight for term in terms):
        raise RequestError(f"{name}: expected at least one term with a weight, got {type_name(terms)}")
    return terms


def check_names(objective: Objective, terms: Iterable[Term], counts: Mapping[str, int]) -> None:
    """Check that all terms have counts.

    Raises:
        RequestError: a term has none.
    """
    for term in terms:
        if term.name not in counts:
            raise RequestError(
                f"{type(objective).__name__}: counts must have the names of all terms; {term.name!r} is "
                f"missing, it has {', '.join(counts) or 'none'}"
            )


def total(terms: Iterable[Term], counts: Mapping[str, int]) -> Tensor:
    """Return the loss: the weighted sum of each term over its count in the whole update."""
    parts = [t.weight * t.sum / max(counts[t.name], 1) for t in terms if t.weight]
    return sum(parts[1:], parts[0])


def couples_batch(objective: Objective) -> bool:
    """Return whether the loss of a sample depends on the other samples of its micro-batch.

    Objectives declare this by a true attribute ``couples_batch``. Accumulated micro-batches, and several
    processes, then compute another loss than one large batch. The hidden states do not depend on the batch.
    """
    return bool(getattr(objective, "couples_batch", False))


class CombinedObjective:
    """Combination of objectives: the loss is the sum of their terms, each over its own count.

    Args:
        objectives: objectives whose terms have different names.
    """

    def __init__(self, *objectives: Objective) -> None:
        self.objectives = objectives

    @property
    def couples_batch(self) -> bool:
        """Whether any of the objectives does: see `couples_batch`."""
        return any(couples_batch(objective) for objective in self.objectives)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of all objectives."""
        return {name: n for objective in self.objectives for name, n in objective.counts(batch).items()}

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Return the terms of all objectives."""
        return [term for objective in self.objectives for term in objective(hidden, heads, batch)]
