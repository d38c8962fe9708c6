"""The hypotheses that a beam search has under way, and the continuations it chooses from.

The bookkeeping of a search lies on the CPU, in 64 bits where sums are concerned: it is small, and
the search must read it at every step anyway. It is numpy's, which takes a microsecond for an operation
where torch takes several. Axes: A sentences still searched, W hypotheses of each,
t tokens written, C candidates, S source positions of which account is kept.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped
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
    totals = (sums.reshape(-1, 1) + log_probs).reshape(len(sums), -1)
    order = (-totals).argsort(axis=1, kind="stable")[:, :n]
    places = order + np.arange(0, totals.size, totals.shape[1])[:, None]
    return Candidates(totals.take(places), order // ids.shape[1], ids.take(places), log_probs.take(places))


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
        n, n_candidates = candidates.ids.shape
        goes_on = (candidates.ids != end) & (candidates.sums > NEVER)
        places = (~goes_on).argsort(axis=1, kind="stable")[:, :beam]
        if (missing := beam - places.shape[1]) > 0:
            places = np.pad(places, ((0, 0), (0, missing)), constant_values=n_candidates - 1)
        live = np.arange(beam) < goes_on.sum(axis=1, keepdims=True)
        if not (full := live.all()):
            places = np.where(live, places, places[:, :1])
        places = places + np.arange(0, n * n_candidates, n_candidates)[:, None]
        rows, sums = candidates.rows.take(places), candidates.sums.take(places)
        parents = rows + np.arange(0, self.sums.size, self.sums.shape[1])[:, None]
        extended = Running(
            self.sentences,
            sums if full else np.where(live, sums, NEVER),
            _continued(self.ids, parents, candidates.ids.take(places)),
            _continued(self.log_probs, parents, candidates.log_probs.take(places)),
            _rows(self.attended, parents),
            self.source_lengths,
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


def _continued(
    past: Shaped[np.ndarray, "A W t"], parents: Int[np.ndarray, "A W2"], new: Shaped[np.ndarray, "A W2"]
) -> Shaped[np.ndarray, "A W2 t2"]:
    """What was written by ``parents`` (numbered through all sentences), and then what is new."""
    return np.concatenate([_rows(past, parents), new[:, :, None]], axis=2)


def _rows(x: Shaped[np.ndarray, "A W t"], rows: Int[np.ndarray, "A W2"]) -> Shaped[np.ndarray, "A W2 t"]:
    """Some of the lines, numbered through all sentences."""
    return x.reshape(x.shape[0] * x.shape[1], x.shape[2]).take(rows, axis=0)
