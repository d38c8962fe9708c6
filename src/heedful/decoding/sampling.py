"""Sampling: tokens drawn from the model's distribution, sharpened and cut as asked."""

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
    """Draw ``n`` hypotheses for each sentence, token by token.

    The logarithms of the probabilities are divided by ``temperature``; then `keep_top_k`,
    `keep_top_p` and `keep_min_p` apply, in this order, each to what the one before left; one token
    is drawn from the rest. What is drawn depends on (``seed``, ordinal, number of the sample,
    position) and the model alone, never on the other sentences of the batch.

    Args:
        request: what to decode; tokens can be told where ``n`` is 1 only.
        temperature: 0 or more; 0 takes the most probable token.
        top_k: how many of the most probable tokens to keep; None keeps all.
        top_p: the probability to keep; 1 keeps all.
        min_p: the least probability to keep, relative to the greatest; 0 keeps all.
        seed: 0 or more.
        n: samples for each sentence.

    Returns:
        For each sentence its samples in the order of their numbers. ``log_probs`` are those of the
        model itself, before temperature and cuts, and ``score`` is their sum.

    Raises:
        WorkError: as in `greedy.greedy`.
    """
    _check(temperature, top_k, top_p, min_p, seed, n)
    if request.on_token is not None and n > 1:
        raise ValueError("the tokens of several samples of a sentence cannot be streamed as one")
    if temperature == 0:
        return write(request, most_probable, n)
    most = request.max_lengths
    ordinals = range(len(most)) if request.ordinals is None else request.ordinals
    noise = uniforms(seed, ordinals, n, max(most, default=0))
    return write(request, _Draw(noise, temperature, top_k, top_p, min_p), n)


def _check(temperature: float, top_k: int | None, top_p: float, min_p: float, seed: int, n: int) -> None:
    limits = {
        "temperature must be a number of at least 0": 0 <= temperature < float("inf"),
        "top_k must be at least 1": top_k is None or top_k >= 1,
        "top_p must lie in 0 .. 1": 0 <= top_p <= 1,
        "min_p must lie in 0 .. 1": 0 <= min_p <= 1,
        "seed must be at least 0": seed >= 0,
        "n must be at least 1": n >= 1,
    }
    for message, holds in limits.items():
        if not holds:
            raise ValueError(message)


@dataclass(frozen=True)
class _Draw:
    """Draws tokens with the numbers in ``noise: [B, n, L]``."""

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
    """``w / temperature``, shifted so that the greatest of each row is 0 and cannot overflow."""
    greatest = weights.amax(dim=1, keepdim=True)
    return (weights - greatest.nan_to_num(neginf=0.0)) / temperature


def keep_top_k(weights: Float[Tensor, "N V"], k: int) -> Float[Tensor, "N V"]:
    """Keep the ``k`` most probable tokens, of equals the lowest; minus infinity for the others."""
    values, ids = best(weights, k)
    return torch.full_like(weights, _NEVER).scatter_(1, ids, values)


def keep_top_p(weights: Float[Tensor, "N V"], p: float) -> Float[Tensor, "N V"]:
    """Keep the fewest most probable tokens that hold at least ``p`` of the probability, at least one.

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
    """The token at which the cumulative ``softmax(weights)`` first exceeds ``uniform`` (in [0, 1))."""
    # 64 bits, because 32 would round away the rare tokens of a large vocabulary. MPS has none.
    wide = weights.cpu() if weights.device.type == "mps" else weights
    cumulative = wide.double().softmax(dim=1).cumsum(dim=1)
    # At most 1 - 2**-53 times the total, which rounds to less than the total.
    threshold = uniform.to(cumulative.device)[:, None] * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, threshold, right=True).flatten().to(weights.device)
    # A row where nothing is possible has no sum; the caller sees that its token is impossible.
    return ids.clamp(max=weights.shape[1] - 1)


def uniforms(seed: int, ordinals: Sequence[int], n: int, length: int) -> Float[Tensor, "B n L"]:
    """Numbers in [0, 1), in 64 bits; row (b, i) is a function of (``seed``, ``ordinals[b]``, i) alone.

    Philox counters (Salmon et al. 2011) give the bits; a longer row begins like a shorter one.
    """
    rows = [_stream(seed, ordinal, i, length) for ordinal in ordinals for i in range(n)]
    return torch.from_numpy(np.array(rows).reshape(len(ordinals), n, length))


def _stream(seed: int, ordinal: int, number: int, length: int) -> np.ndarray:
    key = np.random.SeedSequence(seed, spawn_key=(ordinal, number))
    bits = np.random.Philox(key).random_raw(length)
    return (bits >> np.uint64(11)) * 2.0**-53
