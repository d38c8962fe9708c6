"""Scores that rank hypotheses (Wu et al. 2016, section 7, equation 14).

    score(Y, X) = log P(Y | X) / divisor(L) + coverage(X, Y)

L is the number of generated tokens, including the end token but not the prompt. A higher score is better;
every term is at most 0. Divisors are positive and nondecreasing in L: exact stopping of the beam search
relies on it.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from heedful.config import Config

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NoPenalty(Config):
    """The score is the log-probability."""

    kind: Literal["none"] = "none"

    def divisor(self, length: int) -> float:
        """Return 1."""
        return 1.0


class AverageLength(Config):
    """Log-probability over ``L ** alpha``.

    Args:
        alpha: exponent; 0: no penalty, 1: average over the tokens.
    """

    kind: Literal["average"] = "average"
    alpha: NotNegative = 1.0

    def divisor(self, length: int) -> float:
        """Return ``L ** alpha``."""
        return float(length) ** self.alpha


class GnmtLength(Config):
    """Log-probability over ``((5 + L) / 6) ** alpha``.

    Args:
        alpha: exponent; 0: no penalty; larger values favour longer outputs.
    """

    kind: Literal["gnmt"] = "gnmt"
    alpha: NotNegative = 0.6

    def divisor(self, length: int) -> float:
        """Return ``((5 + L) / 6) ** alpha``."""
        return ((5.0 + length) / 6.0) ** self.alpha


LengthPenalty = Annotated[NoPenalty | AverageLength | GnmtLength, Field(discriminator="kind")]
"""Normalizes the log-probability of a hypothesis by its length."""


def coverage_penalty(beta: float, attended: Float[Tensor, " S"]) -> float:
    """Return ``beta * sum_i log(min(sum_j p_ij, 1))`` for ``attended = sum_j p_ij``.

    ``p_ij`` is the attention weight of generated token j, including the end token, on real source position i.
    Sums are clamped to the smallest normal 32-bit number, so that a position without any weight has a large
    but finite penalty.
    """
    floor = torch.finfo(torch.float32).tiny
    return beta * attended.double().clamp(floor, 1.0).log().sum().item()


def score(
    log_probs: Sequence[float], length: NoPenalty | AverageLength | GnmtLength, coverage: float = 0.0
) -> float:
    """Return ``sum(log_probs) / divisor(len(log_probs)) + coverage``; without tokens, the latter.

    The sum is computed from left to right in 64 bits.
    """
    if not log_probs:
        return coverage
    return reduce(add, log_probs, 0.0) / length.divisor(len(log_probs)) + coverage
