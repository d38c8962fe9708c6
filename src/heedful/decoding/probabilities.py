"""Log-probabilities from logits, and their top k, shared by all decoders."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.engine.native import library
from heedful.errors import WorkError

NATIVE_MOST = 64
"""Largest k of the native ranking, which uses insertion sort; larger k are sorted by torch."""


def log_probabilities(
    logits: Float[Tensor, "N V"],
    forbidden: Int[Tensor, " F"],
    position: int,
    blocked: Bool[Tensor, "N V"] | None = None,
) -> Float[Tensor, "N V"]:
    """Compute ``log_softmax`` in fp32, then set forbidden and blocked tokens to minus infinity.

    They are masked after normalisation, so that probabilities and scores are those of the model and do not
    depend on the forbidden tokens.

    Args:
        logits: may contain minus infinity, but not only.
        forbidden: tokens that are never chosen.
        position: number of tokens generated before, for the error message.
        blocked: further tokens that are never chosen, in each row.

    Raises:
        WorkError: a row is not a distribution: it contains NaN, plus infinity or only minus infinity.
    """
    log_probs = torch.log_softmax(logits, -1, dtype=torch.float32)
    # Invalid rows are NaN everywhere, so checking one column suffices.
    invalid_rows = log_probs[:, 0].isnan().nonzero().flatten().tolist()
    if invalid_rows:
        raise WorkError(_no_distribution(logits[invalid_rows[0]], invalid_rows, position))
    log_probs.index_fill_(1, forbidden, float("-inf"))
    return log_probs if blocked is None else log_probs.masked_fill_(blocked, float("-inf"))


def _no_distribution(logits: Tensor, rows: list[int], position: int) -> str:
    problem = "NaN" if logits.isnan().any() else "infinity" if (logits > 0).any() else "only -infinity"
    return (
        f"the model's logits for generated token {position + 1} contain {problem} "
        f"(in {len(rows)} of the running hypotheses); its weights or inputs are damaged, "
        "or its training diverged"
    )


def no_token_left(position: int) -> WorkError:
    """Return the error for a sentence that no allowed token can continue."""
    return WorkError(
        f"no token is possible at generated position {position + 1}: "
        "the model assigns all probability to forbidden tokens"
    )


def best(log_probs: Float[Tensor, "N V"], k: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """Return the ``k`` largest of each row (at most V), best first; the lowest tokens among ties.

    `torch.topk` does not specify its choice among ties. One more value is therefore requested: only rows in
    which the last two values are equal are ambiguous, and these are sorted completely.
    """
    k = min(k, log_probs.shape[1])
    values, ids = log_probs.topk(min(k + 1, log_probs.shape[1]), dim=1)
    if values.shape[1] > k:
        tied = ((values[:, k - 1] == values[:, k]) & ~values[:, k].isinf()).nonzero().flatten()
        values, ids = values[:, :k], ids[:, :k]
        if tied.numel():
            ids[tied] = log_probs[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    ids = ids.sort(dim=1).values
    values, order = log_probs.gather(1, ids).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, order)


def ranked(
    logits: Float[Tensor, "N V"],
    forbidden: Int[Tensor, " F"],
    k: int,
    position: int,
    blocked: Bool[Tensor, "N V"] | None = None,
) -> tuple[Float[np.ndarray, "N k"], Int[np.ndarray, "N k"]]:
    """Return the ``k`` most probable tokens of each row (at most V), and their log-probabilities in fp32.

    Equivalent to `log_probabilities` and `best`, without computing all log-probabilities. If fewer than
    ``k`` tokens are possible, the last entries have log-probability minus infinity and arbitrary tokens.
    Log-probabilities are clamped to at most 0, because rounding can exceed it.

    Raises:
        WorkError: as in `log_probabilities`.
    """
    k = min(k, logits.shape[1])
    native = library() if logits.device.type == "cpu" and logits.dtype == torch.float32 else None
    if native is not None and blocked is None and 1 <= k <= NATIVE_MOST and logits.is_contiguous():
        n_threads = torch.get_num_threads()
        ranked = native.rank(logits.detach().numpy(), forbidden.numpy(), k, n_threads)
        if ranked is not None:
            return ranked
    values, ids = best(log_probabilities(logits, forbidden, position, blocked), k)
    return values.clamp(max=0.0).cpu().numpy(), ids.cpu().numpy()
