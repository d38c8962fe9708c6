"""A loss is a list of terms; each is a sum over its valid items and has its own denominator."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn.layout import Tokens
from heedful.nn.patches import Pictures


@runtime_checkable
class Spanned(Protocol):
    """What an objective reads of hidden spans; see `heedful.data.batch.Spans`."""

    @property
    def before(self) -> Int[Tensor, " R"]:
        """The place before each wanted token's span."""
        ...

    @property
    def after(self) -> Int[Tensor, " R"]:
        """The place after it."""
        ...

    @property
    def within(self) -> Int[Tensor, " R"]:
        """The token's number in it."""
        ...


@runtime_checkable
class Linked(Protocol):
    """What an objective reads of links between target and source; see `heedful.data.batch.TokenLinks`."""

    @property
    def sequence(self) -> Int[Tensor, " N"]:
        """Of each link, the number of its pair in the batch."""
        ...

    @property
    def query(self) -> Int[Tensor, " N"]:
        """The place in its sequence where the target token is foretold."""
        ...

    @property
    def key(self) -> Int[Tensor, " N"]:
        """The place of the source token in its sequence."""
        ...

    @property
    def share(self) -> Float[Tensor, " N"]:
        """One over the number of links of the target token."""
        ...

    @property
    def n_tokens(self) -> int:
        """Target tokens with a link."""
        ...


@runtime_checkable
class Supervised(Protocol):
    """What an objective reads of a batch."""

    @property
    def inputs(self) -> Tokens | Pictures:
        """What the model read."""
        ...

    def picked(self, hidden: Float[Tensor, "T d"]) -> Float[Tensor, "R d"]:
        """The hidden states at which an answer is wanted."""
        ...

    @property
    def targets(self) -> Int[Tensor, " R"]:
        """The wanted ids, one for each hidden state that is picked."""
        ...

    @property
    def classes(self) -> Int[Tensor, " B"] | None:
        """The class of every sequence, where it has one."""
        ...

    @property
    def spans(self) -> Spanned | None:
        """Where the spans of wanted tokens lie, where they have some."""
        ...

    @property
    def values(self) -> Float[Tensor, " B"] | None:
        """The number of every sequence, where it has one."""
        ...

    @property
    def answers(self) -> Int[Tensor, "B 2"] | None:
        """Where in ``[T]`` the answer of every sequence begins and ends, where it has one."""
        ...

    @property
    def links(self) -> Linked | None:
        """Which source tokens target tokens stand for, where that is known."""
        ...


@dataclass(frozen=True)
class Term:
    """One part of a loss: ``weight * sum / (its count over the whole update)``.

    Args:
        name: also the key of its count, and its name in logs.
        sum: the summed loss over this batch's valid items, a scalar tensor.
        count: how many items ``sum`` runs over.
        weight: its share of the loss; 0 for a figure that is only reported.
    """

    name: str
    sum: Float[Tensor, ""]
    count: int
    weight: float = 1.0


@runtime_checkable
class Objective(Protocol):
    """Selects rows of the hidden states, applies a head to them in chunks, and returns terms."""

    def counts(self, batch: Supervised) -> dict[str, int]:
        """The count of every term, known before the forward pass."""
        ...

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """The terms of this batch."""
        ...


@runtime_checkable
class AuxiliaryLoss(Protocol):
    """Adds terms of what happens inside the model: it listens to taps while the model runs."""

    @property
    def taps(self) -> Sequence[str]:
        """Their names."""
        ...

    def counts(self, batch: Supervised) -> dict[str, int]:
        """The count of every term, known before the forward pass."""
        ...

    def attached(self, batch: Supervised) -> AbstractContextManager[Callable[[], list[Term]]]:
        """Listen while the model runs once on the batch; what is given then tells the terms."""
        ...


def total(terms: Iterable[Term], counts: Mapping[str, int]) -> Tensor:
    """The loss: each term's sum over its count in the whole update, weighted."""
    parts = [t.weight * t.sum / max(counts[t.name], 1) for t in terms if t.weight]
    return sum(parts[1:], parts[0])
