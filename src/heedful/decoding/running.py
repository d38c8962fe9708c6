"""The hypotheses that a beam search has under way, and the continuations it chooses from.

The bookkeeping of a search lies on the CPU, in 64 bits where sums are concerned: it is small, and
the search must read it at every step anyway. It is numpy's, which takes a microsecond for an operation
where torch takes several. Axes: A sentences still searched, W hypotheses of each,
t tokens written, C candidates, S source positions of which account is kept.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.probabilities import ranked
from heedful.errors import RequestError

NEVER = float("-inf")


class Candidates(NamedTuple):
    """One-token continuations of each sentence's hypotheses, best first."""

    sums: Float[np.ndarray, "A C"]
    """Log-probability of the whole."""
    rows: Int[np.ndarray, "A C"]
    """The hypothesis that is continued, 0 .. W-1."""
    ids: Int[np.ndarray, "A C"]
    log_probs: Float[np.ndarray, "A C"]
    """Of the token alone."""


def candidates_of(
    logits: Float[Tensor, "N V"],
    forbidden: Int[Tensor, " F"],
    sums: Float[np.ndarray, "A W"],
    n: int,
    position: int,
) -> Candidates:
    """The best ``n`` of all continuations of a sentence (fewer where there are fewer), N = A * W.

    They are among the best ``n`` of each hypothesis, so only those are added up and sorted. Equals
    come in the order of hypotheses, then of tokens.
    """
    log_probs, ids = ranked(logits, forbidden, n, position)
    k = ids.shape[1]
    # Rounding can lift a log-probability a hair above 0, on which the bounds of the search rest: it is cut.
    totals = (sums.reshape(-1, 1) + log_probs).reshape(len(sums), -1)
    order = np.argsort(-totals, axis=1, kind="stable")[:, :n]
    each = np.arange(len(sums))[:, None]
    chosen = (part.reshape(len(sums), -1)[each, order] for part in (ids, log_probs))
    return Candidates(totals[each, order], order // k, *chosen)


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
    sums: Float[np.ndarray, "A W"]
    ids: Int[np.ndarray, "A W t"]
    log_probs: Float[np.ndarray, "A W t"]
    attended: Float[np.ndarray, "A W S"]
    source_lengths: list[int]

    @classmethod
    def start(cls, sentences: list[int], source_lengths: list[int]) -> "Running":
        """One empty hypothesis for each of ``sentences``; source lengths are those of all sentences."""
        n, lengths = len(sentences), [source_lengths[b] for b in sentences]
        return cls(
            sentences,
            np.zeros((n, 1)),
            np.zeros((n, 1, 0), np.int64),
            np.zeros((n, 1, 0), np.float32),
            np.zeros((n, 1, max(lengths, default=0))),
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
        more = attention[:, :longest].cpu().double().numpy().reshape(*self.sums.shape, longest)
        return replace(self, attended=self.attended[:, :, :longest] + more)

    def extend(
        self, candidates: Candidates, beam: int, end: int
    ) -> tuple["Running", Int[np.ndarray, "A W2"]]:
        """The best ``beam`` candidates that do not end; also, the row that each continues."""
        goes_on = (candidates.ids != end) & (candidates.sums > NEVER)
        order = np.argsort(~goes_on, axis=1, kind="stable")
        live = np.arange(beam) < goes_on.sum(axis=1, keepdims=True)
        # Where too few go on, `order` may also be too short; the first one stands in.
        padded = np.zeros(live.shape, np.int64)
        padded[:, : order.shape[1]] = order[:, :beam]
        chosen = np.where(live, padded, order[:, :1])
        each = np.arange(len(chosen))[:, None]
        sums, rows, ids, log_probs = (part[each, chosen] for part in candidates)
        extended = replace(
            self,
            sums=np.where(live, sums, NEVER),
            ids=np.concatenate([self.ids[each, rows], ids[:, :, None]], axis=2),
            log_probs=np.concatenate([self.log_probs[each, rows], log_probs[:, :, None]], axis=2),
            attended=self.attended[each, rows]
            if self.attended.size
            else self.attended[:, :1].repeat(beam, 1),
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

    def attended_of(self, i: int, row: int) -> Float[np.ndarray, " S"]:
        """The weights that one hypothesis gave to each real source position."""
        return self.attended[i, row, : self.source_lengths[i]]
