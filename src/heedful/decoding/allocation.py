"""Dynamic beam allocation: a beam search that leads to outputs with required phrases.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural Machine
Translation". The beam is divided among banks: hypotheses with the same progress towards the required
phrases compete with each other alone, so those that have begun a phrase are not displaced by more probable
ones without it. Progress is the number of tokens of the phrases that are written and of the unfinished one
that is nearest to its end. The next token of each unfinished phrase is always a candidate. As some hypothesis
of the most progress is kept, and can go on, all phrases are written after as many steps as they have tokens,
unless another constraint prevents it.

Axes: A active sentences, W hypotheses of each, C candidates, V the vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.constraints import ConstrainedRows
from heedful.decoding.probabilities import best

NEVER = float("-inf")


class Candidates(NamedTuple):
    """One-token continuations of the hypotheses of each sentence, in order of preference."""

    sums: Float[np.ndarray, "A C"]
    """Log-probability of the continued hypothesis."""
    rows: Int[np.ndarray, "A C"]
    """Index of the continued hypothesis, 0 .. W-1."""
    ids: Int[np.ndarray, "A C"]
    log_probs: Float[np.ndarray, "A C"]
    """Log-probability of the token."""


class _Candidate(NamedTuple):
    """One continuation of a hypothesis of a sentence."""

    total: float
    row: int
    token: int
    log_prob: float
    progress: int


def allocated_candidates(
    log_probs: Float[Tensor, "N V"],
    sums: Float[np.ndarray, "A W"],
    constrained: ConstrainedRows,
    beam: int,
    end: int,
) -> Candidates:
    """Return continuations of each sentence, in the order in which the beam takes them.

    The first ``beam`` are chosen bank by bank. For each end token among them, the next one continues a
    hypothesis of the same bank.

    Args:
        log_probs: of the next token of each hypothesis, after constraints.
        sums: log-probability of each hypothesis.
        constrained: states of the constraints of the hypotheses.
        beam: number of hypotheses to continue.
        end: the end token.
    """
    log_probs = log_probs.clamp(max=0.0).cpu()
    width = sums.shape[1]
    values, ids = (x.numpy() for x in best(log_probs, 2 * beam))
    table = log_probs.numpy()
    chosen: list[list[_Candidate]] = []
    for i, own_sums in enumerate(sums.tolist()):
        pairs: dict[tuple[int, int], tuple[float, float]] = {}
        for row, total in enumerate(own_sums):
            n = i * width + row
            if total > NEVER:
                likely = zip(ids[n].tolist(), values[n].tolist(), strict=True)
                wanted = ((token, float(table[n, token])) for token in constrained.wanted(n))
                pairs |= {(row, token): (total + p, p) for token, p in (*likely, *wanted) if p > NEVER}
        ordered = sorted(pairs.items(), key=lambda pair: (-pair[1][0], pair[0]))
        chosen.append(
            _in_order(
                [
                    _Candidate(total, row, token, p, constrained.progress_after(i * width + row, token))
                    for (row, token), (total, p) in ordered
                ],
                beam,
                end,
            )
        )
    return _as_arrays(chosen)


def _in_order(candidates: Sequence[_Candidate], beam: int, end: int) -> list[_Candidate]:
    """Return candidates, which are sorted by their sums, in the order in which the beam takes them."""
    banks: dict[int, list[_Candidate]] = {}
    for candidate in candidates:
        banks.setdefault(candidate.progress, []).append(candidate)
    by_progress = sorted(banks, reverse=True)
    share, rest = divmod(beam, max(1, len(banks)))
    taken: set[_Candidate] = set()
    for index, progress in enumerate(by_progress):
        taken.update(banks[progress][: share + (index < rest)])
    for candidate in candidates:
        if len(taken) >= beam:
            break
        taken.add(candidate)
    first = [candidate for candidate in candidates if candidate in taken]
    replacements: list[_Candidate] = []
    for ended in (candidate for candidate in first if candidate.token == end):
        others = (c for group in (banks[ended.progress], candidates) for c in group)
        if other := next((c for c in others if c not in taken and c.token != end), None):
            taken.add(other)
            replacements.append(other)
    return first + replacements


def _as_arrays(chosen: Sequence[Sequence[_Candidate]]) -> Candidates:
    """Return the candidates of all sentences; missing ones have a sum of minus infinity."""
    shape = (len(chosen), max(1, *map(len, chosen)) if chosen else 1)
    sums, log_probs = np.full(shape, NEVER), np.full(shape, NEVER, np.float32)
    rows, ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for i, own in enumerate(chosen):
        for c, candidate in enumerate(own):
            sums[i, c], rows[i, c], ids[i, c], log_probs[i, c] = candidate[:4]
    return Candidates(sums, rows, ids, log_probs)
