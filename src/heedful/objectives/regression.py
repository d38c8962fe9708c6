"""A number for a whole sequence: loss = sum_b (w · pooled_b + w_0 - z_b)^2, with standardised z."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from heedful.objectives.terms import Supervised, Term

VALUE = "value"


class SquaredError:
    """Every sequence has one number, ``batch.values``. Term: ``value``."""

    def counts(self, batch: Supervised) -> dict[str, int]:
        """It runs over the sequences."""
        return {VALUE: batch.inputs.layout.n_sequences}

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["pooled"]``, then ``heads["value"]``, and compare."""
        found, wanted = values(hidden, heads, batch.inputs.layout), batch.values
        assert wanted is not None
        return [Term(VALUE, (found - wanted).square().sum(), len(found))]


def values(hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Any) -> Float[Tensor, " B"]:
    """What pooling and head make of the hidden states, in fp32 and in units of the deviation."""
    found: Tensor = heads[VALUE](heads["pooled"](hidden, layout))
    return found.float().squeeze(-1)
