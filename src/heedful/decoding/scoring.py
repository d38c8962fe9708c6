"""The score by which hypotheses are ranked (Wu et al. 2016, section 7, equation 14).

    score(Y, X) = log P(Y | X) / divisor(L) + coverage(X, Y)

L counts the generated tokens, the end token included and the prompt never. A greater score is
better; every term is at most 0.
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
    """Weighs the log-probability of a hypothesis by its length."""

    def divisor(self, length: int) -> float:
        """What the log-probability of ``length`` >= 1 tokens is divided by.

        Positive, and never falling as ``length`` grows: the beam search relies on it to know when
        nothing better can come.
        """
        ...


@dataclass(frozen=True)
class NoPenalty:
    """``divisor(L) = 1``: the score is the log-probability."""

    def divisor(self, length: int) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class AverageLength:
    """``divisor(L) = L ** alpha``; with alpha 1, the average log-probability of a token."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_not_negative("alpha", self.alpha)

    def divisor(self, length: int) -> float:
        """``L ** alpha``."""
        return float(length) ** self.alpha


@dataclass(frozen=True)
class GnmtLength:
    """``divisor(L) = ((5 + L) / 6) ** alpha`` (Wu et al. 2016, equation 14)."""

    alpha: float = 0.6

    def __post_init__(self) -> None:
        _check_not_negative("alpha", self.alpha)

    def divisor(self, length: int) -> float:
        """``((5 + L) / 6) ** alpha``."""
        return ((5.0 + length) / 6.0) ** self.alpha


@dataclass(frozen=True)
class CoveragePenalty:
    """``beta * sum_i log(min(sum_j p_ij, 1))`` (Wu et al. 2016, equation 14).

    ``p_ij`` is the weight that generated token j, the end token included, gave to source position i.
    A position's sum is taken as at least the smallest normal 32-bit number, so that a position that
    got no weight at all costs much and still leaves a number.
    """

    beta: float

    def __post_init__(self) -> None:
        _check_not_negative("beta", self.beta)

    def of(self, attended: Float[Tensor, " S"]) -> float:
        """The penalty, given ``sum_j p_ij`` of the real source positions alone."""
        floor = torch.finfo(torch.float32).tiny
        return self.beta * attended.double().clamp(floor, 1.0).log().sum().item()


def score(log_probs: Sequence[float], length: LengthPenalty, coverage_penalty: float = 0.0) -> float:
    """``sum(log_probs) / divisor(len(log_probs)) + coverage_penalty``; of no tokens, the last alone.

    The sum is taken from left to right in 64 bits.
    """
    if not log_probs:
        return coverage_penalty
    return reduce(add, log_probs, 0.0) / length.divisor(len(log_probs)) + coverage_penalty


def _check_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number of at least 0, not {value}")
