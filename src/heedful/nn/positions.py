"""Absolute position encodings, and their combination with token embeddings.

A `Positions` module maps positions ``[T]`` to ``[T, d]``; it has a width ``d`` and, if its table is finite,
a ``max_length``. `Added` and `Concatenated` combine it with embeddings.
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
    """Base class of position encodings.

    Attributes:
        d: width of the vectors.
        max_length: positions must be below it; None: no limit.
    """

    d: int
    max_length: int | None = None

    @abstractmethod
    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """Return the vector of each position.

        Args:
            positions: from 0.
            end: largest position + 1, if known; otherwise it is computed, which synchronizes a GPU.

        Raises:
            RequestError: a position is not below ``max_length``.
        """

    def _check_length(self, positions: Tensor, end: int | None) -> None:
        """Raise RequestError if a position is beyond the table."""
        if self.max_length is None:
            return
        last_position = _end(positions, end) - 1
        if last_position >= self.max_length:
            raise RequestError(
                f"position {last_position} is out of range: the model has {self.max_length} positions "
                f"(0 to {self.max_length - 1}); shorten the input, or train with a max_length of at least "
                f"{last_position + 1}"
            )


def _end(positions: Tensor, end: int | None) -> int:
    if end is not None:
        return end
    return int(positions.max()) + 1 if positions.numel() else 0


class SinusoidalPositions(Positions):
    """Sinusoidal positions, with geometrically decreasing frequencies and no length limit.

    PE[p, 2i] = sin(p ω_i) and PE[p, 2i+1] = cos(p ω_i), with ω_i = base^(-2i/d) and i = 0 … d/2 - 1. Sine
    and cosine of a pair have the same frequency. Hence PE_p · PE_{p+k} = Σ_i cos(k ω_i) for every p, and
    PE_{p+k} is PE_p with pair i rotated by the angle k ω_i. Without ``interleaved``, all sines come first,
    then all cosines.

    Wavelengths range from 2π to 2π base^((d-2)/d): 60,611 for d = 512 and base 10,000, not 2π·10,000
    = 62,832, as the paper and lectures S0 and S2 state. Lecture S2 prints a base of 1000, for which they
    end near 2π·1000. Lecture S0 gives the cosine the exponent (2i+1)/d and lets i run to 256: then no pair
    shares a frequency, shifting is not a rotation, and there are two columns too many.

    Angles are computed in double precision; the table is cached and grows on demand.

    Source: Vaswani et al. 2017, section 3.5.

    Args:
        d: width, even.
        base: 10,000 in the paper.
        interleaved: alternate sine and cosine columns, as in the paper; otherwise half and half.
        offset: added to every position (some checkpoints count from 1 or 2).
    """

    table: Tensor

    def __init__(self, d: int, base: float = 10000.0, interleaved: bool = True, offset: int = 0) -> None:
        super().__init__()
        if d < 2 or d % 2:
            raise ValueError(f"width of sinusoidal positions must be even and at least 2, got {d}")
        if base <= 1.0 or offset < 0:
            raise ValueError(f"base must be above 1 and offset at least 0, got {base} and {offset}")
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
        """Look up the positions; the table grows if necessary."""
        return functional.embedding(positions, self._table_for(_end(positions, end)))

    def _table_for(self, n: int) -> Tensor:
        """Return a table of at least ``n`` rows; other threads may replace ``self.table`` at any time."""
        table = self.table
        if n > table.shape[0]:
            rows = self._rows(max(256, 1 << (n - 1).bit_length()))
            self.table = table = rows.to(device=table.device, dtype=table.dtype)
        return table

    def _rows(self, n: int) -> Tensor:
        positions = torch.arange(self.offset, self.offset + n, dtype=torch.float64)
        angles = torch.outer(positions, self.frequencies())
        halves = (angles.sin(), angles.cos())
        return torch.stack(halves, -1).flatten(1) if self.interleaved else torch.cat(halves, -1)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.d}, base={self.base}, interleaved={self.interleaved}, offset={self.offset}"


class GridPositions(Positions):
    """2D sinusoidal positions of a grid: sinusoids of row and column concatenated, each of half the width.

    PE[r C + c] = [S_r; S_c], with S the `SinusoidalPositions` of width d/2, and C columns. Hence the product
    of two vectors is a sum over both directions, f(r - r') + f(c - c'), and depends only on the relative
    position. Positions before the grid (class tokens) have zero vectors. There are no parameters.

    Source: Dosovitskiy et al. 2021, appendix D.4 (2-dimensional embeddings, learned there); fixed ones: Chen
    et al. 2021 (MoCo v3), section 4.2.

    Args:
        rows: rows of the grid.
        columns: columns of the grid, C.
        d: width, a multiple of 4.
        before: number of positions before the grid.
    """

    table: Tensor
    max_length: int

    def __init__(self, rows: int, columns: int, d: int, before: int = 0) -> None:
        super().__init__()
        if d < 4 or d % 4:
            raise ValueError(f"width of grid positions must be a multiple of 4, got {d}")
        self.d, self.max_length = d, before + rows * columns
        half = SinusoidalPositions(d // 2)
        by_row, by_column = half(torch.arange(rows), rows), half(torch.arange(columns), columns)
        grid = torch.cat((by_row.repeat_interleave(columns, 0), by_column.repeat(rows, 1)), -1)
        table = torch.cat((torch.zeros(before, d), grid))
        self.register_buffer("table", table, persistent=False)

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """Look up the positions."""
        self._check_length(positions, end)
        return functional.embedding(positions, self.table)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.max_length}, {self.d}"


class LearnedPositions(Positions):
    """Learned positions: one vector for each of ``max_length`` positions, without extrapolation.

    Initialized Xavier-uniform. Source: Gehring et al. 2017 (ConvS2S), section 3.1; lectures S1 and S3.

    Args:
        max_length: number of positions.
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
        """Look up the positions."""
        self._check_length(positions, end)
        return embed(positions, self.weight)

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.max_length}, {self.d}"


class OneHotPositions(Positions):
    """One-hot positions: position p is the unit vector e_p, so all pairs have the same distance √2.

    Source: lecture S0.

    Args:
        max_length: number of positions, and the width.
    """

    max_length: int

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.d = max_length

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """Return one-hot vectors."""
        self._check_length(positions, end)
        return functional.one_hot(positions, self.d).to(torch.get_default_dtype())


class ConstantPositions(Positions):
    """Position p is the vector with all elements scale · p.

    Lecture S0 asks whether this suffices (with scale 1). It is unbounded, and soon larger than any
    embedding; a scale of 1/n keeps n positions within [0, 1).

    Args:
        d: width.
        scale: difference between consecutive positions.
    """

    def __init__(self, d: int, scale: float = 1.0) -> None:
        super().__init__()
        self.d = d
        self.scale = scale

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """Return the scaled position in each of d columns."""
        values = positions.to(torch.get_default_dtype()) * self.scale
        return values[:, None].expand(-1, self.d)


class NoPositions(Positions):
    """Zero vectors: added to embeddings, they have no effect, and the model ignores token order.

    Args:
        d: width.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d

    def forward(self, positions: Int[Tensor, " T"], end: int | None = None) -> Float[Tensor, "T d"]:
        """Return zeros."""
        return torch.zeros(positions.shape[0], self.d, device=positions.device)


class Added(nn.Module):
    """x + positions, both of the same width. Source: Vaswani et al. 2017, section 3.5.

    Args:
        positions: the position encoding.
    """

    def __init__(self, positions: Positions) -> None:
        super().__init__()
        self.positions = positions

    def output_width(self, d_embedded: int) -> int:
        """Return the width of the output: that of the embeddings.

        Raises:
            ValueError: the position vectors have another width.
        """
        if d_embedded != self.positions.d:
            raise ValueError(f"width of added positions must be {d_embedded}, got {self.positions.d}")
        return d_embedded

    def forward(
        self, x: Float[Tensor, "T d"], positions: Int[Tensor, " T"], end: int | None = None
    ) -> Float[Tensor, "T d"]:
        """Add the vector of its position to each embedding."""
        self.output_width(x.shape[-1])
        return x + self.positions(positions, end).to(x.dtype)


class Concatenated(nn.Module):
    """Concatenation [x; positions].

    Args:
        positions: the position encoding.
    """

    def __init__(self, positions: Positions) -> None:
        super().__init__()
        self.positions = positions

    def output_width(self, d_embedded: int) -> int:
        """Return the width of the output: the sum of both widths."""
        return d_embedded + self.positions.d

    def forward(
        self, x: Float[Tensor, "T d_e"], positions: Int[Tensor, " T"], end: int | None = None
    ) -> Float[Tensor, "T d"]:
        """Append the vector of its position to each embedding."""
        return torch.cat((x, self.positions(positions, end).to(x.dtype)), -1)
