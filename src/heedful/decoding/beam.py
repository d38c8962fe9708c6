"""Beam search over a batch of sentences, with exact stopping."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.probabilities import check_request, no_token_left
from heedful.decoding.protocol import DecodingState, Hypothesis, OnToken, StepFunction, StepOutput
from heedful.decoding.running import NEVER, Candidates, Running, candidates_of
from heedful.decoding.scoring import CoveragePenalty, LengthPenalty, NoPenalty, score


@torch.no_grad()
def beam_search(
    logits: Float[Tensor, "B V"],
    state: DecodingState,
    step: StepFunction,
    *,
    end: int,
    max_lengths: Sequence[int],
    beam: int,
    forbidden: Sequence[int] = (),
    n_best: int = 1,
    length: LengthPenalty | None = None,
    coverage: CoveragePenalty | None = None,
    attention: Float[Tensor, "B S"] | None = None,
    source_lengths: Sequence[int] | None = None,
    on_token: OnToken | None = None,
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
    hypothesis, which makes it `greedy.greedy` under every penalty. At the maximum length, the
    running ones are taken as unfinished hypotheses where fewer than ``n_best`` have finished.
    A sentence that is done leaves the batch.

    Args:
        logits: of the first token after the prefixes.
        state: of B sentences, width 1.
        step: continues hypotheses.
        end: the token that finishes a hypothesis.
        max_lengths: for each sentence, the most tokens to generate, the end token included.
        forbidden: tokens never chosen; may hold ``end``.
        beam: hypotheses that run side by side for each sentence.
        n_best: how many to return for each sentence, at most ``beam``.
        length: length penalty of the score (None: `NoPenalty`).
        coverage: coverage penalty of the score; needs the next two arguments, and attention from
            every step.
        attention: the weights over the source with which ``logits`` were computed.
        source_lengths: how many positions of each sentence's source are real.
        on_token: told of every token as soon as it is chosen; with a ``beam`` of 1 only.

    Returns:
        For each sentence, in their order, up to ``n_best`` hypotheses: finished ones by falling
        score, then unfinished ones by falling score. There are fewer where fewer are possible.

    Raises:
        WorkError: the logits hold no distribution, or leave only forbidden tokens possible.
        RequestError: a coverage penalty without attention over the source.
    """
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must lie in 1 .. beam ({beam}), not {n_best}")
    if on_token is not None and beam > 1:
        raise ValueError("which tokens of several hypotheses are written is known in the end alone")
    banned = check_request(logits, end, max_lengths, forbidden)
    rules = _Rules(end, beam, n_best, length or NoPenalty(), coverage)
    found = [_Found(rules, most) for most in max_lengths]
    sentences = [b for b, most in enumerate(max_lengths) if most > 0]
    if sentences and len(sentences) < len(found):
        logits, state = logits[sentences], state.keep(sentences)
        attention = None if attention is None else attention[sentences]
    running = Running.start(sentences, _read_lengths(coverage, source_lengths, len(found)))
    output = StepOutput(logits, state, attention)
    while running.sentences:
        if coverage is not None:
            running = running.attending(output.attention)
        candidates = candidates_of(output.logits, banned, running.sums, 2 * beam, running.position)
        _collect_finished(running, candidates, found, rules)
        extended, parents = running.extend(candidates, beam, end)
        still = _unsettled(extended, found)
        if on_token is not None:
            _tell(extended, found, on_token)
        if still:
            output = _advance(step, output.state, extended, parents, still, logits.device)
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
        return (self.finished + self.unfinished)[: self.rules.n_best]


def _read_lengths(
    coverage: CoveragePenalty | None, source_lengths: Sequence[int] | None, n: int
) -> list[int]:
    """The source positions to keep account of: none, unless there is a coverage penalty."""
    if coverage is None:
        return [0] * n
    if source_lengths is None or len(source_lengths) != n:
        raise ValueError(f"a coverage penalty needs the source lengths of all {n} sentences")
    return list(source_lengths)


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


def _tell(running: Running, found: list[_Found], on_token: OnToken) -> None:
    """The newest token of each sentence whose only hypothesis has not just finished."""
    for b, token in zip(running.sentences, running.ids[:, 0, -1].tolist(), strict=True):
        if not found[b].finished:
            on_token(b, token)


def _advance(
    step: StepFunction,
    state: DecodingState,
    running: Running,
    parents: Int[np.ndarray, "A W"],
    still: list[int],
    device: torch.device,
) -> StepOutput:
    """Let the finished sentences go, and write the last token of every hypothesis of the others."""
    n, width, ids = len(still), parents.shape[1], running.ids[:, :, -1]
    if n < len(running.sentences):
        state, ids, parents = state.keep(still), ids[still], parents[still]
    tokens = torch.from_numpy(ids.reshape(-1)).to(device)
    if running.position == 1:
        return step(tokens, state.widen(width) if width > 1 else state, None)
    own = np.arange(n * width).reshape(n, width)
    rows = parents + own[:, :1]
    return step(tokens, state, None if (rows == own).all() else torch.from_numpy(rows.reshape(-1)).to(device))
