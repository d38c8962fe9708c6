"""Beam search over a batch of sentences, with exact stopping.

Libraries differ in the treatment of hypotheses without an end token at the maximum length. Here they are
either returned after the finished ones, only if fewer than ``n_best`` have finished (``unfinished="drop"``),
or ranked among the finished ones by score (``"keep"``). transformers does the latter: with
``early_stopping="never"`` and the penalty `AverageLength`, the results are equal. fairseq appends the end
token after the last allowed token and adds its log-probability, so that every hypothesis is finished.

The bookkeeping is on the CPU, with sums in 64 bits: it is small, and the search reads it at every step. It
uses numpy, whose operations take about a microsecond where torch takes several. Axes: A lists of hypotheses
(one of each active sentence, or several, as in `heedful.decoding.diverse_beam`), W hypotheses of each,
t generated tokens, C candidates, S tracked source positions.
"""

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from pydantic import model_validator
from torch import Tensor

from heedful.decoding.allocation import NEVER, Candidates, allocated_candidates
from heedful.decoding.probabilities import log_probabilities, no_token_left, ranked
from heedful.decoding.protocol import Hypothesis, Request, StepOutput, Width
from heedful.decoding.rules import OutputRules
from heedful.decoding.scoring import GnmtLength, LengthPenalty, NotNegative, coverage_penalty, score
from heedful.errors import RequestError


class BeamSettings(OutputRules):
    """What searches that keep several hypotheses have in common.

    Args:
        beam: number of hypotheses per sentence.
        n_best: number of answers to return; fewer if fewer texts are found, since each text is returned once.
        length_penalty: normalization of log-probabilities by length.
        coverage: beta of the coverage penalty (Wu et al. 2016, equation 14); 0 disables it.
        unfinished: rank hypotheses without an end token at the maximum length by score among the finished
            ones (``keep``, as in transformers), or use them only if too few have finished (``drop``).
    """

    beam: Width = 4
    n_best: Width = 1
    length_penalty: LengthPenalty = GnmtLength()
    coverage: NotNegative = 0.0
    unfinished: Literal["keep", "drop"] = "drop"

    @model_validator(mode="after")
    def _n_best_fits(self) -> "BeamSettings":
        if self.n_best > self.beam:
            raise ValueError(f"n_best must be at most beam ({self.beam}), got {self.n_best}")
        return self


class BeamConfig(BeamSettings):
    """Beam search (`heedful.decoding.beam.beam_search`).

    By default as in Vaswani et al. 2017, section 6.1.
    """

    kind: Literal["beam"] = "beam"


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

    If constraints require phrases, the beam is divided as `heedful.decoding.allocation` describes.

    Hypotheses that are still running at the maximum length have no end token; see the module docstring.
    ``request.on_token`` requires a beam of 1; a coverage penalty requires source lengths and attention.

    Returns:
        For each sentence, in their order, up to ``n_best`` hypotheses by descending score; with
        ``unfinished="drop"``, all finished ones come first. Fewer are returned if fewer exist.

    Raises:
        WorkError: the logits are not a distribution, or only forbidden tokens are possible.
        RequestError: a coverage penalty without attention over the source.
    """
    return [result.hypotheses() for result in Search(request, config, best_continuations).results()]


@dataclass
class SearchResult:
    """Best ``n_best`` hypotheses of one list so far, best first.

    Args:
        config: the configuration.
        width: number of running hypotheses.
        max_length: maximum number of generated tokens.
    """

    config: BeamSettings
    width: int
    max_length: int
    finished: list[Hypothesis] = field(default_factory=list)
    unfinished: list[Hypothesis] = field(default_factory=list)

    def add(
        self,
        ids: list[int],
        log_probs: list[float],
        finished: bool,
        attended: Float[np.ndarray, " S"],
        violated: tuple[str, ...] = (),
    ) -> None:
        """Insert a hypothesis by score, after earlier ones with the same score; violations come last."""
        beta = self.config.coverage
        penalty = coverage_penalty(beta, torch.from_numpy(attended)) if beta else 0.0
        total = score(log_probs, self.config.length_penalty, penalty)
        group = self.finished if finished else self.unfinished
        insort(group, Hypothesis(tuple(ids), tuple(log_probs), finished, total, penalty, violated), key=_rank)
        del group[self.n_best :]

    @property
    def n_best(self) -> int:
        """Number of hypotheses to return, at most."""
        return min(self.config.n_best, self.width)

    def is_settled(self, best_sum: float, position: int) -> bool:
        """Return whether no running hypothesis can change the result; ``best_sum`` is the best of them.

        Its score is at most ``best_sum`` over the largest divisor, because further log-probabilities and the
        coverage term are at most 0.
        """
        if best_sum == NEVER:
            if not self.finished and not self.unfinished:
                raise no_token_left(position - 1)
            return True
        if position == self.max_length or (self.width == 1 and self.finished):
            return True
        if len(self.finished) < self.n_best:
            return False
        return self.finished[-1].score >= best_sum / self.config.length_penalty.divisor(self.max_length)

    def hypotheses(self) -> list[Hypothesis]:
        """Return the result; the empty hypothesis if the maximum length is 0."""
        if self.max_length == 0:
            return [Hypothesis((), (), False, 0.0)]
        all_hypotheses = self.finished + self.unfinished
        if self.config.unfinished == "keep":
            all_hypotheses.sort(key=_rank)  # stable: finished ones first among equal scores
        return all_hypotheses[: self.n_best]


def _rank(hypothesis: Hypothesis) -> tuple[int, float]:
    """Return the sort key of hypotheses: those that hold their constraints by score, then the others."""
    return len(hypothesis.violated), -hypothesis.score


class Search:
    """The running hypotheses of the active sentences, best first, and the results of all sentences.

    Those of a sentence are in ``n_lists`` lists of equal width. Each list is searched by itself; a sentence
    leaves the batch when all its lists are done. Missing hypotheses are copies of the first one with a sum of
    minus infinity, so that their continuations are never selected.

    Args:
        request: the sentences.
        config: the configuration.
        propose: ranks the continuations of all lists: at least ``width`` of each that do not end, if there
            are so many.
        n_lists: number of lists of each sentence; it divides ``config.beam``.

    Attributes:
        width: number of hypotheses of a list.
        output: newest output of the model for the running hypotheses.
        sentences: indices in the request of the active sentences.
        source_lengths: number of real positions, out of S, of each list; 0 without a coverage penalty.
        constrained: states of the constraints of the running hypotheses; None without constraints.
        sums: ``[A, W]``, log-probability of each hypothesis.
        ids: ``[A, W, t]``, tokens of each hypothesis.
        log_probs: ``[A, W, t]``, log-probabilities of the tokens.
        attended: ``[A, W, S]``, attention weights of each source position, summed over the tokens.
    """

    def __init__(
        self,
        request: Request,
        config: BeamSettings,
        propose: "Callable[[Search], Candidates]",
        n_lists: int = 1,
    ) -> None:
        if request.on_token is not None and config.beam > 1:
            raise ValueError(
                f"on_token requires beam=1, got {config.beam}: the tokens are only known at the end"
            )
        if config.coverage and request.source_lengths is None:
            raise ValueError("a coverage penalty requires source_lengths for all sentences")
        self.request, self.config, self.propose, self.n_lists = request, config, propose, n_lists
        self.width = config.beam // n_lists
        self._results = [
            SearchResult(config, self.width, max_length)
            for max_length in request.max_lengths
            for _ in range(n_lists)
        ]
        self.sentences, output = request.begin()
        self.output = _repeated(output, n_lists)
        lengths = request.source_lengths if config.coverage else None
        self.source_lengths = [
            0 if lengths is None else lengths[b] for b in self.sentences for _ in range(n_lists)
        ]
        n = len(self.sentences) * n_lists
        self.sums = np.zeros((n, 1))
        self.ids = np.zeros((n, 1, 0), np.int64)
        self.log_probs = np.zeros((n, 1, 0), np.float32)
        self.attended = np.zeros((n, 1, max(self.source_lengths, default=0)))
        self.constrained = request.constrained(self.sentences, n_lists)

    @property
    def position(self) -> int:
        """Number of generated tokens, t."""
        return self.ids.shape[2]

    def results(self) -> list[SearchResult]:
        """Extend the hypotheses until all sentences are done; return the result of each list of each."""
        while self.sentences:
            if self.config.coverage:
                self._add_attention()
            candidates = self.propose(self)
            self._collect_finished(candidates)
            if self.constrained is not None:
                self._collect_stuck(candidates)
            parents = self._extend(candidates)
            remaining = self._still_running()
            if self.request.on_token is not None:
                for b, token in zip(self.sentences, self.ids[:, 0, -1].tolist(), strict=True):
                    if not self._results[b].finished:  # otherwise the end token was chosen
                        self.request.on_token(b, token)
            remaining = self._wanted(remaining)
            if not remaining:
                break
            self._advance(parents, remaining)
        return self._results

    def _result(self, i: int) -> SearchResult:
        """Return the result of a list."""
        return self._results[self.sentences[i // self.n_lists] * self.n_lists + i % self.n_lists]

    def _add_attention(self) -> None:
        """Add the attention weights of one more token; weights of padding are ignored."""
        attention, longest = self.output.attention, max(self.source_lengths)
        if attention is None:
            raise RequestError(
                "a coverage penalty requires attention over the source, which this model does not provide; "
                "set 'coverage' to 0"
            )
        if attention.shape[1] < longest:
            raise ValueError(f"attention must cover {longest} source positions, got {attention.shape[1]}")
        weights = attention[:, :longest].cpu().double().numpy().reshape(*self.sums.shape, longest)
        self.attended = self.attended[:, :, :longest] + weights

    def restricted(self) -> tuple[Float[Tensor, "N V"], Bool[Tensor, "N V"] | None]:
        """Return the logits of the next tokens, adjusted by constraints, and which tokens these block."""
        logits = self.output.logits
        return (logits, None) if self.constrained is None else self.constrained.restrict(logits)

    def _collect_finished(self, candidates: Candidates) -> None:
        """Collect hypotheses that end among the best ``width`` candidates of each list."""
        ends = candidates.ids == self.request.end
        if not ends.any():
            return
        ends &= candidates.sums > NEVER
        for i, c in np.argwhere(ends[:, : self.width]).tolist():
            self._collect(i, int(candidates.rows[i, c]), [float(candidates.log_probs[i, c])])

    def _collect_stuck(self, candidates: Candidates) -> None:
        """Collect the hypotheses of lists of which none can be continued or has finished."""
        assert self.constrained is not None
        width = self.sums.shape[1]
        for i in np.flatnonzero((candidates.sums == NEVER).all(axis=1)).tolist():
            if not self._result(i).finished:
                for row in np.flatnonzero(self.sums[i] > NEVER).tolist():
                    if violated := self.constrained.blocking(i * width + row):
                        self._collect(i, row, [], violated)

    def _collect(self, i: int, row: int, end: list[float], violated: tuple[str, ...] = ()) -> None:
        """Add a hypothesis to the results, with the log-probability of its end token, if it has one."""
        ids, log_probs = self.ids[i, row].tolist(), [*self.log_probs[i, row].tolist(), *end]
        attended = self.attended[i, row, : self.source_lengths[i]]
        self._result(i).add(ids, log_probs, bool(end), attended, violated)

    def _extend(self, candidates: Candidates) -> Int[np.ndarray, "A W"]:
        """Continue with the best ``width`` candidates that do not end; return the row that each continues."""
        width, (n, n_candidates) = self.width, candidates.ids.shape
        continues = (candidates.ids != self.request.end) & (candidates.sums > NEVER)
        indices = (~continues).argsort(axis=1, kind="stable")[:, :width]
        if (missing := width - indices.shape[1]) > 0:
            indices = np.pad(indices, ((0, 0), (0, missing)), constant_values=n_candidates - 1)
        is_live = np.arange(width) < continues.sum(axis=1, keepdims=True)
        if not (all_live := is_live.all()):
            indices = np.where(is_live, indices, indices[:, :1])
        indices = indices + np.arange(0, n * n_candidates, n_candidates)[:, None]
        rows, sums = candidates.rows.take(indices), candidates.sums.take(indices)
        parents = rows + np.arange(0, self.sums.size, self.sums.shape[1])[:, None]
        self.sums = sums if all_live else np.where(is_live, sums, NEVER)
        self.ids = _append_tokens(self.ids, parents, candidates.ids.take(indices))
        self.log_probs = _append_tokens(self.log_probs, parents, candidates.log_probs.take(indices))
        self.attended = _rows(self.attended, parents)
        if self.constrained is not None:
            self.constrained.advance(parents.reshape(-1).tolist(), self.ids[:, :, -1].reshape(-1).tolist())
        return rows

    def _still_running(self) -> list[int]:
        """Return the indices within ``sentences`` of those to continue; complete the others."""
        best_sums = self.sums.max(axis=1).tolist()
        settled = [self._result(i).is_settled(each, self.position) for i, each in enumerate(best_sums)]
        if self.width == 1:  # A list that is finished has no second hypothesis.
            self.sums[[i for i in range(len(settled)) if self._result(i).finished]] = NEVER
        remaining = []
        for a, b in enumerate(self.sentences):
            lists = range(a * self.n_lists, (a + 1) * self.n_lists)
            if not all(settled[i] for i in lists):
                remaining.append(a)
            elif self.position == self.request.max_lengths[b]:
                for i in lists:
                    self._collect_cut(i)
        return remaining

    def _wanted(self, remaining: list[int]) -> list[int]:
        """Return the sentences that go on after this step; collect what the others have so far."""
        wanted = [*self.request.wanted(self.sentences, remaining)]
        for a in {*remaining}.difference(wanted):
            for i in range(a * self.n_lists, (a + 1) * self.n_lists):
                self._collect_cut(i)
        return wanted

    def _collect_cut(self, i: int) -> None:
        """Collect the hypotheses of a list that are running at the maximum length."""
        width = self.sums.shape[1]
        for row in np.flatnonzero(self.sums[i] > NEVER).tolist():
            unmet = () if self.constrained is None else self.constrained.unmet(i * width + row)
            self._collect(i, row, [], unmet)

    def _advance(self, parents: Int[np.ndarray, "A W"], remaining: list[int]) -> None:
        """Remove finished sentences, and pass the last token of every other hypothesis to the model."""
        state, device = self.output.state, self.output.logits.device
        if len(remaining) < len(self.sentences):
            lists = [a * self.n_lists + k for a in remaining for k in range(self.n_lists)]
            state, parents = state.keep(remaining), parents[lists]
            self.sentences = [self.sentences[a] for a in remaining]
            self.source_lengths = [self.source_lengths[i] for i in lists]
            self.sums, self.ids = self.sums[lists], self.ids[lists]
            self.log_probs, self.attended = self.log_probs[lists], self.attended[lists]
            if self.constrained is not None:
                width = parents.shape[1]
                self.constrained.keep([i * width + row for i in lists for row in range(width)])
        n, width = parents.shape
        tokens = torch.from_numpy(self.ids[:, :, -1].reshape(-1)).to(device)
        rows = None
        if self.position == 1:
            state = state.expand(self.config.beam) if self.config.beam > 1 else state
        else:
            unchanged = np.arange(n * width).reshape(n, width)
            continued = parents + unchanged[:, :1]
            if not (continued == unchanged).all():
                rows = torch.from_numpy(continued.reshape(-1)).to(device)
        self.output = self.request.step(tokens, state, rows)


def best_continuations(search: Search) -> Candidates:
    """Return the best ``2 * width`` continuations of each list (or all, if fewer), by log-probability.

    They are among the best of each hypothesis, so only those are added up and sorted. Ties are ordered by
    hypothesis, then by token.
    """
    n, (logits, blocked), request = 2 * search.width, search.restricted(), search.request
    if search.constrained is not None and search.constrained.has_goals:
        allowed = log_probabilities(logits, request.banned, search.position, blocked)
        return allocated_candidates(allowed, search.sums, search.constrained, search.width, request.end)
    log_probs, ids = ranked(logits, request.banned, n, search.position, blocked)
    totals = (search.sums.reshape(-1, 1) + log_probs).reshape(len(search.sums), -1)
    order = (-totals).argsort(axis=1, kind="stable")[:, :n]
    return candidates_in(order, totals, log_probs, ids)


def candidates_in(
    order: Int[np.ndarray, "A C"],
    totals: Float[np.ndarray, "A Wk"],
    log_probs: Float[np.ndarray, "N k"],
    ids: Int[np.ndarray, "N k"],
) -> Candidates:
    """Return continuations in a given order.

    Args:
        order: indices within each list, over hypotheses and their tokens.
        totals: log-probability of each continuation.
        log_probs: of the tokens.
        ids: the tokens.
    """
    indices = order + np.arange(0, totals.size, totals.shape[1])[:, None]
    rows = order // ids.shape[1]
    return Candidates(totals.take(indices), rows, ids.take(indices), log_probs.take(indices))


def _repeated(output: StepOutput, n: int) -> StepOutput:
    """Return the output for ``n`` copies of each prefix; the state is expanded when tokens are appended."""
    if n == 1:
        return output
    logits, state, attention = output
    return StepOutput(
        logits.repeat_interleave(n, 0),
        state,
        None if attention is None else attention.repeat_interleave(n, 0),
    )


def _append_tokens(
    previous: Shaped[np.ndarray, "A W t"], parents: Int[np.ndarray, "A W2"], new: Shaped[np.ndarray, "A W2"]
) -> Shaped[np.ndarray, "A W2 t2"]:
    """Append ``new`` to the rows ``parents`` of ``previous`` (indices over all sentences)."""
    return np.concatenate([_rows(previous, parents), new[:, :, None]], axis=2)


def _rows(x: Shaped[np.ndarray, "A W t"], rows: Int[np.ndarray, "A W2"]) -> Shaped[np.ndarray, "A W2 t"]:
    """Select rows by index over all sentences."""
    return x.reshape(x.shape[0] * x.shape[1], x.shape[2]).take(rows, axis=0)
