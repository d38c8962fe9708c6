"""Sinusoidal positions: their properties, and the errors in the printed formulas.

Items 47 (the formula), 48 (heat map and distances) and 49 (shifts) of the lectures.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.lab.drawing import Curves, Matrix, Panel, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.nn.positions import OneHotPositions, Positions, SinusoidalPositions

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


def _first_row(size: Size, interleaved: bool) -> Outcome:
    """Test whether p_0 is 0, 1, 0, 1 …; the figure is S0's heat map."""
    rows = vectors(SinusoidalPositions(D_MODEL, interleaved=interleaved), ROWS)
    wrong = int((rows[0] != torch.tensor([0.0, 1.0]).repeat(D_MODEL // 2)).sum())
    return Outcome(
        "holds" if not wrong else "is wrong",
        (
            "sin 0 = 0 is in the even columns and cos 0 = 1 in the odd ones; this vector is added to the "
            "first token of every sequence. (In S0's formula i runs to 256, which would give 514 columns; "
            "the last i is 255.)"
            if not wrong
            else "If all sines come first and then all cosines, as in some implementations, p_0 is 256 "
            "zeros and 256 ones. It is the same encoding, with its columns in another order."
        ),
        [
            Measured(f"elements of p_0 that differ from 0, 1, 0, 1 …, of {D_MODEL}", float(wrong)),
            Measured(
                "length of every position vector", rows.norm(dim=1).mean().item(), expected=math.sqrt(256)
            ),
        ],
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


def _wavelengths(size: Size, base: float) -> Outcome:
    """Test whether wavelengths range from 2π to 10000·2π."""
    lengths = SinusoidalPositions(D_MODEL, base=base).wavelengths()
    longest = lengths[-1].item()
    ratios = lengths[1:] / lengths[:-1]
    reached = abs(longest / CLAIMED - 1) < 1e-3
    by_formula = 2 * math.pi * base ** ((D_MODEL - 2) / D_MODEL)
    return Outcome(
        "holds" if reached else "is wrong",
        (
            f"With a base of 10000^(512/510) = {base:,.0f} the last wavelength is 10000·2π, at d = 512."
            if reached
            else f"S2 prints a base of 1000, with which the longest wavelength is {longest:,.0f}. With the "
            f"paper's 10000 it is 2π·10000^((d-2)/d), 60,611 positions at d = 512, and not 10000·2π = "
            f"62,832, which is the limit for large d."
        ),
        [
            Measured("longest wavelength", longest, "positions", expected=by_formula),
            Measured("the longest that is claimed", CLAIMED, "positions"),
            Measured("shortest wavelength", lengths[0].item(), "positions", expected=2 * math.pi),
            Measured(
                "a wavelength to the one before, least", ratios.min().item(), expected=base ** (2 / D_MODEL)
            ),
            Measured(
                "a wavelength to the one before, most", ratios.max().item(), expected=base ** (2 / D_MODEL)
            ),
        ],
        [
            {
                "base of": name,
                "base": each,
                "longest wavelength": SinusoidalPositions(D_MODEL, base=each).wavelengths()[-1].item(),
            }
            for name, each in BASES.items()
        ],
        [_by_pair()],
    )


def _by_pair() -> Panel:
    lines = {
        f"{name}: base {base:,.0f}": SinusoidalPositions(D_MODEL, base=base).wavelengths().tolist()
        for name, base in BASES.items()
    }
    title, pairs = "Wavelengths of column pairs, d = 512", range(D_MODEL // 2)
    return Curves(title, "pair i", "positions", over(pairs, lines), log="y")


# Distances


def distances_of(part: Positions, n: int) -> Tensor:
    """Compute Euclidean distances ``[n, n]``, by differences, so that equal rows have distance 0."""
    rows = vectors(part, n)
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def _uneven(distances: Tensor) -> float:
    """Return the largest difference between distances at the same offset, over offsets on both sides."""
    n = len(distances)
    spreads = []
    for k in range(n):
        both = torch.cat((distances.diagonal(k), distances.diagonal(-k)))
        spreads.append((both.max() - both.min()).item())
    return max(spreads)


def _first_fall(by_offset: Sequence[float]) -> int | None:
    """Return the first offset whose distance is smaller than that of the one before."""
    return next((k for k in range(1, len(by_offset)) if by_offset[k] < by_offset[k - 1] - 1e-12), None)


def _growing(size: Size, part: Callable[[int], Positions]) -> Outcome:
    """Test whether distance grows on both sides of a position, symmetrically."""
    n = {"short": 100, "long": 400}[size]
    distances = distances_of(part(n), n)
    by_offset = distances[0].tolist()
    falls, uneven = _first_fall(by_offset), _uneven(distances)
    grows = by_offset[2] > by_offset[1] + 1e-9
    even = uneven < 1e-9
    verdict: Verdict = "holds" if falls is None else "holds with conditions"
    return Outcome(
        verdict if grows and even else "is wrong",
        (
            "It is symmetric, and the same around every position: PE_p · PE_(p+k) = Σ cos(k ω_i) for every "
            f"p. It grows up to an offset of {(falls or n) - 1}; beyond that it sometimes decreases "
            "slightly, but still grows overall."
            if grows
            else "The distance of any two one-hot vectors is √2, neighbours or not."
        ),
        [
            Measured(
                "first offset with a smaller distance", float(falls or n), expected=44.0 if grows else None
            ),
            Measured("distances at one offset differ by, at most", uneven, expected=0.0),
            Measured("distance of neighbours", by_offset[1]),
            Measured(f"distance at an offset of {n - 1}", by_offset[-1]),
        ],
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


def _shift(size: Size, printed: bool) -> Outcome:
    """Test whether one matrix maps every PE_p to PE_{p+k}: fitted on some positions, tested on others."""
    n = {"short": 1000, "long": 10_000}[size]
    rows = as_printed(2 * n + max(SHIFTS), SHIFTED_WIDTH)[:, :SHIFTED_WIDTH]
    if not printed:
        rows = vectors(SinusoidalPositions(SHIFTED_WIDTH), len(rows))
    errors, exact = [], []
    for k in SHIFTS:
        fitted = torch.linalg.lstsq(rows[:n], rows[k : n + k]).solution
        wanted = rows[n + k : 2 * n + k]
        errors.append(((rows[n : 2 * n] @ fitted - wanted).norm() / wanted.norm()).item())
        exact.append((rows[: 2 * n] @ _rotation(k).mT - rows[k : 2 * n + k]).abs().max().item())
    holds = max(errors) < 1e-6
    return Outcome(
        "holds" if holds else "is wrong",
        (
            "PE_(p+k) = R_k PE_p for every p, where R_k rotates the pair of columns 2i, 2i+1 by the angle "
            "k ω_i and depends only on k."
            if holds
            else "With S0's exponent (2i+1)/d, the cosine next to a sine has another frequency. The sine of "
            "a sum needs the cosine of its own angle, so no matrix shifts positions. Both exponents must be "
            "2i/d."
        ),
        [
            Measured("error of the best matrix on other positions, relative, worst shift", max(errors)),
            Measured("error of R_k, worst", max(exact), expected=0.0 if holds else None),
        ],
        [
            {"shift k": k, "best matrix": error, "R_k": by_rotation}
            for k, error, by_rotation in zip(SHIFTS, errors, exact, strict=True)
        ],
        _shift_panels(_rotation(SHIFTS[2]), rows[:60]),
    )


def _shift_panels(rotation: Tensor, rows: Tensor) -> list[Panel]:
    title, limits = f"R_k for k = {SHIFTS[2]}", (-1.0, 1.0)
    return [
        Matrix(title, "column", "column", rotation.tolist(), limits),
        Matrix("Positions", "column", "position", rows.tolist(), limits, square=False),
    ]


# Columns


def _columns(size: Size, *, printed: bool) -> Outcome:
    """Count columns, and test whether the product of two positions depends only on their distance."""
    n = 64 if size == "short" else 512
    positions = SinusoidalPositions(D_MODEL).double()
    table = as_printed(n) if printed else positions(torch.arange(n))
    products = table @ table.T
    distances = [1, 2, 4, 8, 16]
    spread = {}
    for k in distances:
        along = products.diagonal(k)
        spread[k] = (along.max() - along.min()).item()
    right = table.shape[1] == D_MODEL and max(spread.values()) < 1e-6
    return Outcome(
        "holds" if right else "is wrong",
        "A sine and its cosine share a frequency, 10000^(-2i/d) for i = 0 … d/2 - 1, which gives 512 columns "
        "for d = 512. Then the product of two positions depends only on their distance, and a shift is a "
        "rotation. With the cosine exponent (2i+1)/d, no pair shares a frequency; with i up to 256 there are "
        "514 columns, and column 512 does not exist.",
        [
            Measured("columns", table.shape[1], expected=float(D_MODEL)),
            Measured("spread of p_j · p_{j+16} over j", spread[16], expected=0.0),
            Measured("p_0 · p_16", products[0, 16].item()),
        ],
        [{"distance": k, "spread of the products": value} for k, value in spread.items()],
        [
            Curves(
                "Product of two positions at distance 16",
                "first position j",
                "p_j · p_{j+16}",
                {"product": (list(range(n - 16)), products.diagonal(16).tolist())},
            )
        ],
    )


_VASWANI = "Vaswani et al. 2017"

EXPERIMENTS = [
    Experiment(
        name="first-position",
        title="The first position is 0, 1, 0, 1 …",
        claim="p_0 is the vector of alternating 0's and 1's, and is added to the first word of all "
        "sentences.",
        source="S0, positional encoding (with its heat map of positions 0 to 8 and columns 0 to 63)",
        items=(47, 48),
        run=partial(_first_row, interleaved=True),
        control=partial(_first_row, interleaved=False),
        changed="All sines come first, then all cosines.",
    ),
    Experiment(
        name="wavelengths",
        title="Wavelengths end at 60,611 positions",
        claim="PE = sin(pos / 1000^(2i/d)): the wavelengths form a geometric progression from 2π to "
        "10000·2π.",
        source="S2, positional encoding; S0 names the same end for its base of 10000; Vaswani et al. 2017, "
        "section 3.5",
        items=(47,),
        run=partial(_wavelengths, base=BASES["S2, as printed"]),
        control=partial(_wavelengths, base=BASES["exact"]),
        changed="The base is 10000^(512/510).",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        name="position-distances",
        title="Distance grows with the offset, up to 43",
        claim="The distance of position vectors increases to the left and the right of a position, and is "
        "symmetric.",
        source="S0, positional encoding, distance matrix",
        items=(48,),
        run=partial(_growing, part=lambda n: SinusoidalPositions(D_MODEL)),
        control=partial(_growing, part=OneHotPositions),
        changed="Positions are one-hot vectors.",
        expected=("holds with conditions", "is wrong"),
        asked=True,
    ),
    Experiment(
        name="position-shift",
        title="A shift of positions is a rotation",
        claim="For any fixed offset k, PE_(pos+k) can be represented as a linear function of PE_pos.",
        source="S2, positional encoding; Vaswani et al. 2017, section 3.5",
        items=(47, 49),
        run=partial(_shift, printed=False),
        control=partial(_shift, printed=True),
        changed="The cosine's exponent is (2i+1)/d, as S0 prints it.",
    ),
    Experiment(
        "sinusoid-columns",
        "Exponents and columns of the sinusoids",
        "Column i is sin(j / 10000^(2i/d)) or cos(j / 10000^((2i+1)/d)), with i = 0, 1, …, 256 for d = 512.",
        f"S0, sinusoidal encoding function; {_VASWANI}, section 3.5",
        (47,),
        run=partial(_columns, printed=True),
        control=partial(_columns, printed=False),
        changed="Both have the exponent 2i/d, and the last i is 255.",
        expected=("is wrong", "holds"),
    ),
]
