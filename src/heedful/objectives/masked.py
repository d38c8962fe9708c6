"""Masked language modelling: predict masked tokens from their hidden states or from the span boundary."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from heedful.objectives.cross_entropy import linear_cross_entropy
from heedful.objectives.terms import Objective, Supervised, Term


class MaskedToken:
    """Predict each masked token from its own hidden state (Devlin et al. 2019, section 3.1).

    Terms: ``token`` (the loss) and ``nll`` (reported only; the same value without smoothing).

    Args:
        chunk: number of tokens whose logits are computed at once.
    """

    def __init__(self, chunk: int = 1024) -> None:
        self.chunk = chunk

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Return the counts of both terms: the number of masked tokens."""
        return dict.fromkeys(("token", "nll"), len(batch.targets))

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["token"]`` to the masked rows and compute the terms."""
        head: Any = heads["token"]
        x = head.transform(batch.picked(hidden))
        loss, nll = linear_cross_entropy(x, head.out.weight, head.out.bias, batch.targets, chunk=self.chunk)
        n = len(batch.targets)
        return [Term("token", loss, n), Term("nll", nll, n, weight=0.0)]


class SpanBoundary:
    """Predict the tokens of a masked span from the tokens next to it (Joshi et al. 2020, section 3.2).

    Term: ``boundary``.

    Args:
        chunk: number of tokens whose logits are computed at once.
    """

    def __init__(self, chunk: int = 1024) -> None:
        self.chunk = chunk

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Return the count of the term: the number of masked tokens."""
        return {"boundary": len(batch.targets)}

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["boundary"]`` to the rows next to each span and compute the term."""
        head: Any = heads["boundary"]
        spans = batch.spans
        assert spans is not None
        x = head.transform(hidden[spans.before], hidden[spans.after], spans.within)
        loss, _ = linear_cross_entropy(x, head.out.weight, head.out.bias, batch.targets, chunk=self.chunk)
        return [Term("boundary", loss, len(batch.targets))]


class Several:
    """Combination of objectives: the loss is the sum of their terms, each over its own count.

    Args:
        objectives: objectives whose terms have different names.
    """

    def __init__(self, *objectives: Objective) -> None:
        self.objectives = objectives

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Return the counts of all objectives."""
        return {name: n for each in self.objectives for name, n in each.counts(batch).items()}

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Return the terms of all objectives."""
        return [term for each in self.objectives for term in each(hidden, heads, batch)]
