"""Positions: properties of sinusoids and errors in their printed formulas, and alternatives to them.

Items 47 (the formula), 48 (heat map and distances), 49 (shifts) and 50 (alternatives) of the lectures.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.lab.drawing import Curves, Matrix, Panel, curves_over
from heedful.lab.experiment import Measured, Series, Size, measures, table_of
from heedful.lab.seeds import seeded
from heedful.lab.tiny import pre_norm_block, relative_difference
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderStack
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Added, ConstantPositions, OneHotPositions, Positions, SinusoidalPositions

D_MODEL = 512


def vectors(part: Positions, n: int) -> Float[Tensor, "n d"]:
    """Compute the vectors of positions 0 … n - 1, in double precision if the module supports it."""
    return part.double()(torch.arange(n)).double()


def as_printed(n: int, d: int = D_MODEL) -> Float[Tensor, "n columns"]:
    """Compute the formula of S0: sin(j / 10000^(2i/d)), cos(j / 10000^((2i+1)/d)), both for i = 0 … d/2."""
    i, places = torch.arange(d // 2 + 1, dtype=torch.float64), torch.arange(n, dtype=torch.float64)
    sines = torch.outer(places, 10_000 ** (-2 * i / d)).sin()
    cosines = torch.outer(places, 10_000 ** (-(2 * i + 1) / d)).cos()
    return torch.stack([sines, cosines], -1).flatten(1)


# The first positions

ROWS, COLUMNS = 9, 64


@measures("first-position", interleaved=(True, False))
def compare_first_position(size: Size, interleaved: bool) -> Series:
    """Measure whether p_0 is 0, 1, 0, 1 …; the figure is S0's heat map."""
    rows = vectors(SinusoidalPositions(D_MODEL, interleaved=interleaved), ROWS)
    n_wrong = int((rows[0] != torch.tensor([0.0, 1.0]).repeat(D_MODEL // 2)).sum())
    length = rows.norm(dim=1).mean().item()
    return Series(
        {
            "wrong": Measured(f"elements of p_0 that differ from 0, 1, 0, 1 …, of {D_MODEL}", float(n_wrong)),
            "length": Measured("length of every position vector", length, expected=math.sqrt(256)),
        },
        panels=[
            Matrix(
                "Positions 0 to 8, columns 0 to 63, of 512",
                "column i",
                "position j",
                rows[:, :COLUMNS].tolist(),
                (-1.0, 1.0),
                square=False,
                inches=(10.0, 2.8),
            )
        ],
    )


# Wavelengths

CLAIMED = 2 * math.pi * 10_000
BASES = {"S2, as printed": 1000.0, "S0 and the paper": 10_000.0, "exact": 10_000.0 ** (512 / 510)}


@measures("wavelengths", base=(BASES["S2, as printed"], BASES["exact"]))
def measure_wavelengths(size: Size, base: float) -> Series:
    """Measure the shortest and the longest wavelength, and the ratios between them."""
    lengths = SinusoidalPositions(D_MODEL, base=base).wavelengths()
    longest, ratios = lengths[-1].item(), lengths[1:] / lengths[:-1]
    by_formula, ratio = 2 * math.pi * base ** ((D_MODEL - 2) / D_MODEL), base ** (2 / D_MODEL)
    wavelengths_by_base = {
        name: SinusoidalPositions(D_MODEL, base=value).wavelengths().tolist() for name, value in BASES.items()
    }
    lines = {
        f"{name}: base {BASES[name]:,.0f}": wavelengths for name, wavelengths in wavelengths_by_base.items()
    }
    curves = curves_over(range(D_MODEL // 2), lines)
    return Series(
        {
            "longest": Measured("longest wavelength", longest, "positions", expected=by_formula),
            "claimed": Measured("the longest that is claimed", CLAIMED, "positions"),
            "shortest": Measured("shortest wavelength", lengths[0].item(), "positions", expected=2 * math.pi),
            "least": Measured("a wavelength to the one before, least", ratios.min().item(), expected=ratio),
            "most": Measured("a wavelength to the one before, most", ratios.max().item(), expected=ratio),
            "base": base,
        },
        table_of(
            {
                "base of": BASES,
                "base": BASES.values(),
                "longest wavelength": [wavelengths[-1] for wavelengths in wavelengths_by_base.values()],
            }
        ),
        [Curves("Wavelengths of column pairs, d = 512", "pair i", "positions", curves, log="y")],
    )


# Distances


def distances_of(part: Positions, n: int) -> Tensor:
    """Compute Euclidean distances ``[n, n]``, by differences, so that equal rows have distance 0."""
    rows = vectors(part, n)
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def _largest_spread(distances: Tensor) -> float:
    """Return the largest difference between distances at the same offset, over offsets on both sides."""
    n = len(distances)
    spreads = []
    for k in range(n):
        diagonals = torch.cat((distances.diagonal(k), distances.diagonal(-k)))
        spreads.append((diagonals.max() - diagonals.min()).item())
    return max(spreads)


def _first_decrease(by_offset: Sequence[float]) -> int | None:
    """Return the first offset whose distance is smaller than that of the one before."""
    return next((k for k in range(1, len(by_offset)) if by_offset[k] < by_offset[k - 1] - 1e-12), None)


@measures("position-distances", part=(lambda n: SinusoidalPositions(D_MODEL), OneHotPositions))
def measure_distances_by_offset(size: Size, part: Callable[[int], Positions]) -> Series:
    """Measure whether distance grows on both sides of a position, symmetrically."""
    n = {"short": 100, "long": 400}[size]
    distances = distances_of(part(n), n)
    by_offset = distances[0].tolist()
    fall, grows = _first_decrease(by_offset), by_offset[2] > by_offset[1] + 1e-9
    expected, uneven = 44.0 if grows else None, _largest_spread(distances)
    return Series(
        {
            "fall": Measured("first offset with a smaller distance", float(fall or n), expected=expected),
            "uneven": Measured("distances at one offset differ by, at most", uneven, expected=0.0),
            "neighbours": Measured("distance of neighbours", by_offset[1]),
            "furthest": Measured(f"distance at an offset of {n - 1}", by_offset[-1]),
            "falls": fall is not None,
            "grows": grows,
            "up_to": (fall or n) - 1,
        },
        panels=distance_panels(distances),
    )


def distance_panels(distances: Tensor) -> list[Panel]:
    """Draw all distances, and those from position 0."""
    offsets = range(len(distances))
    by_offset = {"": (offsets, distances[0].tolist())}
    return [
        Matrix("Distance of two positions", "position", "position", distances.tolist()),
        Curves("Distance by offset", "offset", "distance", by_offset, limits=(0, None)),
    ]


@measures("one-hot-distances", part=(OneHotPositions, lambda n: SinusoidalPositions(D_MODEL)))
def measure_least_and_greatest_distance(size: Size, part: Callable[[int], Positions]) -> Series:
    """Measure the least and the greatest distance of two positions."""
    n = {"short": 50, "long": 200}[size]
    distances = distances_of(part(n), n)
    off_diagonal = distances[~torch.eye(n, dtype=torch.bool)]
    expected = math.sqrt(2) if part is OneHotPositions else None
    return Series(
        {
            "least": Measured(
                "least distance of two positions", off_diagonal.min().item(), expected=expected
            ),
            "most": Measured(
                "greatest distance of two positions", off_diagonal.max().item(), expected=expected
            ),
            "root": math.sqrt(2),
        },
        panels=distance_panels(distances),
    )


# Shifts

SHIFTED_WIDTH = 16
SHIFTS = (1, 2, 5, 10, 50, 100)


def _rotation(k: int) -> Tensor:
    """Return R_k, which rotates each pair of columns by k ω_i."""
    angles = k * SinusoidalPositions(SHIFTED_WIDTH).frequencies()
    blocks = [
        torch.stack((torch.stack((c, s)), torch.stack((-s, c)))) for c, s in zip(angles.cos(), angles.sin())
    ]
    return torch.block_diag(*blocks)


@measures("position-shift", printed=(False, True))
def measure_error_of_shifts(size: Size, printed: bool) -> Series:
    """Measure whether one matrix maps every PE_p to PE_{p+k}: fitted on some positions, tested on others."""
    n = {"short": 1000, "long": 10_000}[size]
    rows = as_printed(2 * n + max(SHIFTS), SHIFTED_WIDTH)[:, :SHIFTED_WIDTH]
    if not printed:
        rows = vectors(SinusoidalPositions(SHIFTED_WIDTH), len(rows))
    errors, rotation_errors = [], []
    for k in SHIFTS:
        matrix = torch.linalg.lstsq(rows[:n], rows[k : n + k]).solution
        shifted = rows[n + k : 2 * n + k]
        errors.append(relative_difference(rows[n : 2 * n] @ matrix, shifted))
        rotation_errors.append((rows[: 2 * n] @ _rotation(k).mT - rows[k : 2 * n + k]).abs().max().item())
    limits, name = (-1.0, 1.0), "error of the best matrix on other positions, relative, worst shift"
    return Series(
        {
            "worst": Measured(name, max(errors)),
            "exact": Measured("error of R_k, worst", max(rotation_errors), expected=None if printed else 0.0),
        },
        table_of({"shift k": SHIFTS, "best matrix": errors, "R_k": rotation_errors}),
        [
            Matrix(f"R_k for k = {SHIFTS[2]}", "column", "column", _rotation(SHIFTS[2]).tolist(), limits),
            Matrix("Positions", "column", "position", rows[:60].tolist(), limits, square=False),
        ],
    )


# Columns


@measures("sinusoid-columns", printed=(True, False))
def measure_products_by_distance(size: Size, *, printed: bool) -> Series:
    """Count columns, and test whether the product of two positions depends only on their distance."""
    n = 64 if size == "short" else 512
    positions = SinusoidalPositions(D_MODEL).double()
    rows = as_printed(n) if printed else positions(torch.arange(n))
    products = rows @ rows.T
    diagonals = {k: products.diagonal(k) for k in (1, 2, 4, 8, 16)}
    spread = {k: (products_at_k.max() - products_at_k.min()).item() for k, products_at_k in diagonals.items()}
    curves = curves_over(range(n - 16), {"product": diagonals[16].tolist()})
    return Series(
        {
            "columns": Measured("columns", rows.shape[1], expected=float(D_MODEL)),
            "spread": Measured("spread of p_j · p_{j+16} over j", spread[16], expected=0.0),
            "product": Measured("p_0 · p_16", products[0, 16].item()),
            "most": max(spread.values()),
        },
        table_of({"distance": spread, "spread of the products": spread.values()}),
        [Curves("Product of two positions at distance 16", "first position j", "p_j · p_{j+16}", curves)],
    )


# Constant vectors

LENGTHS_AT = (1, 5, 10, 50, 100, 500)


def _pre_norm_stack(d: int) -> EncoderStack:
    blocks = [pre_norm_block(SelfAttention(d, 4), d, 2 * d) for _ in range(2)]
    return EncoderStack(blocks, LayerNorm(d)).double()


@measures("constant-positions", part=(ConstantPositions, SinusoidalPositions))
@seeded()
@torch.no_grad()
def measure_change_with_constant_positions(size: Size, part: Callable[[int], Positions]) -> Series:
    """Measure whether a stack with layer norms is sensitive to shuffled tokens."""
    n, d = {"short": 12, "long": 64}[size], 32
    stack, added, layout = _pre_norm_stack(d), Added(part(d).double()), Layout.of([n])
    x, order = torch.randn(n, d, dtype=torch.float64), torch.randperm(n)
    apply = lambda tokens: stack(added(tokens, layout.positions), layout)  # noqa: E731
    output = apply(x)
    change = ((apply(x[order]) - output[order]).norm() / output.norm()).item()
    lengths = [part(D_MODEL)(torch.tensor([p])).double().norm().item() for p in LENGTHS_AT]
    name = f"length of the vector of position {LENGTHS_AT[-1]}, d = {D_MODEL}"
    exact = 0.0 if part is ConstantPositions else None
    return Series(
        {
            "change": Measured("change of a token's output when shuffled", change, expected=exact),
            "length": Measured(name, lengths[-1]),
        },
        table_of({"position": LENGTHS_AT, "length of its vector": lengths}),
        [
            Curves(
                f"Length of a position's vector, d = {D_MODEL}",
                "position",
                "length",
                curves_over(LENGTHS_AT, {"its vector": lengths}),
                levels={"an embedding of N(0, 1)": math.sqrt(D_MODEL)},
                log="xy",
            )
        ],
    )
