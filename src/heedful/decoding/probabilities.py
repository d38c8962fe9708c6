"""From logits to log-probabilities, and the best of them: what all decoders share."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.engine.native_library import library
from heedful.errors import WorkError

NATIVE_MOST = 64
"""The native ranking keeps its best in order by insertion, which suits a few; more are sorted by torch."""


def log_probabilities(
    logits: Float[Tensor, "N V"], forbidden: Int[Tensor, " F"], position: int
) -> Float[Tensor, "N V"]:
    """``log_softmax`` in 32 bits, then minus infinity for the forbidden tokens.

    They are taken out after the normalisation: what remains are the model's own probabilities, so
    a score does not depend on what was forbidden.

    Args:
        logits: minus infinity is allowed; it must leave a token possible.
        forbidden: tokens that are never chosen.
        position: how many tokens were generated before, for the message.

    Raises:
        WorkError: a row has no distribution, because of a NaN, plus infinity or nothing possible.
    """
    log_probs = torch.log_softmax(logits, -1, dtype=torch.float32)
    # A row without a distribution comes out as NaN everywhere, so one column tells.
    broken = log_probs[:, 0].isnan().nonzero().flatten().tolist()
    if broken:
        raise WorkError(_no_distribution(logits[broken[0]], broken, position))
    return log_probs.index_fill_(1, forbidden, float("-inf"))


def _no_distribution(logits: Tensor, rows: list[int], position: int) -> str:
    found = "NaN" if logits.isnan().any() else "infinity" if (logits > 0).any() else "only -infinity"
    return (
        f"the model's logits for generated token {position + 1} hold {found} "
        f"(in {len(rows)} of the hypotheses being written); its weights or inputs are damaged, "
        "or the training that made them diverged"
    )


def no_token_left(position: int) -> WorkError:
    """The error for a sentence that nothing which is allowed can continue."""
    return WorkError(
        f"no token may come at generated position {position + 1}: "
        "the model gives all its probability to forbidden tokens"
    )


def best(log_probs: Float[Tensor, "N V"], k: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """The ``k`` greatest of each row (at most V), best first; of equals, the lowest tokens.

    `torch.topk` leaves open which of equal values it takes. So one more is asked for: only where
    the last two agree does the choice depend on it, and such rows are sorted whole.
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
    logits: Float[Tensor, "N V"], forbidden: Int[Tensor, " F"], k: int, position: int
) -> tuple[Float[np.ndarray, "N k"], Int[np.ndarray, "N k"]]:
    """The ``k`` most probable tokens of each row (at most V), and their log-probabilities in 32 bits.

    What `log_probabilities` and `best` give, without the log-probabilities of all the others. Where
    fewer than ``k`` are possible, the last places have a log-probability of minus infinity, and any
    token. None is above 0, though rounding can lift one a hair.

    Raises:
        WorkError: as `log_probabilities`.
    """
    k = min(k, logits.shape[1])
    native = library() if logits.device.type == "cpu" and logits.dtype == torch.float32 else None
    if native is not None and 1 <= k <= NATIVE_MOST and logits.is_contiguous():
        threads = torch.get_num_threads()
        found = native.rank(logits.detach().numpy(), forbidden.numpy(), k, threads)
        if found is not None:
            return found
    values, ids = best(log_probabilities(logits, forbidden, position), k)
    return values.clamp(max=0.0).cpu().numpy(), ids.cpu().numpy()
