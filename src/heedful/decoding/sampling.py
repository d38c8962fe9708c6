"""Sampling from the model's distribution, with temperature, top-k, top-p and min-p."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.greedy import Chosen, most_probable, write
from heedful.decoding.probabilities import best, log_probabilities
from heedful.decoding.protocol import Hypothesis, Request

_NEVER = float("-inf")


def sample(
    request: Request,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    n: int = 1,
) -> list[list[Hypothesis]]:
    """Sample ``n`` hypotheses for each sentence, token by token.

    Log-probabilities are divided by ``temperature``; then `keep_top_k`, `keep_top_p` and `keep_min_p` are
    applied in this order, and one token is drawn from the remaining ones. Samples depend only on (``seed``,
    ordinal, index of the sample, position) and the model, not on the other sentences of the batch.

    Args:
        request: what to decode; ``on_token`` requires ``n=1``.
        temperature: 0 or more; 0 selects the most probable token.
        top_k: keep the k most probable tokens; None keeps all.
        top_p: keep the most probable tokens with this total probability; 1 keeps all.
        min_p: keep tokens with at least this probability relative to the largest; 0 keeps all.
        seed: 0 or more.
        n: number of samples per sentence.

    Returns:
        For each sentence its samples, in order. ``log_probs`` are those of the model, before temperature and
        filters, and ``score`` is their sum.

    Raises:
        WorkError: as in `greedy.greedy`.
    """
    _check(temperature, top_k, top_p, min_p, seed, n)
    if request.on_token is not None and n > 1:
        raise ValueError(f"on_token requires n=1, got {n}")
    if temperature == 0:
        return write(request, most_probable, n)
    most = request.max_lengths
    ordinals = range(len(most)) if request.ordinals is None else request.ordinals
    noise = uniforms(seed, ordinals, n, max(most, default=0))
    return write(request, _Draw(noise, temperature, top_k, top_p, min_p), n)


def _check(temperature: float, top_k: int | None, top_p: float, min_p: float, seed: int, n: int) -> None:
    limits = {
        "temperature must be finite and at least 0": 0 <= temperature < float("inf"),
        "top_k must be at least 1": top_k is None or top_k >= 1,
        "top_p must be in [0, 1]": 0 <= top_p <= 1,
        "min_p must be in [0, 1]": 0 <= min_p <= 1,
        "seed must be at least 0": seed >= 0,
        "n must be at least 1": n >= 1,
    }
    for message, holds in limits.items():
        if not holds:
            raise ValueError(message)


@dataclass(frozen=True)
class _Draw:
    """Draws tokens with the uniform numbers in ``noise: [B, n, L]``."""

    noise: Float[Tensor, "B n L"]
    temperature: float
    top_k: int | None
    top_p: float
    min_p: float

    def __call__(
        self,
        logits: Float[Tensor, "N V"],
        forbidden: Int[Tensor, " F"],
        sentences: Sequence[int],
        position: int,
    ) -> Chosen:
        log_probs = log_probabilities(logits, forbidden, position)
        weights = sharpen(log_probs, self.temperature)
        if self.top_k is not None:
            weights = keep_top_k(weights, self.top_k)
        if self.top_p < 1:
            weights = keep_top_p(weights, self.top_p)
        if self.min_p > 0:
            weights = keep_min_p(weights, self.min_p)
        ids = draw(weights, self.noise[list(sentences), :, position].flatten())
        chosen = log_probs.gather(1, ids[:, None]).flatten().clamp(max=0.0)
        return ids.cpu().numpy(), chosen.cpu().numpy()


def sharpen(weights: Float[Tensor, "N V"], temperature: float) -> Float[Tensor, "N V"]:
    """Return ``w / temperature``, shifted so that the largest of each row is 0, to avoid overflow."""
    largest = weights.amax(dim=1, keepdim=True)
    return (weights - largest.nan_to_num(neginf=0.0)) / temperature


def keep_top_k(weights: Float[Tensor, "N V"], k: int) -> Float[Tensor, "N V"]:
    """Keep the ``k`` most probable tokens, the lowest among ties; set the others to minus infinity."""
    values, ids = best(weights, k)
    return torch.full_like(weights, _NEVER).scatter_(1, ids, values)


def keep_top_p(weights: Float[Tensor, "N V"], p: float) -> Float[Tensor, "N V"]:
    """Keep the smallest set of most probable tokens with total probability at least ``p``, at least one.

    Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", equation 2.
    """
    ordered, ids = weights.sort(dim=1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=1)
    before = probabilities.cumsum(dim=1) - probabilities
    drop = before >= p
    drop[:, 0] = False
    return torch.empty_like(weights).scatter_(1, ids, ordered.masked_fill(drop, _NEVER))


def keep_min_p(weights: Float[Tensor, "N V"], p: float) -> Float[Tensor, "N V"]:
    """Keep the tokens at least ``p`` times as probable as the most probable one (Nguyen et al. 2024)."""
    probabilities = weights.softmax(dim=1)
    return weights.masked_fill(probabilities < p * probabilities.amax(dim=1, keepdim=True), _NEVER)


def draw(weights: Float[Tensor, "N V"], uniform: Float[Tensor, " N"]) -> Int[Tensor, " N"]:
    """Return the token at which the cumulative ``softmax(weights)`` first exceeds ``uniform`` (in [0, 1))."""
    # 64 bits, because 32 bits would lose rare tokens of a large vocabulary. MPS does not support 64 bits.
    wide = weights.cpu() if weights.device.type == "mps" else weights
    cumulative = wide.double().softmax(dim=1).cumsum(dim=1)
    # uniform is at most 1 - 2**-53, so the product rounds to less than the total.
    threshold = uniform.to(cumulative.device)[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, threshold, right=True).flatten().to(weights.device)
    # Rows without possible tokens have no sum; the caller detects that the token is impossible.
    return ids.clamp(max=weights.shape[1] - 1)


def uniforms(seed: int, ordinals: Sequence[int], n: int, length: int) -> Float[Tensor, "B n L"]:
    """Draw uniform numbers in [0, 1), in 64 bits; row (b, i) depends only on (``seed``, ``ordinals[b]``, i).

    The bits come from Philox counters (Salmon et al. 2011); a shorter row is a prefix of a longer one.
    """
    rows = [_stream(seed, ordinal, i, length) for ordinal in ordinals for i in range(n)]
    return torch.from_numpy(np.array(rows).reshape(len(ordinals), n, length))


def _stream(seed: int, ordinal: int, sample_index: int, length: int) -> np.ndarray:
    key = np.random.SeedSequence(seed, spawn_key=(ordinal, sample_index))
    bits = np.random.Philox(key).random_raw(length)
    return (bits >> np.uint64(11)) * 2.0**-53
