"""Relative positions in self-attention: scores depend on the distance between query and key.

| module | effect | argument of `SelfAttention` |
|---|---|---|
| `Rotary` | rotates queries and keys by angles proportional to their positions | ``rotary`` |
| `Alibi` | subtracts a multiple of the distance from every score | ``score_bias`` |

Neither has parameters or a position limit. Values that depend only on the layout are computed once for all
layers.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.layout import Layout


class Rotary(nn.Module):
    """Rotary positions: rotate pair i of the components of a vector at position p by the angle p ω_i.

    (a, b) → (a cos pω_i - b sin pω_i, a sin pω_i + b cos pω_i), ω_i = base^(-2i/d), i = 0 … d/2 - 1,
    for the first d = d_rotated components; the others are unchanged. Rotations are orthogonal and
    R_mᵀ R_n = R_{n-m}, so the product of a query at position m and a key at n is qᵀ R_{n-m} k: it depends on
    positions only through n - m, and norms are preserved.

    | pairing | a, b of pair i | used by |
    |---|---|---|
    | interleaved | components 2i, 2i + 1 | the paper, GPT-J |
    | half-split | components i, i + d/2 | GPT-NeoX, Llama |

    The two are equivalent up to the order of the rows of W_Q and W_K. Angles are computed in double
    precision, products at least in fp32.

    Source: Su et al. 2021 (RoFormer), section 3.2.2, computed as in section 3.4.2, equation 34.

    Args:
        d_k: width of the vectors.
        d_rotated: d, even; d_k by default.
        base: 10,000 in the paper; a larger base rotates more slowly.
        interleaved: pair components as in the paper; otherwise half-split.
    """

    def __init__(
        self, d_k: int, *, d_rotated: int | None = None, base: float = 10000.0, interleaved: bool = True
    ) -> None:
        super().__init__()
        self.d_k = d_k
        self.d_rotated = d_k if d_rotated is None else d_rotated
        self.base = base
        self.interleaved = interleaved
        if self.d_rotated % 2 or not 2 <= self.d_rotated <= d_k:
            raise ValueError(f"d_rotated must be even and between 2 and d_k={d_k}, got {self.d_rotated}")
        if base <= 1.0:
            raise ValueError(f"base of rotary positions must be above 1, got {base}")

    def forward(self, x: Float[Tensor, "B H S d_k"], layout: Layout) -> Float[Tensor, "B H S d_k"]:
        """Rotate the vectors of every head by the positions of ``layout``."""
        wide = torch.promote_types(x.dtype, torch.float32)
        key = ("rotary", self.d_rotated, self.base, wide)
        cosines, sines = layout.memo(key, lambda: self._cos_sin(layout, wide))
        rotated, unrotated = x.split([self.d_rotated, self.d_k - self.d_rotated], dim=-1)
        a, b = self._pairs(rotated.to(wide))
        return self._join(a * cosines - b * sines, a * sines + b * cosines, unrotated).to(x.dtype)

    def _cos_sin(self, layout: Layout, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Compute cosines and sines of all angles, each ``[B, 1, S, d/2]``."""
        exponents = torch.arange(0, self.d_rotated, 2, dtype=torch.float64, device=layout.device)
        angles = layout.positions[:, None] * self.base ** (-exponents / self.d_rotated)
        cosines, sines = (layout.pad(x.to(dtype))[:, None] for x in (angles.cos(), angles.sin()))
        return cosines, sines

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.interleaved:
            return x[..., 0::2], x[..., 1::2]
        first_half, second_half = x.chunk(2, dim=-1)
        return first_half, second_half

    def _join(self, a: Tensor, b: Tensor, unrotated: Tensor) -> Tensor:
        rotated = torch.stack((a, b), -1).flatten(-2) if self.interleaved else torch.cat((a, b), -1)
        return torch.cat((rotated, unrotated), -1) if unrotated.shape[-1] else rotated

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.d_rotated} of {self.d_k}, base={self.base}, interleaved={self.interleaved}"


class Alibi(nn.Module):
    """Attention with linear biases: -m_h |p - r| is added to the score of head h for positions p and r.

    The bias is added after any scaling of the score. In the paper attention is causal and |p - r| = p - r.
    Bidirectional attention uses the same bias and cannot distinguish a sequence from its reverse.

    A trained model accepts sequences longer than those in training: the bias decreases with distance,
    also for distances never seen in training.

    Source: Press et al. 2022, section 3; slopes for other numbers of heads from the released code.

    Args:
        n_heads: number of query heads; each has a slope m_h (`slopes_of`).
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.slopes = slopes_of(n_heads)

    def forward(self, queries: Layout, keys: Layout) -> Float[Tensor, "b H Q K"]:
        """Compute the bias of the scores; b is 1 if all sequences start at position 0, else B."""
        key = ("alibi", self.slopes, None if keys is queries else keys)
        return queries.memo(key, lambda: self._bias(queries, keys))

    def _bias(self, queries: Layout, keys: Layout) -> Tensor:
        slopes = torch.tensor(self.slopes, dtype=torch.float32, device=queries.device)
        distances = (_column_positions(queries)[:, :, None] - _column_positions(keys)[:, None, :]).abs()
        return -slopes[:, None, None] * distances[:, None]

    def extra_repr(self) -> str:
        """Return the number of heads for ``repr``."""
        return str(len(self.slopes))


def slopes_of(n_heads: int) -> tuple[float, ...]:
    """Return m_h for each head: the powers 1 to n of 2^(-8/n) if n is a power of two.

    For other n, return the slopes of the largest power of two below n, followed by every other slope of the
    next power of two, from its first, until there are n.
    """
    power_of_two = 1 << (n_heads.bit_length() - 1)
    if power_of_two == n_heads:
        return tuple(2.0 ** (-8.0 * (h + 1) / n_heads) for h in range(n_heads))
    return slopes_of(power_of_two) + slopes_of(2 * power_of_two)[0::2][: n_heads - power_of_two]


def _column_positions(layout: Layout) -> Tensor:
    """Return the positions of the padded columns, ``[1 or B, S]``; padding continues the count."""
    columns = torch.arange(layout.max_length, device=layout.device)[None]
    return columns if layout.is_new else columns + layout.start_tensor[:, None]
