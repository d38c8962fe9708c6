"""Greedy decoding, and the token-by-token loop that it shares with `heedful.decoding.sampling`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.decoding.constraints import ConstrainedRows
from heedful.decoding.probabilities import no_token_left, ranked
from heedful.decoding.protocol import Hypothesis, Request
from heedful.decoding.rules import OutputRules
from heedful.decoding.scoring import NoPenalty, score

Chosen = tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"]]
"""A token for each row, and the model's log-probability of it (at most 0)."""

Choose = Callable[[Tensor, Tensor, Sequence[int], int, Tensor | None], Chosen]
"""Chooses the next tokens: ``choose(logits [N, V], forbidden [F], sentences, position, blocked [N, V])``.

The rows belong to ``sentences`` (the same number of rows each), after ``position`` generated tokens.
"""


class GreedyConfig(OutputRules):
    """Greedy decoding: the most probable token at every step (`heedful.decoding.greedy.greedy`)."""

    kind: Literal["greedy"] = "greedy"


def greedy(request: Request) -> list[Hypothesis]:
    """Choose the most probable token until the end token or the maximum length.

    Returns:
        One hypothesis per sentence, in their order; ``score`` is the sum of ``log_probs``.

    Raises:
        WorkError: the logits are not a distribution, or only forbidden tokens are possible.
    """
    return [hypothesis for (hypothesis,) in generate(request, most_probable)]


def most_probable(
    logits: Float[Tensor, "N V"],
    forbidden: Int[Tensor, " F"],
    sentences: Sequence[int],
    position: int,
    blocked: Bool[Tensor, "N V"] | None,
) -> Chosen:
    """Choose the most probable token; the lowest among ties."""
    log_probs, ids = ranked(logits, forbidden, 1, position, blocked)
    return ids[:, 0], log_probs[:, 0]


@dataclass
class Draft:
    """A hypothesis being generated.

    Args:
        max_length: maximum number of its tokens, the end token included.
        ids, log_probs, finished, violated: as of a `Hypothesis`.
        stuck: whether its constraints leave no token possible.
    """

    max_length: int
    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finished: bool = False
    stuck: bool = False
    violated: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether it has a next token."""
        return not self.finished and not self.stuck and len(self.log_probs) < self.max_length

    @property
    def is_cut(self) -> bool:
        """Whether it ended at its maximum length."""
        return not self.running and not self.finished and not self.stuck

    def add(
        self, token: int, log_prob: float, end: int, constrained: ConstrainedRows | None = None, row: int = 0
    ) -> bool:
        """Append a token; return whether it is one of the output's, not the end.

        Args:
            token: the chosen token.
            log_prob: its log-probability; minus infinity if no token is possible.
            end: the end token.
            constrained: the constraints.
            row: the row of this hypothesis in ``constrained``.

        Raises:
            WorkError: no token is possible, and not because of constraints.
        """
        if log_prob == float("-inf"):
            self.violated = () if constrained is None else constrained.blocking(row)
            self.stuck = bool(self.violated)
            if self.stuck:
                return False
            raise no_token_left(len(self.log_probs))
        self.log_probs.append(log_prob)
        self.finished = token == end
        if not self.finished:
            self.ids.append(token)
        return not self.finished

    @property
    def hypothesis(self) -> Hypothesis:
        """The hypothesis so far."""
        total = score(self.log_probs, NoPenalty())
        ids, log_probs = tuple(self.ids), tuple(self.log_probs)
        return Hypothesis(ids, log_probs, self.finished, total, violated=self.violated)


@torch.no_grad()
def generate(request: Request, choose: Choose, n: int = 1) -> list[list[Hypothesis]]:
    """Generate ``n`` hypotheses per sentence with tokens from ``choose``; see `greedy`.

    A sentence leaves the batch when all its hypotheses have finished.
    """
    drafts = [[Draft(max_length) for _ in range(n)] for max_length in request.max_lengths]
    sentences, (logits, state, _) = request.begin()
    if n > 1 and sentences:
        logits, state = logits.repeat_interleave(n, 0), state.expand(n)
    constrained, blocked = request.constrained(sentences, n), None
    position = 0
    while sentences:
        if constrained is not None:
            logits, blocked = constrained.restrict(logits)
        ids, log_probs = choose(logits, request.banned, sentences, position, blocked)
        _record(request, drafts, sentences, ids, log_probs, constrained)
        unfinished = [i for i, b in enumerate(sentences) if any(d.running for d in drafts[b])]
        running = request.wanted(sentences, unfinished)
        if not running:
            break
        if len(running) < len(sentences):
            ids, state = ids.reshape(-1, n)[running].reshape(-1), state.keep(running)
            sentences = [sentences[i] for i in running]
            if constrained is not None:
                constrained.keep([i * n + k for i in running for k in range(n)])
        logits, state, _ = request.step(torch.from_numpy(ids).to(logits.device), state, None)
        position += 1
    return [[draft.hypothesis for draft in group] for group in drafts]


def _record(
    request: Request,
    drafts: list[list[Draft]],
    sentences: Sequence[int],
    ids: Int[np.ndarray, " N"],
    log_probs: Float[np.ndarray, " N"],
    constrained: ConstrainedRows | None,
) -> None:
    """Append the chosen tokens to the running drafts."""
    rows = [(b, draft) for b in sentences for draft in drafts[b]]
    appended = [request.end] * len(rows)
    for n, ((sentence, draft), token, log_prob) in enumerate(
        zip(rows, ids.tolist(), log_probs.tolist(), strict=True)
    ):
        if draft.running and draft.add(token, log_prob, request.end, constrained, n):
            appended[n] = token
            if request.on_token is not None:
                request.on_token(sentence, token)
    if constrained is not None:
        constrained.advance(range(len(rows)), appended)
        for n, (_, draft) in enumerate(rows):
            if draft.is_cut:
                draft.violated = constrained.unmet(n)
