"""Beam search over a batch of sentences, with exact stopping.

Libraries differ in the treatment of hypotheses without an end token at the maximum length. Here they are
either returned after the finished ones, only if fewer than ``n_best`` have finished (``unfinished="drop"``),
or ranked among the finished ones by score (``"keep"``). transformers does the latter: with
``early_stopping="never"`` and the penalty `AverageLength`, the results are equal. fairseq appends the end
token after the last allowed token and adds its log-probability, so that every hypothesis is finished.

The bookkeeping is on the CPU, with sums in 64 bits: it is small, and the search reads it at every step. It
uses numpy, whose operations take about a microsecond where torch takes several. Axes: A active sentences,
W hypotheses of each, t generated tokens, C candidates, S tracked source positions.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from pydantic import model_validator
from torch import Tensor

from heedful.config import Config
from heedful.decoding.probabilities import no_token_left, ranked
from heedful.decoding.protocol import Hypothesis, MaxLength, OnToken, Request, StepFunction, StepOutput, Width
from heedful.decoding.scoring import GnmtLength, LengthPenalty, NotNegative, coverage_penalty, score
from heedful.errors import RequestError

NEVER = float("-inf")


class BeamConfig(Config):
    """Beam search (`heedful.decoding.beam.beam_search`), by default as in Vaswani et al. 2017, section 6.1.

    Args:
        max_length: maximum number of generated tokens.
        beam: number of hypotheses per sentence.
        n_best: number of hypotheses to return.
        length_penalty: normalization of log-probabilities by length.
        coverage: beta of the coverage penalty (Wu et al. 2016, equation 14); 0 disables it.
        unfinished: rank hypotheses without an end token at the maximum length by score among the finished
            ones (``keep``, as in transformers), or use them only if too few have finished (``drop``).
    """

    kind: Literal["beam"] = "beam"
    max_length: MaxLength = MaxLength()
    beam: Width = 4
    n_best: Width = 1
    length_penalty: LengthPenalty = GnmtLength()
    coverage: NotNegative = 0.0
    unfinished: Literal["keep", "drop"] = "drop"

    @model_validator(mode="after")
    def _n_best_fits(self) -> "BeamConfig":
        if self.n_best > self.beam:
            raise ValueError(f"n_best must be at most beam ({self.beam}), got {self.n_best}")
        return self


@torch.no_grad()
def beam_search(request: Request, config: BeamConfig) -> list[list[Hypothesis]]:
    """Keep the ``beam`` most probable unfinished hypotheses of each sentence at every step.

    A step ranks all one-token continuations of the hypotheses of a sentence by log-probability; ties are
    broken by the better hypothesis, then by the lower token. An end token among the best ``beam`` finishes
    a hypothesis; the best ``beam`` others continue. Length and coverage penalties rank finished hypotheses;
    running hypotheses all have the same length.

    A sentence is done (exact stopping) once it has ``n_best`` finished hypotheses that no running one can
    beat: the score of a running one is at most its log-probability over ``length_penalty.divisor(maximum)``.
    With a beam of 1 it is done at its first finished hypothesis, which equals that of
    `heedful.decoding.greedy.greedy` under every penalty. Sentences that are done leave the batch.

    Hypotheses that are still running at the maximum length have no end token; see the module docstring.
    ``request.on_token`` requires a beam of 1; a coverage penalty requires source lengths and attention.

    Returns:
        For each sentence, in their order, up to ``n_best`` hypotheses by descending score; with
        ``unfinished="drop"``, all finished ones come first. Fewer are returned if fewer exist.

    Raises:
        WorkError: the logits are not a distribution, or only forbidden tokens are possible.
        RequestError: a coverage penalty without attention over the source.
    """
    if request.on_token is not None and config.beam > 1:
        raise ValueError(f"on_token requires beam=1, got {config.beam}: the tokens are only known at the end")
    n_tracked: Sequence[int] = [0] * len(request.max_lengths)  # source positions whose attention is summed
    if config.coverage:
        if request.source_lengths is None:
            raise ValueError("a coverage penalty requires source_lengths for all sentences")
        n_tracked = request.source_lengths
    results = [_SentenceResult(config, most) for most in request.max_lengths]
    sentences, output = request.begin()
    running = Running.empty(sentences, n_tracked)
    while running.sentences:
        if config.coverage:
            running = running.attending(output.attention)
        candidates = candidates_of(
            output.logits, request.banned, running.sums, 2 * config.beam, running.position
        )
        _collect_finished(running, candidates, results, config.beam, request.end)
        extended, parents = running.extend(candidates, config.beam, request.end)
        still = _still_running(extended, results)
        if request.on_token is not None:
            _report_tokens(extended, results, request.on_token)
        if still:
            output = _advance(request.step, output, extended, parents, still)
        running = extended.keep(still)
    return [each.hypotheses() for each in results]


@dataclass
class _SentenceResult:
    """Best ``n_best`` hypotheses of one sentence so far, best first."""

    config: BeamConfig
    most: int
    finished: list[Hypothesis] = field(default_factory=list)
    unfinished: list[Hypothesis] = field(default_factory=list)

    def add(
        self, ids: list[int], log_probs: list[float], finished: bool, attended: Float[np.ndarray, " S"]
    ) -> None:
        """Insert a hypothesis by score, after earlier ones with the same score."""
        beta = self.config.coverage
        penalty = coverage_penalty(beta, torch.from_numpy(attended)) if beta else 0.0
        total = score(log_probs, self.config.length_penalty, penalty)
        group = self.finished if finished else self.unfinished
        insort(
            group, Hypothesis(tuple(ids), tuple(log_probs), finished, total, penalty), key=lambda h: -h.score
        )
        del group[self.config.n_best :]

    def settled(self, best_sum: float, position: int) -> bool:
        """Return whether no running hypothesis can change the result; ``best_sum`` is the best of them.

        Its score is at most ``best_sum`` over the largest divisor, because further log-probabilities and the
        coverage term are at most 0.
        """
        if best_sum == NEVER:
            if not self.finished:
                raise no_token_left(position - 1)
            return True
        if position == self.most or (self.config.beam == 1 and self.finished):
            return True
        if len(self.finished) < self.config.n_best:
            return False
        return self.finished[-1].score >= best_sum / self.config.length_penalty.divisor(self.most)

    def hypotheses(self) -> list[Hypothesis]:
        """Return the result; the empty hypothesis if the maximum length is 0."""
        if self.most == 0:
            return [Hypothesis((), (), False, 0.0)]
        every = self.finished + self.unfinished
        if self.config.unfinished == "keep":
            every.sort(key=lambda h: -h.score)  # stable: finished ones first among equal scores
        return every[: self.config.n_best]


def _collect_finished(
    running: "Running", candidates: "Candidates", results: list[_SentenceResult], beam: int, end: int
) -> None:
    """Collect hypotheses that end among the best ``beam`` candidates of each sentence."""
    ends = candidates.ids == end
    if not ends.any():
        return
    ends &= candidates.sums > NEVER
    for i, c in np.argwhere(ends[:, :beam]).tolist():
        row = int(candidates.rows[i, c])
        log_probs = [*running.log_probs[i, row].tolist(), float(candidates.log_probs[i, c])]
        ids = running.ids[i, row].tolist()
        results[running.sentences[i]].add(ids, log_probs, True, running.attended_of(i, row))


def _still_running(running: "Running", results: list[_SentenceResult]) -> list[int]:
    """Return the indices within ``running`` of sentences to continue; complete the others."""
    still = []
    for i, (b, best_sum) in enumerate(zip(running.sentences, running.sums[:, 0].tolist(), strict=True)):
        if not results[b].settled(best_sum, running.position):
            still.append(i)
        elif running.position == results[b].most:
            for row in np.flatnonzero(running.sums[i] > NEVER).tolist():
                ids, log_probs = running.ids[i, row].tolist(), running.log_probs[i, row].tolist()
                results[b].add(ids, log_probs, False, running.attended_of(i, row))
    return still


def _report_tokens(running: "Running", results: list[_SentenceResult], on_token: OnToken) -> None:
    """Report the newest token of each sentence unless its only hypothesis has just finished."""
    for b, token in zip(running.sentences, running.ids[:, 0, -1].tolist(), strict=True):
        if not results[b].finished:
            on_token(b, token)


def _advance(
    step: StepFunction,
    output: StepOutput,
    running: "Running",
    parents: Int[np.ndarray, "A W"],
    still: list[int],
) -> StepOutput:
    """Remove finished sentences, and pass the last token of every other hypothesis to the model."""
    state, device = output.state, output.logits.device
    n, width, ids = len(still), parents.shape[1], running.ids[:, :, -1]
    if n < len(running.sentences):
        state, ids, parents = state.keep(still), ids[still], parents[still]
    tokens = torch.from_numpy(ids.reshape(-1)).to(device)
    if running.position == 1:
        return step(tokens, state.widen(width) if width > 1 else state, None)
    own = np.arange(n * width).reshape(n, width)
    rows = parents + own[:, :1]
    return step(tokens, state, None if (rows == own).all() else torch.from_numpy(rows.reshape(-1)).to(device))


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
    def empty(cls, sentences: list[int], source_lengths: Sequence[int]) -> "Running":
        """Return an empty hypothesis for each of ``sentences``, given all source lengths."""
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
