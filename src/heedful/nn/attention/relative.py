"""Positions inside self-attention: a score then depends on how far a query and a key lie apart.

| part | what it does | given to `SelfAttention` as |
|---|---|---|
| `Rotary` | turns queries and keys by angles that grow with their positions | ``rotary`` |
| `Alibi` | takes a multiple of the distance off every score | ``score_bias`` |

Neither has parameters or a table that ends, so any position can be had. What depends on the layout alone
is computed once for all layers.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.layout import Layout


class Rotary(nn.Module):
    """Turns pairs of components of a vector at position p, pair i by the angle p ω_i.

    (a, b) → (a cos pω_i - b sin pω_i, a sin pω_i + b cos pω_i), ω_i = base^(-2i/d_r), i = 0 … d_r/2 - 1,
    for the first d_r components; the others stay as they are. As rotations are orthogonal and
    R_pᵀ R_r = R_{r-p}, the product of a query at p and a key at r is qᵀ R_{r-p} k: it depends on positions
    through r - p alone, and norms are kept.

    | pairing | a, b of pair i | used by |
    |---|---|---|
    | interleaved | components 2i, 2i + 1 | the paper, GPT-J |
    | half-split | components i, i + d_r/2 | GPT-NeoX, Llama |

    The two are one model up to the order of the rows of W_Q and W_K. Angles are computed in double
    precision, and the products in fp32 where the vectors have fewer bits.

    Source: Su et al. 2021 (RoFormer), section 3.2.2, equation 34.

    Args:
        d_k: width of the vectors.
        d_rotated: d_r, even; all of d_k by default.
        base: the 10,000 of the paper; a larger one turns more slowly.
        interleaved: the pairing of the paper; else half-split.
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
            raise ValueError(
                f"rotary positions turn pairs: an even number of the {d_k} components, not {self.d_rotated}"
            )
        if base <= 1.0:
            raise ValueError(f"rotary positions need a base above 1, not {base}")

    def forward(self, x: Float[Tensor, "B H S d_k"], layout: Layout) -> Float[Tensor, "B H S d_k"]:
        """Turn the vectors of every head by the positions of ``layout``; pads stay zero."""
        wide = torch.promote_types(x.dtype, torch.float32)
        key = ("rotary", self.d_rotated, self.base, wide)
        cosines, sines = layout._memo(key, lambda: self._turns(layout, wide))
        turned, rest = x.split([self.d_rotated, self.d_k - self.d_rotated], dim=-1)
        a, b = self._pairs(turned.to(wide))
        return self._joined(a * cosines - b * sines, a * sines + b * cosines, rest).to(x.dtype)

    def _turns(self, layout: Layout, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines of all angles, each ``[B, 1, S, d_r/2]``."""
        exponents = torch.arange(0, self.d_rotated, 2, dtype=torch.float64, device=layout.device)
        angles = layout.positions[:, None] * self.base ** (-exponents / self.d_rotated)
        cosines, sines = (layout.pad(turn.to(dtype))[:, None] for turn in (angles.cos(), angles.sin()))
        return cosines, sines

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.interleaved:
            return x[..., 0::2], x[..., 1::2]
        first, second = x.chunk(2, dim=-1)
        return first, second

    def _joined(self, a: Tensor, b: Tensor, rest: Tensor) -> Tensor:
        turned = torch.stack((a, b), -1).flatten(-2) if self.interleaved else torch.cat((a, b), -1)
        return torch.cat((turned, rest), -1) if rest.shape[-1] else turned

    def extra_repr(self) -> str:
        """Settings, for printing."""
        return f"{self.d_rotated} of {self.d_k}, base={self.base}, interleaved={self.interleaved}"


class Alibi(nn.Module):
    """Attention with linear biases: -m_h |p - r| is added to the score of head h for positions p and r.

    It is added to the score as it is, after any factor of the score's own. The paper's is causal, where
    |p - r| = p - r; here the same serves attention that reads ahead, which then sees no direction: a sequence
    and its mirror image are alike to it.

    A model so trained reads sequences longer than any in training: a far key weighs less and less, whether
    its distance was ever met or not.

    Source: Press et al. 2022, section 3; slopes for other numbers of heads from the released code.

    Args:
        n_heads: of the queries; each has its slope m_h (`slopes_of`).
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.slopes = slopes_of(n_heads)

    def forward(self, queries: Layout, keys: Layout) -> Float[Tensor, "b H Q K"]:
        """What is added to the scores; b is 1 where all sequences start at position 0, else B."""
        key = ("alibi", self.slopes, None if keys is queries else keys)
        return queries._memo(key, lambda: self._bias(queries, keys))

    def _bias(self, queries: Layout, keys: Layout) -> Tensor:
        slopes = torch.tensor(self.slopes, dtype=torch.float32, device=queries.device)
        distances = (_places(queries)[:, :, None] - _places(keys)[:, None, :]).abs()
        return -slopes[:, None, None] * distances[:, None]

    def extra_repr(self) -> str:
        """Number of heads, for printing."""
        return str(len(self.slopes))


def slopes_of(n_heads: int) -> tuple[float, ...]:
    """m_h for each head: the powers 1 to n of 2^(-8/n) where n is a power of two.

    For other n, they are those of the power of two below it, and then every other one of the next power of
    two, from its first, until there are n.
    """
    below = 1 << (n_heads.bit_length() - 1)
    if below == n_heads:
        return tuple(2.0 ** (-8.0 * (h + 1) / n_heads) for h in range(n_heads))
    return slopes_of(below) + slopes_of(2 * below)[0::2][: n_heads - below]


def _places(layout: Layout) -> Tensor:
    """Positions of the rectangle's columns, ``[1 or B, S]``, those of pads counted on."""
    columns = torch.arange(layout.max_length, device=layout.device)[None]
    return columns if layout.is_new else columns + layout.start_tensor[:, None]
