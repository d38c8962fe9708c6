"""A number for a whole sequence: loss = sum_b penalty(w · pooled_b + w_0 - z_b), with standardised z.

| penalty | of an error e | the best answer where nothing is known of a text |
|---|---|---|
| squared | e² | the mean |
| absolute | abs e | the median |
| Huber's | e² / 2 where abs e <= delta, delta (abs e - delta / 2) beyond | between the two |

Source: Huber 1964 (*Robust estimation of a location parameter*), where delta is k.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.objectives.terms import Supervised, Term

VALUE = "value"

Penalty = Callable[[Tensor], Tensor]


class Huber:
    """Squared near zero, and straight from ``delta`` on, so that no number far off outweighs all others.

    Args:
        delta: in units of the deviation; more than 0.
    """

    def __init__(self, delta: float = 1.0) -> None:
        if not delta > 0:
            raise ValueError(f"delta must be more than 0, not {delta}")
        self.delta = delta

    def __call__(self, errors: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """The penalty of each error."""
        return functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=self.delta)


class NumberError:
    """Every sequence has one number, ``batch.values``. Term: ``value``.

    Args:
        penalty: of each error.
    """

    def __init__(self, penalty: Penalty) -> None:
        self.penalty = penalty

    def counts(self, batch: Supervised) -> dict[str, int]:
        """It runs over the sequences."""
        return {VALUE: batch.inputs.layout.n_sequences}

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["pooled"]``, then ``heads["value"]``, and compare."""
        found, wanted = values(hidden, heads, batch.inputs.layout), batch.values
        assert wanted is not None
        return [Term(VALUE, self.penalty(found - wanted).sum(), len(found))]


def values(hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Any) -> Float[Tensor, " B"]:
    """What pooling and head make of the hidden states, in fp32 and in units of the deviation."""
    found: Tensor = heads[VALUE](heads["pooled"](hidden, layout))
    return found.float().squeeze(-1)
