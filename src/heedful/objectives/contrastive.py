"""Contrastive learning: a text is to be most similar to its positive, among all texts of the batch.

    loss_i = - log ( exp(cos(h_i, p_i) / tau) / sum over c of exp(cos(h_i, c) / tau) )

with h_i the vector of text i, p_i that of its positive, and c the candidates: the positives of all examples
of the batch (in-batch negatives) and, if there are any, their hard negatives; tau is the temperature.

Sources: van den Oord et al. 2018 (InfoNCE), equation 4; Gao et al. 2021 (SimCSE), equation 1 for pairs, 4 if
the positive is the same text with another dropout mask, 5 with hard negatives. The symmetric form, the mean
of both directions, is that of Radford et al. 2021 (CLIP), figure 3. Deviation: a candidate is not a negative
of text i if it is equal to text i or its positive, or the positive of an equal text.

The loss of an example depends on the other examples of its micro-batch, so it is not a sum over examples.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.nn.layout import Layout
from heedful.objectives.terms import Term

CONTRAST = "contrast"


@dataclass(frozen=True)
class InfoNCE:
    """InfoNCE with cosine similarity and in-batch negatives.

    The sequences of the batch are the first texts of all examples, then the positives of all, then the hard
    negatives of all, if there are any; ``batch.text_ids`` tells which texts are equal. Terms: ``contrast``
    (the loss), and ``correct``: how often the positive is the most similar candidate. Both run over examples.

    Args:
        temperature: tau; more than 0.
        symmetric: whether positives are also contrasted with all first texts; the loss is then the mean of
            both directions.
    """

    couples_batch: ClassVar[bool] = True

    temperature: float = 0.05
    symmetric: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be more than 0, got {self.temperature}")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the count of both terms: the number of examples."""
        assert batch.text_ids is not None
        return dict.fromkeys((CONTRAST, "correct"), len(batch.text_ids))

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["pooled"]``, and compute the terms in fp32."""
        assert batch.text_ids is not None
        n = len(batch.text_ids)
        if n == 0:
            zero = hidden.sum()
            return [Term(CONTRAST, zero, 0), Term("correct", zero.detach(), 0, weight=0.0)]
        vectors, ids = unit_vectors(hidden, heads, batch.inputs.layout), batch.text_ids.T.reshape(-1)
        logits = self._logits(vectors[:n], vectors[n:], ids[:n], ids[n:])
        targets = torch.arange(n, device=logits.device)
        loss = functional.cross_entropy(logits, targets, reduction="sum")
        if self.symmetric:
            reverse = self._logits(vectors[n : 2 * n], vectors[:n], ids[n : 2 * n], ids[:n])
            loss = (loss + functional.cross_entropy(reverse, targets, reduction="sum")) / 2
        correct = (logits.detach().argmax(1) == targets).sum().float()
        return [Term(CONTRAST, loss, n), Term("correct", correct, n, weight=0.0)]

    def _logits(
        self,
        queries: Float[Tensor, "n d"],
        candidates: Float[Tensor, "m d"],
        query_ids: Int[Tensor, " n"],
        candidate_ids: Int[Tensor, " m"],
    ) -> Float[Tensor, "n m"]:
        """Return similarities over the temperature; those of no negatives are minus infinity."""
        logits = queries @ candidates.T / self.temperature
        return logits.masked_fill(false_negatives(query_ids, candidate_ids), float("-inf"))


def false_negatives(query_ids: Int[Tensor, " n"], candidate_ids: Int[Tensor, " m"]) -> Bool[Tensor, "n m"]:
    """Return which candidates are not negatives of a query, since they are equal to it or to its positive.

    Positives of equal queries are not negatives either.

    Args:
        query_ids: numbers of the queries, equal for equal texts.
        candidate_ids: those of the candidates; the first n are the positives of the queries, in order, which
            are never marked for their own query.
    """
    n = len(query_ids)
    queries, positives = query_ids[:, None], candidate_ids[:n, None]
    marked = (candidate_ids == queries) | (candidate_ids == positives)
    marked[:, :n] |= query_ids == queries
    marked[:, :n].fill_diagonal_(False)
    return marked


def unit_vectors(hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Layout) -> Float[Tensor, "B d"]:
    """Apply the pooling; return vectors of length 1 in fp32, whose products are cosine similarities."""
    return functional.normalize(heads["pooled"](hidden, layout).float(), dim=-1)
