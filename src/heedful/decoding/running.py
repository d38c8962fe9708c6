"""The hypotheses that a beam search has under way, and the continuations it chooses from.

The bookkeeping of a search lies on the CPU, in 64 bits where sums are concerned: it is small, and
the search must read it at every step anyway. Axes: A sentences still searched, W hypotheses of each,
t tokens written, C candidates, S source positions of which account is kept.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.probabilities import best
from heedful.errors import RequestError

NEVER = float("-inf")


class Candidates(NamedTuple):
    """One-token continuations of each sentence's hypotheses, best first."""

    sums: Float[Tensor, "A C"]
    """Log-probability of the whole."""
    rows: Int[Tensor, "A C"]
    """The hypothesis that is continued, 0 .. W-1."""
    ids: Int[Tensor, "A C"]
    log_probs: Float[Tensor, "A C"]
    """Of the token alone."""


def candidates_of(log_probs: Float[Tensor, "N V"], sums: Float[Tensor, "A W"], n: int) -> Candidates:
    """The best ``n`` of all continuations of a sentence (fewer where there are fewer), N = A * W.

    They are among the best ``n`` of each hypothesis, so only those are added up and sorted. Equals
    come in the order of hypotheses, then of tokens.
    """
    # Rounding can lift a log-probability a hair above 0, on which the bounds of the search rest.
    values, ids = (part.cpu().view(*sums.shape, -1) for part in best(log_probs, n))
    values = values.clamp(max=0.0)
    totals = (sums[:, :, None] + values.double()).flatten(1)
    order = totals.argsort(dim=1, descending=True, stable=True)[:, :n]
    take = lambda x: x.flatten(1).gather(1, order)  # noqa: E731
    return Candidates(take(totals), order // ids.shape[2], take(ids), take(values))


@dataclass(frozen=True, eq=False)
class Running:
    """The running hypotheses of the sentences still searched, best first.

    A place for which there is no hypothesis holds a copy of the first one with a sum of minus
    infinity: nothing that follows from it is ever taken.

    Args:
        sentences: which sentences of the request these are.
        sums: log-probability of each hypothesis.
        ids: its tokens.
        log_probs: their log-probabilities.
        attended: sum of the weights that its tokens gave to each source position.
        source_lengths: how many of the S positions of each sentence are real.
    """

    sentences: list[int]
    sums: Float[Tensor, "A W"]
    ids: Int[Tensor, "A W t"]
    log_probs: Float[Tensor, "A W t"]
    attended: Float[Tensor, "A W S"]
    source_lengths: list[int]

    @classmethod
    def start(cls, sentences: list[int], source_lengths: list[int]) -> "Running":
        """One empty hypothesis for each of ``sentences``; source lengths are those of all sentences."""
        n, lengths = len(sentences), [source_lengths[b] for b in sentences]
        return cls(
            sentences,
            torch.zeros(n, 1, dtype=torch.float64),
            torch.zeros(n, 1, 0, dtype=torch.int64),
            torch.zeros(n, 1, 0),
            torch.zeros(n, 1, max(lengths, default=0), dtype=torch.float64),
            lengths,
        )

    @property
    def position(self) -> int:
        """Tokens written, t."""
        return self.ids.shape[2]

    def attending(self, attention: Float[Tensor, "N S2"] | None) -> "Running":
        """With the weights of one more token; what lies beyond the real source positions is unread."""
        if attention is None:
            raise RequestError(
                "a coverage penalty needs attention over the source, which this model does not give; "
                "set 'coverage' to 0"
            )
        longest = max(self.source_lengths)
        if attention.shape[1] < longest:
            raise ValueError(f"attention over {attention.shape[1]} of {longest} source positions")
        more = attention[:, :longest].cpu().double().view(*self.sums.shape, longest)
        return replace(self, attended=self.attended[:, :, :longest] + more)

    def extend(self, candidates: Candidates, beam: int, end: int) -> tuple["Running", Int[Tensor, "A W2"]]:
        """The best ``beam`` candidates that do not end; also, the row that each continues."""
        goes_on = (candidates.ids != end) & (candidates.sums > NEVER)
        order = (~goes_on).to(torch.uint8).argsort(dim=1, stable=True)
        places = torch.arange(beam).expand(len(self.sentences), -1)
        live = places < goes_on.sum(dim=1, keepdim=True)
        chosen = order.gather(1, places.where(live, 0))
        sums, rows, ids, log_probs = (part.gather(1, chosen) for part in candidates)
        extended = replace(
            self,
            sums=sums.masked_fill(~live, NEVER),
            ids=torch.cat([_rows(self.ids, rows), ids[:, :, None]], dim=2),
            log_probs=torch.cat([_rows(self.log_probs, rows), log_probs[:, :, None]], dim=2),
            attended=_rows(self.attended, rows),
        )
        return extended, rows

    def keep(self, still: list[int]) -> "Running":
        """Some of the sentences."""
        if len(still) == len(self.sentences):
            return self
        return Running(
            [self.sentences[i] for i in still],
            self.sums[still],
            self.ids[still],
            self.log_probs[still],
            self.attended[still],
            [self.source_lengths[i] for i in still],
        )

    def attended_of(self, i: int, row: int) -> Float[Tensor, " S"]:
        """The weights that one hypothesis gave to each real source position."""
        return self.attended[i, row, : self.source_lengths[i]]


def _rows(x: Tensor, rows: Int[Tensor, "A W"]) -> Tensor:
    """``x[a, rows[a, w]]`` for every a and w."""
    return x[torch.arange(x.shape[0])[:, None], rows]
