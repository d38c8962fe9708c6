"""Constraints on outputs: the interface, and their states for the rows that a decoder continues.

A constraint is an automaton over tokens: a state for each hypothesis, and the tokens that are blocked in
a state. So what a hypothesis may become depends on its own tokens alone. Decoders do not know which
constraints exist: they ask `ConstrainedRows`, and do nothing at all if a request has no constraints.

Axes: N rows (hypotheses), V the vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

Blocked = Bool[np.ndarray, " V"]
"""Which tokens must not come next."""


class Constraint(ABC):
    """A condition on the tokens of an output. States are values: `advance` returns a new one.

    Attributes:
        name: for notes about outputs that do not hold it.
        n_goals: largest value of `progress`; 0: nothing has to be reached.
    """

    name: str
    n_goals: int = 0

    @abstractmethod
    def start(self) -> Any:
        """Return the state of an output without tokens."""

    @abstractmethod
    def advance(self, state: Any, token: int) -> Any:
        """Return the state after one more token, never the end token."""

    def is_met(self, state: Any) -> bool:
        """Return whether an output that ends in this state holds the constraint."""
        return True

    def block(self, state: Any, blocked: Blocked) -> None:
        """Set the tokens that must not come next; the end token is blocked elsewhere (`is_met`)."""
        return

    def adjust(self, logits: Float[Tensor, " V"], state: Any) -> None:
        """Change the logits of the next token in place, before they are normalised."""
        return

    @property
    def adjusts(self) -> bool:
        """Whether `adjust` does anything."""
        return type(self).adjust is not Constraint.adjust

    def progress(self, state: Any) -> int:
        """Return how much of the goal is reached, at most ``n_goals``."""
        return 0

    def wanted(self, state: Any) -> Iterable[int]:
        """Return the tokens that make progress, which a beam search always considers."""
        return ()


@dataclass(frozen=True)
class _Row:
    """The constraints of one hypothesis, and the state of each."""

    constraints: tuple[Constraint, ...]
    states: tuple[Any, ...]

    @classmethod
    def of(cls, constraints: Sequence[Constraint]) -> "_Row":
        return cls(tuple(constraints), tuple(constraint.start() for constraint in constraints))

    @property
    def pairs(self) -> Iterable[tuple[Constraint, Any]]:
        return zip(self.constraints, self.states, strict=True)

    @property
    def is_met(self) -> bool:
        return all(constraint.is_met(state) for constraint, state in self.pairs)

    @property
    def progress(self) -> int:
        # Of goals that are not reached, the nearest one alone. A token may begin several goals of which only
        # one can be continued; if all counted, the next token would be a step back.
        goals = [(constraint.progress(state), constraint.n_goals) for constraint, state in self.pairs]
        reached = sum(n_goals for n, n_goals in goals if n == n_goals)
        return reached + max((n for n, n_goals in goals if n < n_goals), default=0)

    def after(self, token: int) -> "_Row":
        return _Row(self.constraints, tuple(c.advance(state, token) for c, state in self.pairs))


class ConstrainedRows:
    """The states of the constraints of the hypotheses that are being continued, in the order of the rows.

    Args:
        constraints: of each sentence.
        end: the end token.
    """

    def __init__(self, constraints: Iterable[Sequence[Constraint]], end: int) -> None:
        self.end = end
        self._rows = [_Row.of(own) for own in constraints]
        self.has_goals = any(constraint.n_goals for row in self._rows for constraint in row.constraints)

    def restrict(self, logits: Float[Tensor, "N V"]) -> tuple[Float[Tensor, "N V"], Bool[Tensor, "N V"]]:
        """Return the logits, adjusted, and which tokens are blocked.

        Logits are changed in a copy, before they are normalised, so that the log-probabilities are those of
        the adjusted distribution. Blocked tokens must be masked after the normalisation.
        """
        blocked = np.zeros(tuple(logits.shape), dtype=bool)
        if any(constraint.adjusts for row in self._rows for constraint in row.constraints):
            logits = logits.clone()
        for n, row in enumerate(self._rows):
            for constraint, state in row.pairs:
                if constraint.adjusts:
                    constraint.adjust(logits[n], state)
                constraint.block(state, blocked[n])
            blocked[n, self.end] = not row.is_met
        return logits, torch.from_numpy(blocked).to(logits.device)

    def advance(self, rows: Sequence[int], tokens: Sequence[int]) -> None:
        """Continue with these rows, each followed by its token; the end token changes nothing."""
        pairs = ((self._rows[row], token) for row, token in zip(rows, tokens, strict=True))
        self._rows = [row if token == self.end else row.after(token) for row, token in pairs]

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with these rows as they are."""
        self._rows = [self._rows[row] for row in rows]

    def unmet(self, row: int) -> tuple[str, ...]:
        """Return the names of the constraints that a row does not hold if it is cut here."""
        return tuple(c.name for c, state in self._rows[row].pairs if not c.is_met(state))

    def blocking(self, row: int) -> tuple[str, ...]:
        """Return the names of the constraints of a row that no allowed token can continue.

        They are those that it does not hold, or all that may have blocked tokens.
        """
        names = tuple(c.name for c in self._rows[row].constraints if not c.adjusts)
        return self.unmet(row) or names

    def progress_after(self, row: int, token: int) -> int:
        """Return the progress of a row towards its goals after one more token."""
        own = self._rows[row]
        return own.progress if token == self.end else own.after(token).progress

    def wanted(self, row: int) -> list[int]:
        """Return the tokens that make progress."""
        return [token for c, state in self._rows[row].pairs for token in c.wanted(state)]
