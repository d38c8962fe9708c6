"""Beam search over a batch of sentences, with exact stopping.

Libraries differ in the treatment of hypotheses without an end token at the maximum length. Here they are
either returned after the finished ones, only if fewer than ``n_best`` have finished (``unfinished="drop"``),
or ranked among the finished ones by score (``"keep"``). transformers does the latter: with
``early_stopping="never"`` and the penalty `AverageLength`, the results are equal. fairseq appends the end
token after the last allowed token and adds its log-probability, so that every hypothesis is finished.
"""

from bisect import insort
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from heedful.decoding.probabilities import no_token_left
from heedful.decoding.protocol import Hypothesis, OnToken, Request, StepFunction, StepOutput
from heedful.decoding.running import NEVER, Candidates, Running, candidates_of
from heedful.decoding.scoring import CoveragePenalty, LengthPenalty, NoPenalty, score

Unfinished = Literal["keep", "drop"]
"""Treatment of hypotheses without an end token at the maximum length: see `beam_search`."""


@torch.no_grad()
def beam_search(
    request: Request,
    *,
    beam: int,
    n_best: int = 1,
    length: LengthPenalty | None = None,
    coverage: CoveragePenalty | None = None,
    unfinished: Unfinished = "drop",
) -> list[list[Hypothesis]]:
    """Keep the ``beam`` most probable unfinished hypotheses of each sentence at every step.

    A step ranks all one-token continuations of the hypotheses of a sentence by log-probability; ties are
    broken by the better hypothesis, then by the lower token. An end token among the best ``beam`` finishes
    a hypothesis; the best ``beam`` others continue. Length and coverage penalties rank finished hypotheses;
    running hypotheses all have the same length.

    A sentence is done (exact stopping) once it has ``n_best`` finished hypotheses that no running one can
    beat: the score of a running one is at most its log-probability over ``length.divisor(maximum)``. With
    ``beam=1`` it is done at its first finished hypothesis, which equals `greedy.greedy` under every penalty.
    Sentences that are done leave the batch.

    Hypotheses that are still running at the maximum length have no end token; see the module docstring.

    Args:
        request: what to decode; ``on_token`` requires ``beam=1``.
        beam: number of hypotheses of each sentence.
        n_best: number of hypotheses to return for each sentence, at most ``beam``.
        length: length penalty of the score (None: `NoPenalty`).
        coverage: coverage penalty of the score; requires source lengths and attention.
        unfinished: rank unfinished hypotheses by score among the finished ones (``keep``) or after them
            (``drop``).

    Returns:
        For each sentence, in their order, up to ``n_best`` hypotheses by descending score; with
        ``unfinished="drop"``, all finished ones come first. Fewer are returned if fewer exist.

    Raises:
        WorkError: the logits are not a distribution, or only forbidden tokens are possible.
        RequestError: a coverage penalty without attention over the source.
    """
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must be between 1 and beam ({beam}), got {n_best}")
    if request.on_token is not None and beam > 1:
        raise ValueError(f"on_token requires beam=1, got {beam}: the tokens are only known at the end")
    rules = _Rules(request.end, beam, n_best, length or NoPenalty(), coverage, unfinished)
    results = [_SentenceResult(rules, most) for most in request.max_lengths]
    sentences, output = request.begin()
    running = Running.start(sentences, _read_lengths(request, coverage))
    while running.sentences:
        if coverage is not None:
            running = running.attending(output.attention)
        candidates = candidates_of(output.logits, request.banned, running.sums, 2 * beam, running.position)
        _collect_finished(running, candidates, results, rules)
        extended, parents = running.extend(candidates, beam, request.end)
        still = _still_running(extended, results)
        if request.on_token is not None:
            _log(extended, results, request.on_token)
        if still:
            output = _advance(request.step, output, extended, parents, still)
        running = extended.keep(still)
    return [each.hypotheses() for each in results]


@dataclass(frozen=True)
class _Rules:
    """Settings of the search."""

    end: int
    beam: int
    n_best: int
    length: LengthPenalty
    coverage: CoveragePenalty | None
    unfinished: Unfinished

    def hypothesis(
        self, ids: list[int], log_probs: list[float], finished: bool, attended: Float[np.ndarray, " S"]
    ) -> Hypothesis:
        penalty = 0.0 if self.coverage is None else self.coverage.of(torch.from_numpy(attended))
        total = score(log_probs, self.length, penalty)
        return Hypothesis(tuple(ids), tuple(log_probs), finished, total, penalty)


@dataclass
class _SentenceResult:
    """Best ``n_best`` hypotheses of one sentence so far, best first."""

    rules: _Rules
    most: int
    finished: list[Hypothesis] = field(default_factory=list)
    unfinished: list[Hypothesis] = field(default_factory=list)

    def add(self, hypothesis: Hypothesis) -> None:
        """Insert it by score, after earlier hypotheses with the same score."""
        group = self.finished if hypothesis.finished else self.unfinished
        insort(group, hypothesis, key=lambda h: -h.score)
        del group[self.rules.n_best :]

    def settled(self, best_sum: float, position: int) -> bool:
        """Return whether no running hypothesis can change the result; ``best_sum`` is the best of them.

        Its score is at most ``best_sum`` over the largest divisor, because further log-probabilities and the
        coverage term are at most 0.
        """
        if best_sum == NEVER:
            if not self.finished:
                raise no_token_left(position - 1)
            return True
        if position == self.most or (self.rules.beam == 1 and self.finished):
            return True
        if len(self.finished) < self.rules.n_best:
            return False
        return self.finished[-1].score >= best_sum / self.rules.length.divisor(self.most)

    def hypotheses(self) -> list[Hypothesis]:
        """Return the result; the empty hypothesis if the maximum length is 0."""
        if self.most == 0:
            return [Hypothesis((), (), False, 0.0)]
        every = self.finished + self.unfinished
        if self.rules.unfinished == "keep":
            every.sort(key=lambda h: -h.score)  # stable: finished ones first among equal scores
        return every[: self.rules.n_best]


def _read_lengths(request: Request, coverage: CoveragePenalty | None) -> list[int]:
    """Return the number of source positions to track: 0 without a coverage penalty."""
    if coverage is None:
        return [0] * len(request.max_lengths)
    if request.source_lengths is None:
        raise ValueError("a coverage penalty requires source_lengths for all sentences")
    return list(request.source_lengths)


def _collect_finished(
    running: Running, candidates: Candidates, results: list[_SentenceResult], rules: _Rules
) -> None:
    """Collect hypotheses that end among the best ``beam`` candidates of each sentence."""
    ends = candidates.ids == rules.end
    if not ends.any():
        return
    ends &= candidates.sums > NEVER
    for i, c in np.argwhere(ends[:, : rules.beam]).tolist():
        row = int(candidates.rows[i, c])
        log_probs = [*running.log_probs[i, row].tolist(), float(candidates.log_probs[i, c])]
        ids = running.ids[i, row].tolist()
        of_sentence = results[running.sentences[i]]
        of_sentence.add(rules.hypothesis(ids, log_probs, True, running.attended_of(i, row)))


def _still_running(running: Running, results: list[_SentenceResult]) -> list[int]:
    """Return the indices within ``running`` of sentences to continue; complete the others."""
    still = []
    for i, (b, best_sum) in enumerate(zip(running.sentences, running.sums[:, 0].tolist(), strict=True)):
        of_sentence = results[b]
        if not of_sentence.settled(best_sum, running.position):
            still.append(i)
        elif running.position == of_sentence.most:
            _collect_unfinished(running, i, of_sentence)
    return still


def _collect_unfinished(running: Running, i: int, result: _SentenceResult) -> None:
    """Collect hypotheses that are still running at the maximum length."""
    for row in np.flatnonzero(running.sums[i] > NEVER).tolist():
        ids, log_probs = running.ids[i, row].tolist(), running.log_probs[i, row].tolist()
        result.add(result.rules.hypothesis(ids, log_probs, False, running.attended_of(i, row)))


def _log(running: Running, results: list[_SentenceResult], on_token: OnToken) -> None:
    """Report the newest token of each sentence unless its only hypothesis has just finished."""
    for b, token in zip(running.sentences, running.ids[:, 0, -1].tolist(), strict=True):
        if not results[b].finished:
            on_token(b, token)


def _advance(
    step: StepFunction,
    output: StepOutput,
    running: Running,
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
