"""Sampling from the model's distribution, with temperature, top-k, top-p, min-p and epsilon."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from heedful.decoding.greedy import Chosen, generate, most_probable
from heedful.decoding.probabilities import best, log_probabilities
from heedful.decoding.protocol import Hypothesis, MaxLength, Request, Width
from heedful.decoding.rules import OutputRules
from heedful.decoding.scoring import NotNegative

_NEVER = float("-inf")
Fraction = Annotated[float, Field(ge=0, le=1)]


class SampleSettings(OutputRules):
    """How tokens are drawn.

    Args:
        max_length: maximum number of generated tokens; not supported for language models, which have
            ``completion``.
        temperature: divisor of log-probabilities; 0 selects the most probable token.
        top_k: keep the k most probable tokens; null: all.
        top_p: keep the most probable tokens with this total probability; 1: all.
        min_p: keep tokens with at least this probability relative to the largest; 0: all.
        epsilon: keep tokens with at least this probability, or the most probable; 0: all.
        seed: random seed.
        n: number of samples per input.
    """

    max_length: MaxLength = MaxLength()
    temperature: NotNegative = 1.0
    top_k: int | None = Field(default=None, ge=1)
    top_p: Fraction = 1.0
    min_p: Fraction = 0.0
    epsilon: Fraction = 0.0
    seed: int = Field(default=0, ge=0)
    n: Width = 1

    @model_validator(mode="after")
    def _samples_differ(self) -> "SampleSettings":
        if self.n > 1 and self.temperature == 0:
            raise ValueError(
                f"temperature=0 always selects the most probable token, so n={self.n} samples would be "
                "equal; raise temperature, or set n to 1"
            )
        return self


class SampleConfig(SampleSettings):
    """Sampling from the distribution of the model (`heedful.decoding.sampling.sample`).

    Args:
        n: number of samples per input; samples with the same text are returned once.
    """

    kind: Literal["sample"] = "sample"
    n: Width = 1


class MbrConfig(SampleSettings):
    """Minimum Bayes risk decoding (`heedful.tasks.generation.minimum_bayes_risk`).

    The answer is the sampled text with the highest expected utility, which is its ``score``.

    Args:
        temperature: divisor of log-probabilities, above 0.
        epsilon: keep tokens with at least this probability, or the most probable; 0: all.
        n: number of samples per input, which are the candidates and what they are compared with.
        n_best: number of answers to return, by utility; fewer if fewer texts are sampled.
        utility: what is expected of a text in comparison with a sample: chrF as sacrebleu computes it for
            sentences, 0 to 100.
    """

    kind: Literal["mbr"] = "mbr"
    epsilon: Fraction = 0.02
    n: Width = 64
    n_best: Width = 1
    utility: Literal["chrf"] = "chrf"

    @model_validator(mode="after")
    def _n_best_fits(self) -> "MbrConfig":
        if self.n_best > self.n:
            raise ValueError(f"n_best must be at most n ({self.n}), got {self.n_best}")
        if self.temperature == 0:
            raise ValueError("temperature must be above 0: without chance, all samples would be equal")
        return self


def sample(request: Request, config: SampleSettings) -> list[list[Hypothesis]]:
    """Sample ``config.n`` hypotheses for each sentence, token by token.

    Log-probabilities are divided by the temperature; then `keep_top_k`, `keep_top_p`, `keep_min_p` and
    `keep_epsilon` are applied in this order, and one token is drawn from the remaining ones. Samples depend
    only on the seed, the ordinal, the index of the sample, the position and the model, not on the other
    sentences of the batch. ``request.on_token`` requires a single sample per sentence.

    Returns:
        For each sentence its samples, in order. ``log_probs`` are those of the model, before temperature and
        filters but after a repetition penalty, and ``score`` is their sum.

    Raises:
        WorkError: as in `heedful.decoding.greedy.greedy`.
    """
    if request.on_token is not None and config.n > 1:
        raise ValueError(f"on_token requires n=1, got {config.n}")
    if config.temperature == 0:
        return generate(request, most_probable, config.n)
    ordinals = range(len(request.max_lengths)) if request.ordinals is None else request.ordinals
    noise = Uniforms(config.seed, ordinals, config.n)

    def choose(
        logits: Tensor, forbidden: Tensor, sentences: Sequence[int], position: int, blocked: Tensor | None
    ) -> Chosen:
        log_probs = log_probabilities(logits, forbidden, position, blocked)
        return choose_randomly(log_probs, noise.at(position)[list(sentences)].flatten(), config)

    return generate(request, choose, config.n)


def choose_randomly(
    log_probs: Float[Tensor, "N V"], uniform: Float[Tensor, " N"], settings: SampleSettings
) -> Chosen:
    """Choose a token for each row, by a number in [0, 1).

    Args:
        log_probs: of the model, without the tokens that must not be chosen.
        uniform: the number of each row.
        settings: how tokens are drawn; their ``temperature`` must be above 0.
    """
    weights = sharpen(log_probs, settings.temperature)
    if settings.top_k is not None:
        weights = keep_top_k(weights, settings.top_k)
    if settings.top_p < 1:
        weights = keep_top_p(weights, settings.top_p)
    if settings.min_p > 0:
        weights = keep_min_p(weights, settings.min_p)
    if settings.epsilon > 0:
        weights = keep_epsilon(weights, settings.epsilon)
    ids = draw(weights, uniform)
    token_log_probs = log_probs.gather(1, ids[:, None]).flatten().clamp(max=0.0)
    return ids.cpu().numpy(), token_log_probs.cpu().numpy()


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
    preceding = probabilities.cumsum(dim=1) - probabilities
    drop = preceding >= p
    drop[:, 0] = False
    return torch.empty_like(weights).scatter_(1, ids, ordered.masked_fill(drop, _NEVER))


def keep_min_p(weights: Float[Tensor, "N V"], p: float) -> Float[Tensor, "N V"]:
    """Keep the tokens at least ``p`` times as probable as the most probable one (Nguyen et al. 2024)."""
    probabilities = weights.softmax(dim=1)
    return weights.masked_fill(probabilities < p * probabilities.amax(dim=1, keepdim=True), _NEVER)


def keep_epsilon(weights: Float[Tensor, "N V"], epsilon: float) -> Float[Tensor, "N V"]:
    """Keep the tokens with at least this probability, and the most probable ones (Hewitt et al. 2022)."""
    probabilities = weights.softmax(dim=1)
    is_rare = (probabilities < epsilon) & (probabilities < probabilities.amax(dim=1, keepdim=True))
    return weights.masked_fill(is_rare, _NEVER)


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


class Uniforms:
    """Uniform numbers in [0, 1), in 64 bits; those of (b, i) depend only on (``seed``, ``ordinals[b]``, i).

    The bits come from Philox counters (Salmon et al. 2011). They are drawn in blocks of positions, because a
    request may allow any number of tokens.
    """

    _BLOCK = 256

    def __init__(self, seed: int, ordinals: Sequence[int], n: int) -> None:
        keys = [np.random.SeedSequence(seed, spawn_key=(o, i)) for o in ordinals for i in range(n)]
        self._streams, self._shape = [np.random.Philox(key) for key in keys], (len(ordinals), n)
        self._start, self._rows = 0, self.draw(0)

    def draw(self, length: int) -> Float[Tensor, "B n L"]:
        """Draw the next numbers."""
        bits = np.array([stream.random_raw(length) for stream in self._streams], np.uint64)
        return torch.from_numpy(((bits >> np.uint64(11)) * 2.0**-53).reshape(*self._shape, length))

    def at(self, position: int) -> Float[Tensor, "B n"]:
        """Return the numbers of a position; positions must not decrease."""
        while position >= self._start + self._rows.shape[2]:
            self._start, self._rows = self._start + self._rows.shape[2], self.draw(self._BLOCK)
        return self._rows[:, :, position - self._start]
