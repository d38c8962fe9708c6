"""Where a token stands, as a vector; and the two ways to join it to the token's embedding.

A part maps positions ``[T]`` to ``[T, d]`` and knows its width ``d`` and, where a table ends, its
``max_length``. `Added` and `Concatenated` join it to embeddings.
"""

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.errors import RequestError
from heedful.nn.embeddings import embed


class Positions(nn.Module, ABC):
    """The contract of position parts.

    Attributes:
        d: width of the vectors.
        max_length: positions 0 to max_length - 1 have a vector; None: all have.
    """

    d: int
    max_length: int | None = None

    @abstractmethod
    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """The vector of each position.

        Args:
            positions: from 0.
            end: one more than the largest of them, where the caller knows it; else they are searched,
                which on a GPU means waiting for it.

        Raises:
            RequestError: a position has no vector.
        """

    def _refuse_beyond(self, positions: Tensor, end: int | None) -> None:
        """Raise if a position lies beyond the table."""
        if self.max_length is None:
            return
        last = _end(positions, end) - 1
        if last >= self.max_length:
            raise RequestError(
                f"position {last} is beyond the {self.max_length} positions (0 to {self.max_length - 1}) "
                f"of this model: shorten the input, or train with a max_length of at least {last + 1}"
            )


def _end(positions: Tensor, end: int | None) -> int:
    if end is not None:
        return end
    return int(positions.max()) + 1 if positions.numel() else 0


class SinusoidalPositions(Positions):
    """Sines and cosines of geometrically falling frequencies; every position has a vector.

    PE[p, 2i] = sin(p ω_i) and PE[p, 2i+1] = cos(p ω_i), with ω_i = base^(-2i/d) and i = 0 … d/2 - 1. A
    sine and its cosine share their frequency. Hence PE_p · PE_{p+k} = Σ_i cos(k ω_i) for every p, and
    PE_{p+k} is PE_p with pair i rotated by the angle k ω_i. Without ``interleaved`` all sines come
    first, then all cosines.

    The wavelengths run from 2π to 2π base^((d-2)/d): 60,611 at d = 512 and base 10,000, not 2π·10,000
    = 62,832, which the paper and lectures S0 and S2 name as their end. Lecture S2 prints a base of 1000,
    with which they end near 2π·1000. Lecture S0 gives the cosine the exponent (2i+1)/d and lets i run to
    256: then no pair shares a frequency, shifting is not a rotation, and there are two columns too many.

    Angles are computed in double precision, and the table is kept and grown as positions are met.

    Source: Vaswani et al. 2017, section 3.5.

    Args:
        d: width, even.
        base: the 10,000 of the paper.
        interleaved: sine and cosine columns alternate, as in the paper; else half and half.
        offset: added to every position (some weights count from 1 or 2).
    """

    table: Tensor

    def __init__(self, d: int, base: float = 10000.0, interleaved: bool = True, offset: int = 0) -> None:
        super().__init__()
        if d < 2 or d % 2:
            raise ValueError(f"sinusoidal positions come in pairs: the width must be even, not {d}")
        if base <= 1.0 or offset < 0:
            raise ValueError(f"needs a base above 1 and no negative offset, not {base} and {offset}")
        self.d = d
        self.base = base
        self.interleaved = interleaved
        self.offset = offset
        self.register_buffer("table", torch.empty(0, d), persistent=False)

    def frequencies(self) -> Float[Tensor, " pairs"]:
        """ω_i, in double precision, on the CPU."""
        return self.base ** (-torch.arange(0, self.d, 2, dtype=torch.float64) / self.d)

    def wavelengths(self) -> Float[Tensor, " pairs"]:
        """2π/ω_i, in double precision, on the CPU."""
        return 2 * math.pi / self.frequencies()

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """Look the positions up, growing the table if one lies beyond it."""
        return functional.embedding(positions, self._table_of(_end(positions, end)))

    def _table_of(self, n: int) -> Tensor:
        """A table of at least ``n`` rows. Another thread may replace the one that is kept at any time."""
        table = self.table
        if n > table.shape[0]:
            rows = self._rows(max(256, 1 << (n - 1).bit_length()))
            self.table = table = rows.to(device=table.device, dtype=table.dtype)
        return table

    def _rows(self, n: int) -> Tensor:
        places = torch.arange(self.offset, self.offset + n, dtype=torch.float64)
        angles = torch.outer(places, self.frequencies())
        halves = (angles.sin(), angles.cos())
        return torch.stack(halves, -1).flatten(1) if self.interleaved else torch.cat(halves, -1)

    def extra_repr(self) -> str:
        """Settings, for printing."""
        return f"{self.d}, base={self.base}, interleaved={self.interleaved}, offset={self.offset}"


class GridPositions(Positions):
    """Sinusoids of the places in a grid: the row's beside the column's, each of half the width.

    PE[r C + c] = [S_r; S_c], with S the `SinusoidalPositions` of width d/2, and C columns. Hence the product
    of two places is a sum over both directions, f(r - r') + f(c - c'), and depends on how they lie to each
    other alone. Positions before the grid (of a class token) have zeros. Nothing is learned.

    Source: Dosovitskiy et al. 2021, appendix D.4 (2-dimensional embeddings, learned there); fixed ones: Chen
    et al. 2021 (MoCo v3), section 4.2.

    Args:
        rows: of the grid.
        columns: of the grid, C.
        d: width, a multiple of 4.
        before: positions before the grid's first.
    """

    table: Tensor
    max_length: int

    def __init__(self, rows: int, columns: int, d: int, before: int = 0) -> None:
        super().__init__()
        if d < 4 or d % 4:
            raise ValueError(f"sinusoids of rows and of columns: the width must be a multiple of 4, not {d}")
        self.d, self.max_length = d, before + rows * columns
        half = SinusoidalPositions(d // 2)
        along, across = half(torch.arange(rows), rows), half(torch.arange(columns), columns)
        grid = torch.cat((along.repeat_interleave(columns, 0), across.repeat(rows, 1)), -1)
        table = torch.cat((torch.zeros(before, d), grid))
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """Look the positions up."""
        self._refuse_beyond(positions, end)
        return functional.embedding(positions, self.table)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.max_length}, {self.d}"


class LearnedPositions(Positions):
    """A learned vector for each of ``max_length`` positions. It cannot extrapolate.

    Starts Xavier uniform. Source: Gehring et al. 2017 (ConvS2S), section 3.1; lectures S1 and S3.

    Args:
        max_length: rows of the table.
        d: width.
    """

    max_length: int

    def __init__(self, max_length: int, d: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.d = d
        self.weight = nn.Parameter(torch.empty(max_length, d))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """The learned row of each position."""
        self._refuse_beyond(positions, end)
        return embed(positions, self.weight)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.max_length}, {self.d}"


class OneHotPositions(Positions):
    """Position p is the unit vector e_p, so any two positions are √2 apart, however near they are.

    Source: lecture S0.

    Args:
        max_length: how many positions there are, and the width.
    """

    max_length: int

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.d = max_length

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """A one in the column of each position."""
        self._refuse_beyond(positions, end)
        return functional.one_hot(positions, self.d).to(torch.get_default_dtype())


class ConstantPositions(Positions):
    """Position p is the constant vector scale · p: every element holds the position itself.

    Lecture S0 asks whether this would do (with scale 1). It is unbounded, and soon larger than any
    embedding; a scale of 1/n keeps n positions within [0, 1).

    Args:
        d: width.
        scale: what a step of one position adds to every element.
    """

    def __init__(self, d: int, scale: float = 1.0) -> None:
        super().__init__()
        self.d = d
        self.scale = scale

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """The scaled position in each of d columns."""
        values = positions.to(torch.get_default_dtype()) * self.scale
        return values[:, None].expand(-1, self.d)


class NoPositions(Positions):
    """Zeros: added, they leave the embeddings alone, and the model is blind to order.

    Args:
        d: width.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """Zeros."""
        return torch.zeros(positions.shape[0], self.d, device=positions.device)


class Added(nn.Module):
    """x + positions, both of one width. Vaswani et al. 2017, section 3.5.

    Args:
        positions: the part that makes the vectors.
    """

    def __init__(self, positions: Positions) -> None:
        super().__init__()
        self.positions = positions

    def output_width(self, d_embedded: int) -> int:
        """The width of the result: that of the embeddings.

        Raises:
            ValueError: the position vectors have another width.
        """
        if d_embedded != self.positions.d:
            raise ValueError(f"positions of width {self.positions.d} cannot be added to width {d_embedded}")
        return d_embedded

    def forward(
        self, x: Float[Tensor, "T d"], positions: Int[Tensor, " T"], end: int | None = None
    ) -> Float[Tensor, "T d"]:
        """Add to each embedding the vector of its position."""
        self.output_width(x.shape[-1])
        return x + self.positions(positions, end).to(x.dtype)


class Concatenated(nn.Module):
    """[x; positions], side by side.

    Args:
        positions: the part that makes the vectors.
    """

    def __init__(self, positions: Positions) -> None:
        super().__init__()
        self.positions = positions

    def output_width(self, d_embedded: int) -> int:
        """The width of the result: both widths together."""
        return d_embedded + self.positions.d

    def forward(
        self, x: Float[Tensor, "T d_e"], positions: Int[Tensor, " T"], end: int | None = None
    ) -> Float[Tensor, "T d"]:
        """Append to each embedding the vector of its position."""
        return torch.cat((x, self.positions(positions, end).to(x.dtype)), -1)
