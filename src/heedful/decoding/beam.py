"""Beam search over a batch of sentences, with exact stopping.

Libraries differ in what becomes of hypotheses that have no end token at the maximum length. Here they are
returned only if fewer than ``n_best`` have finished, and after those (``unfinished="drop"``), or are ranked
among the finished ones by score (``"keep"``). transformers does the latter: with ``early_stopping="never"``
and the penalty `AverageLength`, the results are equal. fairseq writes the end token after the last token
allowed and counts its log-probability, so that every hypothesis is finished.
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
"""What becomes of hypotheses without an end token at the maximum length: see `beam_search`."""


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

    A step ranks all one-token continuations of a sentence's hypotheses by log-probability; of
    equals, those of the better hypothesis, then of the lower token, come first. An end token among
    the best ``beam`` of them finishes a hypothesis; the best others, as many as there are places,
    go on. Length and coverage penalties rank finished hypotheses; those that run are all of one
    length.

    A sentence is done when (exact stopping) it has ``n_best`` finished hypotheses that no running
    one can still beat: a running one's score can rise to its log-probability over
    ``length.divisor(maximum)`` and no higher. A beam of one is done at its first finished
    hypothesis, which makes it `greedy.greedy` under every penalty. A sentence that is done leaves the batch.

    Hypotheses that still run at the maximum length have no end token; see the head of this file.

    Args:
        request: what to decode; tokens can be told where ``beam`` is 1 only.
        beam: hypotheses that run side by side for each sentence.
        n_best: how many to return for each sentence, at most ``beam``.
        length: length penalty of the score (None: `NoPenalty`).
        coverage: coverage penalty of the score; needs the source lengths and attention.
        unfinished: whether unfinished hypotheses are ranked by score among the finished ones (``keep``), or
            after them (``drop``).

    Returns:
        For each sentence, in their order, up to ``n_best`` hypotheses by falling score; with
        ``unfinished="drop"``, all finished ones come first. There are fewer if fewer are possible.

    Raises:
        WorkError: the logits hold no distribution, or leave only forbidden tokens possible.
        RequestError: a coverage penalty without attention over the source.
    """
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must lie in 1 .. beam ({beam}), not {n_best}")
    if request.on_token is not None and beam > 1:
        raise ValueError("which tokens of several hypotheses are written is known in the end alone")
    rules = _Rules(request.end, beam, n_best, length or NoPenalty(), coverage, unfinished)
    found = [_Found(rules, most) for most in request.max_lengths]
    sentences, output = request.begin()
    running = Running.start(sentences, _read_lengths(request, coverage))
    while running.sentences:
        if coverage is not None:
            running = running.attending(output.attention)
        candidates = candidates_of(output.logits, request.banned, running.sums, 2 * beam, running.position)
        _collect_finished(running, candidates, found, rules)
        extended, parents = running.extend(candidates, beam, request.end)
        still = _unsettled(extended, found)
        if request.on_token is not None:
            _log(extended, found, request.on_token)
        if still:
            output = _advance(request.step, output, extended, parents, still)
        running = extended.keep(still)
    return [each.hypotheses() for each in found]


@dataclass(frozen=True)
class _Rules:
    """How the search was asked to be."""

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
class _Found:
    """What the search of one sentence has come to: the best ``n_best``, best first."""

    rules: _Rules
    most: int
    finished: list[Hypothesis] = field(default_factory=list)
    unfinished: list[Hypothesis] = field(default_factory=list)

    def add(self, hypothesis: Hypothesis) -> None:
        """Put it in its place, after equals that were found before."""
        group = self.finished if hypothesis.finished else self.unfinished
        insort(group, hypothesis, key=lambda h: -h.score)
        del group[self.rules.n_best :]

    def settled(self, best_sum: float, position: int) -> bool:
        """Whether no hypothesis that runs can still change the answer; ``best_sum`` is the best of them.

        Its score can at most reach ``best_sum`` over the greatest divisor: what is yet to come has
        log-probabilities, and a coverage term, of at most 0.
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
        """The answer. Without any room, it is the empty hypothesis."""
        if self.most == 0:
            return [Hypothesis((), (), False, 0.0)]
        every = self.finished + self.unfinished
        if self.rules.unfinished == "keep":
            every.sort(key=lambda h: -h.score)  # of equals, the finished one first
        return every[: self.rules.n_best]


def _read_lengths(request: Request, coverage: CoveragePenalty | None) -> list[int]:
    """The source positions to keep account of: none, unless there is a coverage penalty."""
    if coverage is None:
        return [0] * len(request.max_lengths)
    if request.source_lengths is None:
        raise ValueError("a coverage penalty needs the source lengths of all sentences")
    return list(request.source_lengths)


def _collect_finished(running: Running, candidates: Candidates, found: list[_Found], rules: _Rules) -> None:
    """Take the end tokens among the best ``beam`` candidates of each sentence."""
    ends = candidates.ids == rules.end
    if not ends.any():
        return
    ends &= candidates.sums > NEVER
    for i, c in np.argwhere(ends[:, : rules.beam]).tolist():
        row = int(candidates.rows[i, c])
        log_probs = [*running.log_probs[i, row].tolist(), float(candidates.log_probs[i, c])]
        ids = running.ids[i, row].tolist()
        of_sentence = found[running.sentences[i]]
        of_sentence.add(rules.hypothesis(ids, log_probs, True, running.attended_of(i, row)))


def _unsettled(running: Running, found: list[_Found]) -> list[int]:
    """The sentences (numbered within ``running``) to go on with; the others are brought to their end."""
    still = []
    for i, (b, best_sum) in enumerate(zip(running.sentences, running.sums[:, 0].tolist(), strict=True)):
        of_sentence = found[b]
        if not of_sentence.settled(best_sum, running.position):
            still.append(i)
        elif running.position == of_sentence.most:
            _collect_unfinished(running, i, of_sentence)
    return still


def _collect_unfinished(running: Running, i: int, found: _Found) -> None:
    """What still runs at the maximum length."""
    for row in np.flatnonzero(running.sums[i] > NEVER).tolist():
        ids, log_probs = running.ids[i, row].tolist(), running.log_probs[i, row].tolist()
        found.add(found.rules.hypothesis(ids, log_probs, False, running.attended_of(i, row)))


def _log(running: Running, found: list[_Found], on_token: OnToken) -> None:
    """The newest token of each sentence whose only hypothesis has not just finished."""
    for b, token in zip(running.sentences, running.ids[:, 0, -1].tolist(), strict=True):
        if not found[b].finished:
            on_token(b, token)


def _advance(
    step: StepFunction,
    output: StepOutput,
    running: Running,
    parents: Int[np.ndarray, "A W"],
    still: list[int],
) -> StepOutput:
    """Let the finished sentences go, and write the last token of every hypothesis of the others."""
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
