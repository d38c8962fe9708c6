"""Running hypotheses of a beam search, and their candidate continuations.

The bookkeeping is on the CPU, with sums in 64 bits: it is small, and the search reads it at every step. It
uses numpy, whose operations take about a microsecond where torch takes several. Axes: A active sentences,
W hypotheses of each, t generated tokens, C candidates, S tracked source positions.
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
    """One-token continuations of the hypotheses of each sentence, best first."""

    sums: Float[np.ndarray, "A C"]
    """Log-probability of the continued hypothesis."""
    rows: Int[np.ndarray, "A C"]
    """Index of the continued hypothesis, 0 .. W-1."""
    ids: Int[np.ndarray, "A C"]
    log_probs: Float[np.ndarray, "A C"]
    """Log-probability of the token."""


def candidates_of(
    logits: Float[Tensor, "N V"],
    forbidden: Int[Tensor, " F"],
    sums: Float[np.ndarray, "A W"],
    n: int,
    position: int,
) -> Candidates:
    """Return the best ``n`` continuations of each sentence (or all, if fewer), N = A * W.

    They are among the best ``n`` of each hypothesis, so only those are added up and sorted. Ties are ordered
    by hypothesis, then by token.
    """
    log_probs, ids = ranked(logits, forbidden, n, position)
    totals = (sums.reshape(-1, 1) + log_probs).reshape(len(sums), -1)
    order = (-totals).argsort(axis=1, kind="stable")[:, :n]
    indices = order + np.arange(0, totals.size, totals.shape[1])[:, None]
    return Candidates(totals.take(indices), order // ids.shape[1], ids.take(indices), log_probs.take(indices))


@dataclass(frozen=True, eq=False)
class Running:
    """Running hypotheses of the active sentences, best first.

    Missing hypotheses are copies of the first one with a sum of minus infinity, so that their continuations
    are never selected.

    Args:
        sentences: indices of the sentences in the request.
        sums: log-probability of each hypothesis.
        ids: tokens of each hypothesis.
        log_probs: log-probabilities of the tokens.
        attended: attention weights of each source position, summed over the tokens.
        source_lengths: number of real positions, out of S, of each sentence.
    """

    sentences: list[int]
    sums: Float[np.ndarray, "A W"]
    ids: Int[np.ndarray, "A W t"]
    log_probs: Float[np.ndarray, "A W t"]
    attended: Float[np.ndarray, "A W S"]
    source_lengths: list[int]

    @classmethod
    def start(cls, sentences: list[int], source_lengths: list[int]) -> "Running":
        """Start with an empty hypothesis for each of ``sentences``, given all source lengths."""
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
        """Number of generated tokens, t."""
        return self.ids.shape[2]

    def attending(self, attention: Float[Tensor, "N S2"] | None) -> "Running":
        """Add the attention weights of one more token; weights of padding are ignored."""
        if attention is None:
            raise RequestError(
                "a coverage penalty requires attention over the source, which this model does not provide; "
                "set 'coverage' to 0"
            )
        longest = max(self.source_lengths)
        if attention.shape[1] < longest:
            raise ValueError(f"attention must cover {longest} source positions, got {attention.shape[1]}")
        more = attention[:, :longest].cpu().double().numpy().reshape(*self.sums.shape, longest)
        return replace(self, attended=self.attended[:, :, :longest] + more)

    def extend(
        self, candidates: Candidates, beam: int, end: int
    ) -> tuple["Running", Int[np.ndarray, "A W2"]]:
        """Return the best ``beam`` candidates that do not end, and the row that each continues."""
        n, n_candidates = candidates.ids.shape
        continues = (candidates.ids != end) & (candidates.sums > NEVER)
        indices = (~continues).argsort(axis=1, kind="stable")[:, :beam]
        if (missing := beam - indices.shape[1]) > 0:
            indices = np.pad(indices, ((0, 0), (0, missing)), constant_values=n_candidates - 1)
        live = np.arange(beam) < continues.sum(axis=1, keepdims=True)
        if not (full := live.all()):
            indices = np.where(live, indices, indices[:, :1])
        indices = indices + np.arange(0, n * n_candidates, n_candidates)[:, None]
        rows, sums = candidates.rows.take(indices), candidates.sums.take(indices)
        parents = rows + np.arange(0, self.sums.size, self.sums.shape[1])[:, None]
        extended = Running(
            self.sentences,
            sums if full else np.where(live, sums, NEVER),
            _continued(self.ids, parents, candidates.ids.take(indices)),
            _continued(self.log_probs, parents, candidates.log_probs.take(indices)),
            _rows(self.attended, parents),
            self.source_lengths,
        )
        return extended, rows

    def keep(self, still: list[int]) -> "Running":
        """Keep only these sentences."""
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
        """Return the summed attention weights of one hypothesis over the real source positions."""
        return self.attended[i, row, : self.source_lengths[i]]


def _continued(
    past: Shaped[np.ndarray, "A W t"], parents: Int[np.ndarray, "A W2"], new: Shaped[np.ndarray, "A W2"]
) -> Shaped[np.ndarray, "A W2 t2"]:
    """Append ``new`` to the rows ``parents`` of ``past`` (indices over all sentences)."""
    return np.concatenate([_rows(past, parents), new[:, :, None]], axis=2)


def _rows(x: Shaped[np.ndarray, "A W t"], rows: Int[np.ndarray, "A W2"]) -> Shaped[np.ndarray, "A W2 t"]:
    """Select rows by index over all sentences."""
    return x.reshape(x.shape[0] * x.shape[1], x.shape[2]).take(rows, axis=0)
