"""Scores that rank hypotheses (Wu et al. 2016, section 7, equation 14).

    score(Y, X) = log P(Y | X) / divisor(L) + coverage(X, Y)

L is the number of generated tokens, including the end token but not the prompt. A higher score is better;
every term is at most 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class LengthPenalty(Protocol):
    """Normalizes the log-probability of a hypothesis by its length."""

    def divisor(self, length: int) -> float:
        """Return the divisor of the log-probability of ``length`` >= 1 tokens.

        It must be positive and nondecreasing in ``length``: exact stopping of the beam search relies on it.
        """
        ...


@dataclass(frozen=True)
class NoPenalty:
    """``divisor(L) = 1``: the score is the log-probability."""

    def divisor(self, length: int) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class AverageLength:
    """``divisor(L) = L ** alpha``; with alpha 1, the average log-probability per token."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_not_negative("alpha", self.alpha)

    def divisor(self, length: int) -> float:
        """Return ``L ** alpha``."""
        return float(length) ** self.alpha


@dataclass(frozen=True)
class GnmtLength:
    """``divisor(L) = ((5 + L) / 6) ** alpha`` (Wu et al. 2016, equation 14)."""

    alpha: float = 0.6

    def __post_init__(self) -> None:
        _check_not_negative("alpha", self.alpha)

    def divisor(self, length: int) -> float:
        """Return ``((5 + L) / 6) ** alpha``."""
        return ((5.0 + length) / 6.0) ** self.alpha


@dataclass(frozen=True)
class CoveragePenalty:
    """``beta * sum_i log(min(sum_j p_ij, 1))`` (Wu et al. 2016, equation 14).

    ``p_ij`` is the attention weight of generated token j, including the end token, on source position i.
    Sums are clamped to the smallest normal 32-bit number, so that a position without any weight has a large
    but finite penalty.
    """

    beta: float

    def __post_init__(self) -> None:
        _check_not_negative("beta", self.beta)

    def of(self, attended: Float[Tensor, " S"]) -> float:
        """Return the penalty for ``sum_j p_ij`` of the real source positions."""
        floor = torch.finfo(torch.float32).tiny
        return self.beta * attended.double().clamp(floor, 1.0).log().sum().item()


def score(log_probs: Sequence[float], length: LengthPenalty, coverage_penalty: float = 0.0) -> float:
    """Return ``sum(log_probs) / divisor(len(log_probs)) + coverage_penalty``; without tokens, the latter.

    The sum is computed from left to right in 64 bits.
    """
    if not log_probs:
        return coverage_penalty
    return reduce(add, log_probs, 0.0) / length.divisor(len(log_probs)) + coverage_penalty


def _check_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
