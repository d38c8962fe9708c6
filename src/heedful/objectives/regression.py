"""Regression: one number per sequence, loss = sum_b penalty(w · pooled_b + w_0 - z_b), with standardised z.

| penalty | of an error e | best constant prediction |
|---|---|---|
| squared | e² | the mean |
| absolute | abs e | the median |
| Huber | e² / 2 if abs e <= delta, else delta (abs e - delta / 2) | between the two |

Source: Huber 1964 (*Robust estimation of a location parameter*), where delta is k.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.nn.layout import Layout
from heedful.objectives.terms import Term

VALUE = "value"


@dataclass(frozen=True)
class Huber:
    """Huber penalty: quadratic near zero and linear beyond ``delta``, to limit the influence of outliers.

    Args:
        delta: in units of the standard deviation; more than 0.
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        if not self.delta > 0:
            raise ValueError(f"delta must be more than 0, got {self.delta}")

    def __call__(self, errors: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Return the penalty of each error."""
        return functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=self.delta)


@dataclass(frozen=True)
class NumberError:
    """Regression loss for sequences with one number each, ``batch.values``. Term: ``value``.

    Args:
        penalty: penalty of each error.
    """

    penalty: Callable[[Tensor], Tensor]

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the count of the term: the number of sequences."""
        return {VALUE: batch.inputs.layout.n_sequences}

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["pooled"]`` and ``heads["value"]``, and compute the term."""
        predicted, targets = values(hidden, heads, batch.inputs.layout), batch.values
        assert targets is not None
        return [Term(VALUE, self.penalty(predicted - targets).sum(), len(predicted))]


def values(hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Layout) -> Float[Tensor, " B"]:
    """Apply pooling and head to the hidden states; return values in fp32, in units of the deviation."""
    predicted: Tensor = heads[VALUE](heads["pooled"](hidden, layout))
    return predicted.float().squeeze(-1)
