"""Loss terms: a loss is a list of terms, each a sum over its valid items with its own denominator."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn.layout import Tokens
from heedful.nn.patches import Images


@runtime_checkable
class Spanned(Protocol):
    """Masked spans as read by objectives; see `heedful.data.batch.Spans`."""

    @property
    def before(self) -> Int[Tensor, " R"]:
        """Index of the token before the span of each target."""
        ...

    @property
    def after(self) -> Int[Tensor, " R"]:
        """Index of the token after the span of each target."""
        ...

    @property
    def within(self) -> Int[Tensor, " R"]:
        """Index of each target in its span."""
        ...


@runtime_checkable
class Linked(Protocol):
    """Links between target and source as read by objectives; see `heedful.data.batch.TokenLinks`."""

    @property
    def sequence(self) -> Int[Tensor, " N"]:
        """Index of the pair of each link in the batch."""
        ...

    @property
    def query(self) -> Int[Tensor, " N"]:
        """Index in its sequence at which the target token is predicted."""
        ...

    @property
    def key(self) -> Int[Tensor, " N"]:
        """Index of the source token in its sequence."""
        ...

    @property
    def share(self) -> Float[Tensor, " N"]:
        """One over the number of links of the target token."""
        ...

    @property
    def n_tokens(self) -> int:
        """Number of target tokens with a link."""
        ...


@runtime_checkable
class Supervised(Protocol):
    """A batch as read by objectives."""

    @property
    def inputs(self) -> Tokens | Images:
        """Inputs of the model."""
        ...

    def picked(self, hidden: Float[Tensor, "T d"]) -> Float[Tensor, "R d"]:
        """Select the hidden states that have a target."""
        ...

    @property
    def targets(self) -> Int[Tensor, " R"]:
        """Target ids, one for each picked hidden state."""
        ...

    @property
    def classes(self) -> Int[Tensor, " B"] | None:
        """Class of every sequence, if any."""
        ...

    @property
    def spans(self) -> Spanned | None:
        """Spans of the target tokens, if any."""
        ...

    @property
    def values(self) -> Float[Tensor, " B"] | None:
        """Number of every sequence, if any."""
        ...

    @property
    def answers(self) -> Int[Tensor, "B 2"] | None:
        """Indices in ``[T]`` of the start and end of the answer of every sequence, if any."""
        ...

    @property
    def links(self) -> Linked | None:
        """Links between target and source tokens, if known."""
        ...


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
    """Selects rows of the hidden states, applies a head to them in chunks, and returns terms."""

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Return the count of every term, known before the forward pass."""
        ...

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Return the terms of this batch."""
        ...


@runtime_checkable
class AuxiliaryLoss(Protocol):
    """Adds loss terms computed from tap values inside the model."""

    @property
    def taps(self) -> Sequence[str]:
        """Names of the taps."""
        ...

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Return the count of every term, known before the forward pass."""
        ...

    def attached(self, batch: Supervised) -> AbstractContextManager[Callable[[], list[Term]]]:
        """Record the taps during one forward pass; yield a function that returns the terms."""
        ...


def total(terms: Iterable[Term], counts: Mapping[str, int]) -> Tensor:
    """Return the loss: the weighted sum of each term over its count in the whole update."""
    parts = [t.weight * t.sum / max(counts[t.name], 1) for t in terms if t.weight]
    return sum(parts[1:], parts[0])
