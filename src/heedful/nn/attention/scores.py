"""Attention score functions; attention weights are the softmax of the scores.

All share one interface. `ScoreFunction.prepare` transforms keys once, before they are cached or rotated
(recurrent decoders: and before they are padded); `ScoreFunction.forward` takes queries and *prepared* keys,
of width d_p. Leading axes broadcast, so a score accepts ``[B, Q, d]`` (one head) and ``[B, H, Q, d]``.

| class | score of q and k | ``prepare(k)`` | ``product_scale`` |
|---|---|---|---|
| `DotScore` | q·k | k | 1 |
| `ScaledDotScore` | q·k / √d_k | k | 1/√d_k |
| `BilinearScore` | qᵀ W k | W k | 1 |
| `AdditiveScore` | vᵀ tanh(W_q q + W_k k) | W_k k | None |
| `CosineScore` | β cos(q, k) | k / ‖k‖ | None |
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

from heedful.errors import RequestError, type_name


class ScoreFunction(nn.Module, ABC):
    """Base class of scores: ``score(queries, score.prepare(keys))`` is ``[..., Q, K]``.

    A subclass defines `forward`, and `prepare` if a part of the score depends on the keys alone.
    """

    is_rotation_invariant: ClassVar[bool] = False
    """Whether rotating a query and a prepared key by the same rotation keeps their score."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        # Do not inherit properties of the formula if a subclass overrides `forward`: fast kernels would use
        # the formula of the base class.
        if "forward" in vars(cls):
            for name in ("product_scale", "is_rotation_invariant"):
                if name not in vars(cls):
                    setattr(cls, name, vars(ScoreFunction)[name])

    @property
    def widths(self) -> tuple[int, int] | None:
        """Widths d_q and d_k that the parameters determine; None for scores that take any widths."""
        return None

    def check_widths(self, d_k: int, d_q: int | None = None) -> None:
        """Check that keys of width d_k, and queries of width d_q if given, fit the parameters.

        Attention calls this in its constructor.

        Raises:
            ValueError: a width differs from the score's.
        """
        if self.widths is None:
            return
        for name, own, required in zip(("d_q", "d_k"), self.widths, (d_q, d_k), strict=True):
            if required is not None and own != required:
                raise ValueError(f"{type(self).__name__}: expected {name}={required}, got {name}={own}")

    def product_scale(self, d_p: int) -> float | None:
        """Return s if the score is s q·k', with k' the prepared key of width ``d_p``; None for other scores.

        If it is a number, fast kernels compute the scores from it, and **do not call** `forward`. It holds
        for the `forward` of the same class: a subclass that overrides `forward` alone has None again.
        """
        return None

    def prepare(self, keys: Float[Tensor, "*axes d_k"]) -> Float[Tensor, "*axes d_p"]:
        """Compute what depends only on the keys, for each key separately; by default the keys themselves."""
        return keys

    def for_heads(self, heads: Sequence[int]) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the score function for inputs that contain only these heads.

        Scores with different parameters for each head override it; explanations ask for single heads.
        """
        return self

    @abstractmethod
    def forward(
        self, queries: Float[Tensor, "*axes Q d_q"], keys: Float[Tensor, "*keyaxes K d_p"]
    ) -> Float[Tensor, "*out Q K"]:
        """Compute the score of every query with every prepared key; leading axes broadcast."""


def checked_scores(scores: object, score: nn.Module, queries: Tensor, keys: Tensor) -> Tensor:
    """Return scores after checking their type, and that there is one for each query and key.

    Raises:
        RequestError: `forward` of the score is wrong.
    """
    if not isinstance(scores, Tensor):
        raise RequestError(
            f"{type(score).__name__}: expected scores as a tensor [..., Q, K], got {type_name(scores)}"
        )
    if not scores.is_floating_point() or scores.dtype == torch.float64 != queries.dtype:
        raise RequestError(
            f"{type(score).__name__}: expected scores of the type of the queries, {queries.dtype}, got "
            f"{scores.dtype}"
        )
    expected = queries.shape[-2], keys.shape[-2]
    if scores.shape[-2:] != expected:
        raise RequestError(
            f"{type(score).__name__}: expected scores [..., Q, K] with (Q, K) = {expected}, got the shape "
            f"{tuple(scores.shape)}; forward takes queries [..., Q, d_q] and prepared keys [..., K, d_p]"
        )
    return scores


class DotScore(ScoreFunction):
    """score(q, k) = q·k, for queries and keys of the same width.

    Source: Luong et al. 2015, section 3.1, "dot"; lecture S0.
    """

    is_rotation_invariant = True

    def product_scale(self, d_p: int) -> float:
        """1, at every width."""
        return 1.0

    def forward(
        self, queries: Float[Tensor, "*axes Q d"], keys: Float[Tensor, "*keyaxes K d"]
    ) -> Float[Tensor, "*out Q K"]:
        """Compute q·k for every pair."""
        return queries @ keys.mT


class ScaledDotScore(ScoreFunction):
    """score(q, k) = q·k / √d_k, for queries and keys of the same width d_k.

    If components are independent with mean 0 and variance 1, q·k has variance d_k; the division makes it 1.
    Lecture S0 prints √n, with n the number of words: it must be the width of the vectors. Lecture S3
    divides by d/h in its text and by √(d/h) in its formula; the formula is correct (d_k = d/h).

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.
    """

    is_rotation_invariant = True

    def product_scale(self, d_p: int) -> float:
        """1/√d_k; prepared keys are the keys themselves."""
        return 1.0 / math.sqrt(d_p)

    def forward(
        self, queries: Float[Tensor, "*axes Q d"], keys: Float[Tensor, "*keyaxes K d"]
    ) -> Float[Tensor, "*out Q K"]:
        """Compute q·k / √d_k for every pair."""
        # Scale the queries instead of the scores: they have fewer elements if d_k < K.
        return (queries * (1.0 / math.sqrt(queries.shape[-1]))) @ keys.mT


class BilinearScore(ScoreFunction):
    """score(q, k) = qᵀ W k, with W of shape [d_q, d_k]; the widths may differ.

    A prepared key is W k, of width d_q, and the score is its dot product with q.

    All heads share W (``key.weight``), on top of each head's own projections. The score is not scaled.

    Source: Luong et al. 2015, section 3.1, "general"; lecture S3, "multiplicative".

    Args:
        d_q: width of the queries of a head.
        d_k: width of the keys of a head.
    """

    is_rotation_invariant = True

    def __init__(self, d_q: int, d_k: int) -> None:
        super().__init__()
        self.key = nn.Linear(d_k, d_q, bias=False)
        nn.init.xavier_uniform_(self.key.weight)

    @property
    def widths(self) -> tuple[int, int]:
        """d_q and d_k."""
        return self.key.out_features, self.key.in_features

    def product_scale(self, d_p: int) -> float:
        """1, at every width."""
        return 1.0

    def prepare(self, keys: Float[Tensor, "*axes d_k"]) -> Float[Tensor, "*axes d_q"]:
        """Compute W k."""
        return self.key(keys)

    def forward(
        self, queries: Float[Tensor, "*axes Q d_q"], keys: Float[Tensor, "*keyaxes K d_q"]
    ) -> Float[Tensor, "*out Q K"]:
        """Compute qᵀ (W k) for every pair."""
        return queries @ keys.mT


class AdditiveScore(ScoreFunction):
    """score(q, k) = vᵀ tanh(W_q q + W_k k), with one v or one v_h per head.

    This equals the concat form of lecture S0, vᵀ tanh(W [q; k]) with W = [W_q W_k], and its
    V_aᵀ tanh(U s + W h) with U = W_q and W = W_k.

    Memory: the sums and their tanh are ``[..., Q, K, d_attention]`` each, so this score suits one query at
    a time (a recurrent decoder) better than all positions at once.

    W_q is ``query.weight`` [d_attention, d_q], W_k is ``key.weight`` [d_attention, d_k], and v_h is row h of
    ``vector.weight`` [n_heads, d_attention]. All heads share W_q and W_k, on top of each head's own
    projections. Bahdanau et al. call them W_a (of the decoder state, our query) and U_a (of the annotation).

    All matrices are initialised Xavier-uniform, each v as a one-row matrix. (Bahdanau et al. initialise v
    to zero, so that W_q and W_k have no gradient in the first update.)

    Source: Bahdanau et al. 2015, section A.1.2.

    Args:
        d_q: width of the queries of a head.
        d_k: width of the keys of a head.
        d_attention: width of W_q q + W_k k.
        bias: add a learned bias inside the tanh (part of the prepared keys).
        n_heads: number of vectors v_h, for inputs ``[..., n_heads, Q, d]``; 1: all inputs share one v.
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

    @property
    def widths(self) -> tuple[int, int]:
        """d_q and d_k."""
        return self.query.in_features, self.key.in_features

    def prepare(self, keys: Float[Tensor, "*axes d_k"]) -> Float[Tensor, "*axes d_a"]:
        """Compute W_k k, plus the bias if there is one."""
        return self.key(keys)

    def forward(
        self, queries: Float[Tensor, "*axes Q d_q"], keys: Float[Tensor, "*keyaxes K d_a"]
    ) -> Float[Tensor, "*out Q K"]:
        """Compute vᵀ tanh(W_q q + prepared key) for every pair."""
        return self._score(self.vector.weight, queries, keys)

    def for_heads(self, heads: Sequence[int]) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the score function that uses the vectors v_h of these heads."""
        weight = self.vector.weight
        return self if self.n_heads == 1 else partial(self._score, weight[list(heads)])

    def _score(self, vectors: Float[Tensor, "H d_a"], queries: Tensor, keys: Tensor) -> Tensor:
        activations = torch.tanh(self.query(queries)[..., :, None, :] + keys[..., None, :, :])
        if self.n_heads == 1:
            return functional.linear(activations, vectors).squeeze(-1)
        return (activations.flatten(-3, -2) @ vectors[..., None]).view(activations.shape[:-1])


class CosineScore(ScoreFunction):
    """score(q, k) = β q·k / (‖q‖ ‖k‖), for queries and keys of the same width.

    Without a key strength, β is 1 and scores lie in [-1, 1], so their softmax over many keys is nearly
    uniform (weights differ by a factor of at most e² ≈ 7.4): over n keys no weight exceeds e²/(e² + n - 1).
    With one, β > 0 is learned, as softplus of a parameter.

    The score of a zero vector is 0. Its gradient is computed with norm 1, hence finite.

    Source: lecture S0, "content-based"; Graves et al. 2014 (Neural Turing Machines), section 3.3.1,
    equations 5 and 6.

    Args:
        key_strength: initial value of β; None for a constant 1.

    Raises:
        ValueError: the key strength is not positive and finite.
    """

    is_rotation_invariant = True

    def __init__(self, key_strength: float | None = None) -> None:
        super().__init__()
        if key_strength is None:
            self.register_parameter("raw_key_strength", None)
            return
        if not 0.0 < key_strength < math.inf:
            raise ValueError(f"key_strength must be positive and finite, got {key_strength}")
        # The inverse of softplus, log(e^β - 1), in a form that does not overflow.
        raw = key_strength + math.log(-math.expm1(-key_strength))
        self.raw_key_strength = nn.Parameter(torch.tensor(raw))

    @property
    def key_strength(self) -> Float[Tensor, ""] | None:
        """β, or None if it is the constant 1."""
        if self.raw_key_strength is None:
            return None
        return functional.softplus(self.raw_key_strength)

    def prepare(self, keys: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
        """Compute k / ‖k‖; zero vectors stay zero."""
        norms = torch.linalg.vector_norm(keys, dim=-1, keepdim=True)
        return keys / norms.masked_fill(norms == 0, 1.0)

    def forward(
        self, queries: Float[Tensor, "*axes Q d"], keys: Float[Tensor, "*keyaxes K d"]
    ) -> Float[Tensor, "*out Q K"]:
        """Compute β cos(q, k) for every pair."""
        cosines = self.prepare(queries) @ keys.mT
        strength = self.key_strength
        return cosines if strength is None else strength * cosines
