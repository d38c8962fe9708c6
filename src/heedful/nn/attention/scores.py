"""Score functions: how well a query and a key fit. Attention is a softmax over their values.

All follow one contract. `Score.prepare` turns keys into what the score needs of them, once for each
memory; `Score.forward` takes queries and *prepared* keys. Leading axes broadcast, so the same score
serves ``[B, Q, d]`` (one head) and ``[B, H, Q, d]``.

| part | score of q and k | ``prepare(k)`` | scaled product |
|---|---|---|---|
| `DotScore` | q·k | k | 1 |
| `ScaledDotScore` | q·k / √d_k | k | 1/√d_k |
| `BilinearScore` | qᵀ W k | W k | 1 |
| `AdditiveScore` | vᵀ tanh(W_q q + W_k k) | W_k k | no |
| `CosineScore` | β cos(q, k) | k / ‖k‖ | no |
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Score(nn.Module, ABC):
    """The contract of a score: ``score(queries, score.prepare(keys))`` is ``[..., Q, K]``."""

    ignores_rotation: ClassVar[bool] = False
    """Whether a query and a prepared key that are turned by one rotation have the score they had."""

    def product_scale(self, d_k: int) -> float | None:
        """The number s for which the score is s q·k', with k' the *prepared* key of width ``d_k``.

        None where the score is no scaled product: a fused kernel cannot compute it then.
        """
        return None

    def prepare(self, keys: Float[Tensor, "*axes d_k"]) -> Float[Tensor, "*axes d_p"]:
        """What depends on the keys alone, to be computed once for each memory; the keys themselves here."""
        return keys

    def of_heads(self, heads: Sequence[int]) -> Callable[[Tensor, Tensor], Tensor]:
        """What `forward` does, where only the queries and keys of these heads are given."""
        return self

    @abstractmethod
    def forward(
        self, queries: Float[Tensor, "*axes Q d_q"], keys: Float[Tensor, "*keyaxes K d_p"]
    ) -> Float[Tensor, "*out Q K"]:
        """The score of every query with every prepared key; leading axes broadcast."""


class DotScore(Score):
    """score(q, k) = q·k, for queries and keys of one width.

    Source: Luong et al. 2015, section 3.1, "dot"; lecture S0.
    """

    ignores_rotation = True

    def product_scale(self, d_k: int) -> float:
        """1, at every width."""
        return 1.0

    def forward(
        self, queries: Float[Tensor, "*axes Q d"], keys: Float[Tensor, "*keyaxes K d"]
    ) -> Float[Tensor, "*out Q K"]:
        """q·k for every pair."""
        return queries @ keys.mT


class ScaledDotScore(Score):
    """score(q, k) = q·k / √d_k, for queries and keys of one width d_k.

    The products of components with mean 0 and variance 1 have variance d_k; the division brings it
    back to 1. Lecture S0 prints √n, where n was the number of words: it must be the width of the
    vectors. Lecture S3's text says to divide by d/h, its formula √(d/h); the formula is right
    (d_k = d/h).

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.
    """

    ignores_rotation = True

    def product_scale(self, d_k: int) -> float:
        """1/√d_k."""
        return 1.0 / math.sqrt(d_k)

    def forward(
        self, queries: Float[Tensor, "*axes Q d"], keys: Float[Tensor, "*keyaxes K d"]
    ) -> Float[Tensor, "*out Q K"]:
        """q·k / √d_k for every pair."""
        # The queries are scaled, not the scores: they are fewer.
        return (queries * self.product_scale(queries.shape[-1])) @ keys.mT


class BilinearScore(Score):
    """score(q, k) = qᵀ W k, with W of shape [d_q, d_k]; the widths may differ.

    A prepared key is W k, of width d_q, and the score is its plain product with q.

    Source: Luong et al. 2015, section 3.1, "general"; lecture S3, "multiplicative".

    Args:
        d_q: width of the queries.
        d_k: width of the keys.
    """

    ignores_rotation = True

    def __init__(self, d_q: int, d_k: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_k, d_q, bias=False)
        nn.init.xavier_uniform_(self.key.weight)

    def product_scale(self, d_k: int) -> float:
        """1, at every width."""
        return 1.0

    def prepare(self, keys: Float[Tensor, "*axes d_k"]) -> Float[Tensor, "*axes d_q"]:
        """W k."""
        return self.key(keys)

    def forward(
        self, queries: Float[Tensor, "*axes Q d_q"], keys: Float[Tensor, "*keyaxes K d_q"]
    ) -> Float[Tensor, "*out Q K"]:
        """qᵀ (W k) for every pair."""
        return queries @ keys.mT


class AdditiveScore(Score):
    """score(q, k) = vᵀ tanh(W_q q + W_k k), where several heads may have a v each: v_hᵀ tanh(W_q q + W_k k).

    This is lecture S0's concat form vᵀ tanh(W [q; k]) with W = [W_q W_k] side by side, and its
    V_aᵀ tanh(U s + W h) with U = W_q and W = W_k: one score under two names.

    Memory: the sums and their tanh are ``[..., Q, K, d_attention]`` each, so it suits one query at a
    time (a recurrent decoder) better than all positions at once.

    With several heads, W_q and W_k serve all of them, on top of each head's own projections.

    Matrices start Xavier uniform, each v as the one-row matrix that it is. (Bahdanau et al. start v at
    zero, which leaves W_q and W_k without a gradient in the first update.)

    Source: Bahdanau et al. 2015, section A.1.2.

    Args:
        d_q: width of the queries.
        d_k: width of the keys.
        d_attention: width of the sum.
        bias: add a learned vector inside the tanh (it is part of the prepared keys).
        n_heads: of which each has a v, on the axis ``[..., n_heads, Q, d]``; 1: one for whatever there is.
    """

    def __init__(self, d_q: int, d_k: int, d_attention: int, bias: bool = False, *, n_heads: int = 1) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_q, d_attention, bias=False)
        self.key = nn.Linear(d_k, d_attention, bias=bias)
        self.vector = nn.Linear(d_attention, n_heads, bias=False)
        for matrix in (self.query.weight, self.key.weight, *self.vector.weight.split(1)):
            nn.init.xavier_uniform_(matrix.data)
        if bias:
            nn.init.zeros_(self.key.bias)

    def prepare(self, keys: Float[Tensor, "*axes d_k"]) -> Float[Tensor, "*axes d_a"]:
        """W_k k, plus the bias if there is one."""
        return self.key(keys)

    def forward(
        self, queries: Float[Tensor, "*axes Q d_q"], keys: Float[Tensor, "*keyaxes K d_a"]
    ) -> Float[Tensor, "*out Q K"]:
        """vᵀ tanh(W_q q + prepared key) for every pair."""
        return self._compare(self.vector.weight, queries, keys)

    def of_heads(self, heads: Sequence[int]) -> Callable[[Tensor, Tensor], Tensor]:
        """With the v of each."""
        weight = self.vector.weight
        return self if self.n_heads == 1 else partial(self._compare, weight[list(heads)])

    def _compare(self, vectors: Float[Tensor, "H d_a"], queries: Tensor, keys: Tensor) -> Tensor:
        units = torch.tanh(self.query(queries)[..., :, None, :] + keys[..., None, :, :])
        if self.n_heads == 1:
            return functional.linear(units, vectors).squeeze(-1)
        return (units.flatten(-3, -2) @ vectors[..., None]).view(units.shape[:-1])


class CosineScore(Score):
    """score(q, k) = β q·k / (‖q‖ ‖k‖), for queries and keys of one width.

    Without a key strength β is 1 and scores lie in [-1, 1], so their softmax is nearly flat: over n
    keys no weight exceeds e²/(e² + n - 1). With one, β > 0 is learned, as softplus of a parameter.

    A zero vector fits everything with score 0. Its gradient is that of the product with its norm
    read as 1, hence finite.

    Source: lecture S0, "content-based"; Graves et al. 2014 (Neural Turing Machines), section 3.3.1,
    equations 5 and 6.

    Args:
        key_strength: where β starts; None for a constant 1.

    Raises:
        ValueError: the key strength is not positive.
    """

    ignores_rotation = True

    def __init__(self, key_strength: float | None = None) -> None:
        super().__init__()
        if key_strength is None:
            self.register_parameter("raw_key_strength", None)
            return
        if not 0.0 < key_strength < math.inf:
            raise ValueError(f"the key strength must be positive and finite, not {key_strength}")
        # The inverse of softplus, log(e^β - 1), in a form that does not overflow.
        raw = key_strength + math.log(-math.expm1(-key_strength))
        self.raw_key_strength = nn.Parameter(torch.tensor(raw))

    @property
    def key_strength(self) -> Float[Tensor, ""] | None:
        """β, or None where it is the constant 1."""
        if self.raw_key_strength is None:
            return None
        return functional.softplus(self.raw_key_strength)

    def prepare(self, keys: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        """k / ‖k‖, and zero for a zero vector."""
        norms = torch.linalg.vector_norm(keys, dim=-1, keepdim=True)
        return keys / norms.masked_fill(norms == 0, 1.0)

    def forward(
        self, queries: Float[Tensor, "*axes Q d"], keys: Float[Tensor, "*keyaxes K d"]
    ) -> Float[Tensor, "*out Q K"]:
        """β cos(q, k) for every pair."""
        cosines = self.prepare(queries) @ keys.mT
        strength = self.key_strength
        return cosines if strength is None else strength * cosines
