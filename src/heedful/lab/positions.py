"""Positions: what sinusoids are, what they promise, and what the lectures' other ideas lack."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.errors import RequestError
from heedful.lab.drawing import curves, matrix, panels
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import seeded
from heedful.nn.attention.relative import Rotary
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import (
    Added,
    ConstantPositions,
    LearnedPositions,
    NoPositions,
    OneHotPositions,
    Positions,
    SinusoidalPositions,
)
from heedful.nn.residual import PreNorm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

D_MODEL = 512


def _rows(part: Positions, n: int) -> Tensor:
    """Vectors of positions 0 … n - 1, in double precision where the part has it."""
    return part.double()(torch.arange(n)).double()


ROWS, COLUMNS = 9, 64


def _first_row(size: Size, interleaved: bool) -> Outcome:
    """Whether p_0 is 0, 1, 0, 1 …; the picture is S0's heat map."""
    rows = _rows(SinusoidalPositions(D_MODEL, interleaved=interleaved), ROWS)
    wrong = int((rows[0] != torch.tensor([0.0, 1.0]).repeat(D_MODEL // 2)).sum())
    return Outcome(
        "holds" if not wrong else "is wrong",
        (
            "sin 0 = 0 stands in the even columns and cos 0 = 1 in the odd ones; this vector is added to the "
            "first token of every sequence. (In S0's formula i runs to 256, which would make 514 columns: it "
            "ends at 255.)"
            if not wrong
            else "Where all sines come first and then all cosines, as some programs have it, p_0 is 256 "
            "zeros and 256 ones. The same model, with its columns in another order."
        ),
        [
            Measured(f"elements of p_0 that differ from 0, 1, 0, 1 …, of {D_MODEL}", float(wrong)),
            Measured(
                "length of every position vector", rows.norm(dim=1).mean().item(), expected=math.sqrt(256)
            ),
        ],
        draw=partial(_draw_rows, rows[:, :COLUMNS].tolist()),
    )


def _draw_rows(rows: list[list[float]]) -> "Figure":
    figure, (axes,) = panels("Positions 0 to 8, columns 0 to 63, of 512", width=10.0, height=2.8)
    matrix(axes, rows, x_label="column i", y_label="position j", limits=(-1, 1), square=False)
    return figure


CLAIMED = 2 * math.pi * 10_000
BASES = {"S2, as printed": 1000.0, "S0 and the paper": 10_000.0, "exact": 10_000.0 ** (512 / 510)}


def _wavelengths(size: Size, base: float) -> Outcome:
    """Whether wavelengths run from 2π to 10000·2π."""
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
            else f"S2 prints a base of 1000, with which they end at {longest:,.0f}. With the paper's 10000 "
            f"they end at 2π·10000^((d-2)/d), 60,611 positions at d = 512: not at 10000·2π = 62,832, which "
            f"is the limit for a large d."
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
        _draw_wavelengths,
    )


def _draw_wavelengths() -> "Figure":
    figure, (axes,) = panels("Wavelengths of the pairs of columns, d = 512")
    lines = {
        f"{name}: base {base:,.0f}": SinusoidalPositions(D_MODEL, base=base).wavelengths().tolist()
        for name, base in BASES.items()
    }
    pairs = range(D_MODEL // 2)
    curves(axes, pairs, lines, x_label="pair i", y_label="positions", logarithmic="y", marks=False)
    return figure


def _distances(part: Positions, n: int) -> Tensor:
    """Euclidean, ``[n, n]``; by differences, so that equal rows are 0 apart."""
    rows = _rows(part, n)
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


def _uneven(distances: Tensor) -> float:
    """How much distances at one offset differ, at most, over all offsets to both sides."""
    n = len(distances)
    spreads = []
    for k in range(n):
        both = torch.cat((distances.diagonal(k), distances.diagonal(-k)))
        spreads.append((both.max() - both.min()).item())
    return max(spreads)


def _first_fall(by_offset: Sequence[float]) -> int | None:
    """The first offset at which the distance is less than at the one before."""
    return next((k for k in range(1, len(by_offset)) if by_offset[k] < by_offset[k - 1] - 1e-12), None)


def _growing(size: Size, part: Callable[[int], Positions]) -> Outcome:
    """Whether distance grows to the left and the right of a position, alike."""
    n = {"short": 100, "long": 400}[size]
    distances = _distances(part(n), n)
    by_offset = distances[0].tolist()
    falls, uneven = _first_fall(by_offset), _uneven(distances)
    grows = by_offset[2] > by_offset[1] + 1e-9
    even = uneven < 1e-9
    verdict: Verdict = "holds" if falls is None else "holds with conditions"
    return Outcome(
        verdict if grows and even else "is wrong",
        (
            "It is symmetric, and the same about every position: PE_p · PE_(p+k) = Σ cos(k ω_i), whatever p. "
            f"It grows up to an offset of {(falls or n) - 1}; from there on it falls a little now and then, "
            "though it still rises on the whole."
            if grows
            else "Any two one-hot vectors are √2 apart, neighbours or not."
        ),
        [
            Measured(
                "first offset with a smaller distance", float(falls or n), expected=44.0 if grows else None
            ),
            Measured("distances at one offset differ by, at most", uneven, expected=0.0),
            Measured("distance of neighbours", by_offset[1]),
            Measured(f"distance at an offset of {n - 1}", by_offset[-1]),
        ],
        draw=partial(_draw_distances, distances.tolist()),
    )


def _draw_distances(distances: list[list[float]]) -> "Figure":
    figure, (left, right) = panels("Distance of two positions", "Distance by offset", width=4.6, height=3.8)
    matrix(left, distances, x_label="position", y_label="position")
    offsets = range(len(distances))
    curves(right, offsets, {"": distances[0]}, x_label="offset", y_label="distance", marks=False)
    right.set_ylim(bottom=0)
    return figure


def _always_root_two(size: Size, part: Callable[[int], Positions]) -> Outcome:
    """Whether any two positions are √2 apart."""
    n = {"short": 50, "long": 200}[size]
    distances = _distances(part(n), n)
    apart = distances[~torch.eye(n, dtype=torch.bool)]
    least, most = apart.min().item(), apart.max().item()
    holds = most - least < 1e-9 and abs(most - math.sqrt(2)) < 1e-9
    return Outcome(
        "holds" if holds else "is wrong",
        (
            "One-hot vectors name a position and say nothing of how near another is; and there is one column "
            "for every position, so that a longer sentence has none."
            if holds
            else "Sinusoids of neighbours are nearer than those of positions farther off."
        ),
        [
            Measured("least distance of two positions", least, expected=math.sqrt(2) if holds else None),
            Measured("greatest distance of two positions", most, expected=math.sqrt(2) if holds else None),
        ],
        draw=partial(_draw_distances, distances.tolist()),
    )


SHIFTED_WIDTH = 16
SHIFTS = (1, 2, 5, 10, 50, 100)


def _as_printed(n: int) -> Tensor:
    """S0's formula: the cosine's exponent is (2i+1)/d, so that no column has its partner."""
    place = torch.arange(n, dtype=torch.float64)[:, None]
    even = torch.arange(0, SHIFTED_WIDTH, 2, dtype=torch.float64) / SHIFTED_WIDTH
    odd = torch.arange(1, SHIFTED_WIDTH, 2, dtype=torch.float64) / SHIFTED_WIDTH
    return torch.stack(((place / 10_000**even).sin(), (place / 10_000**odd).cos()), -1).flatten(1)


def _rotation(k: int) -> Tensor:
    """R_k: each pair of columns turned by k ω_i."""
    angles = k * SinusoidalPositions(SHIFTED_WIDTH).frequencies()
    blocks = [
        torch.stack((torch.stack((c, s)), torch.stack((-s, c)))) for c, s in zip(angles.cos(), angles.sin())
    ]
    return torch.block_diag(*blocks)


def _shift(size: Size, printed: bool) -> Outcome:
    """Whether one matrix takes every PE_p to PE_{p+k}: fitted on some positions, judged on others."""
    n = {"short": 1000, "long": 10_000}[size]
    rows = _as_printed(2 * n + max(SHIFTS))
    if not printed:
        rows = _rows(SinusoidalPositions(SHIFTED_WIDTH), len(rows))
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
            "PE_(p+k) = R_k PE_p for every p, where R_k turns the pair of columns 2i, 2i+1 by the angle k "
            "ω_i: it is a rotation, and depends on k alone."
            if holds
            else "With S0's exponent (2i+1)/d, the cosine beside a sine has another frequency. The sine of a "
            "sum needs the cosine of its own angle, so no matrix shifts positions. Both exponents are 2i/d."
        ),
        [
            Measured("error of the best matrix on other positions, relative, worst shift", max(errors)),
            Measured("error of R_k, worst", max(exact), expected=0.0 if holds else None),
        ],
        [
            {"shift k": k, "best matrix": error, "R_k": by_rotation}
            for k, error, by_rotation in zip(SHIFTS, errors, exact, strict=True)
        ],
        partial(_draw_shift, _rotation(SHIFTS[2]).tolist(), rows[:60].tolist()),
    )


def _draw_shift(rotation: list[list[float]], rows: list[list[float]]) -> "Figure":
    figure, (left, right) = panels(f"R_k for k = {SHIFTS[2]}", "Positions", width=4.6, height=3.8)
    matrix(left, rotation, x_label="column", y_label="column", limits=(-1, 1))
    matrix(right, rows, x_label="column", y_label="position", limits=(-1, 1), square=False)
    return figure


def _pre_norm_stack(d: int) -> EncoderStack:
    blocks = [
        EncoderBlock(PreNorm(SelfAttention(d, 4), LayerNorm(d)), PreNorm(FeedForward(d, 2 * d), LayerNorm(d)))
        for _ in range(2)
    ]
    return EncoderStack(blocks, LayerNorm(d)).double()


@seeded()
@torch.no_grad()
def _constant(size: Size, part: Callable[[int], Positions]) -> Outcome:
    """Whether a stack with layer norms notices that its tokens were shuffled."""
    n, d = {"short": 12, "long": 64}[size], 32
    stack, added, layout = _pre_norm_stack(d), Added(part(d).double()), Layout.of([n])
    x, order = torch.randn(n, d, dtype=torch.float64), torch.randperm(n)
    read = lambda tokens: stack(added(tokens, layout.positions), layout)  # noqa: E731
    before = read(x)
    change = ((read(x[order]) - before[order]).norm() / before.norm()).item()
    told = change > 1e-6
    lengths = [part(D_MODEL)(torch.tensor([p])).double().norm().item() for p in LENGTHS_AT]
    return Outcome(
        "holds" if told else "is wrong",
        (
            "Sinusoids reach the model through a layer norm, and none is longer than another."
            if told
            else "A vector whose elements are all p is what a layer norm takes away: a model that reads its "
            "tokens through one is as blind to order as without positions. Besides, it grows without bound: "
            "at d = 512 the vector of position 500 is 500·√512 = 11,314 long."
        ),
        [
            Measured("change of a token's output when shuffled", change, expected=None if told else 0.0),
            Measured(f"length of the vector of position {LENGTHS_AT[-1]}, d = {D_MODEL}", lengths[-1]),
        ],
        [
            {"position": p, "length of its vector": length}
            for p, length in zip(LENGTHS_AT, lengths, strict=True)
        ],
        partial(_draw_lengths, lengths),
    )


LENGTHS_AT = (1, 5, 10, 50, 100, 500)


def _draw_lengths(lengths: list[float]) -> "Figure":
    figure, (axes,) = panels(f"Length of a position's vector, d = {D_MODEL}")
    lines = {"its vector": lengths, "an embedding of N(0, 1)": [math.sqrt(D_MODEL)] * len(lengths)}
    curves(axes, LENGTHS_AT, lines, x_label="position", y_label="length", logarithmic="xy")
    return figure


VOCABULARY, WIDTH, TRAINED = 8, 32, 16
UPDATES, TESTED = {"short": 200, "long": 1000}, 200


class _Reader(nn.Module):
    """Tokens and positions, one causal attention, an output layer: enough to name the token before."""

    def __init__(self, positions: Positions, rotary: Rotary | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = Added(positions)
        self.attention = SelfAttention(WIDTH, 1, causal=True, qkv_bias=True, rotary=rotary)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """``[B, n]`` to logits ``[B, n, V]``."""
        layout = Layout.of([ids.shape[1]] * ids.shape[0])
        x = self.positions(self.embedding(ids.flatten()), layout.positions)
        return self.out(self.attention(x, layout)).view(*ids.shape, -1)


def _accuracies(model: _Reader, updates: int) -> list[float]:
    """How often a model, trained to name the token before, does so on longer sequences, by position."""
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(updates):
        ids = torch.randint(VOCABULARY, (32, TRAINED))
        loss = functional.cross_entropy(model(ids)[:, 1:].flatten(0, 1), ids[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        ids = torch.randint(VOCABULARY, (TESTED, 2 * TRAINED))
        right = model(ids)[:, 1:].argmax(-1) == ids[:, :-1]
    return right.double().mean(0).tolist()


def _kinds() -> dict[str, _Reader]:
    """Readers by how they know positions; the table has rows for twice the length that is trained."""
    return {
        "learned table": _Reader(LearnedPositions(2 * TRAINED, WIDTH), None),
        "rotary": _Reader(NoPositions(WIDTH), Rotary(WIDTH)),
        "sinusoids": _Reader(SinusoidalPositions(WIDTH), None),
    }


@seeded()
def _beyond(size: Size, judged: str) -> Outcome:
    """How well a model does at positions that were never trained."""
    wanted = _kinds()
    if size == "short":
        wanted = {judged: wanted[judged]}
    found = {name: _accuracies(model, UPDATES[size]) for name, model in wanted.items()}
    means = {name: (_mean(each[: TRAINED - 1]), _mean(each[TRAINED - 1 :])) for name, each in found.items()}
    within, beyond = means[judged]
    fails = within > 0.9 and beyond < 0.5
    return Outcome(
        "holds" if fails else "is wrong",
        (
            "A row that was never trained is as random as it began, and a position without a row is refused. "
            "Where sequences may grow, positions have to act by distance."
            if fails
            else "Positions that act by distance alone (here rotations of queries and keys) carry what was "
            "learned to places that training never saw."
        ),
        [
            Measured(f"right at trained positions (to {TRAINED - 1})", 100 * within, "%"),
            Measured(f"right at positions {TRAINED} to {2 * TRAINED - 1}", 100 * beyond, "%"),
            Measured("right by chance", 100 / VOCABULARY, "%"),
            Measured(
                "position that a table of 32 rows refuses",
                float(_refused(LearnedPositions(32, 2))),
                expected=32.0,
            ),
        ],
        [{"positions": name, "trained": a, "beyond": b} for name, (a, b) in means.items()],
        partial(_draw_beyond, found),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _refused(part: Positions) -> int:
    """The first position that has no vector."""
    p = 0
    while True:
        try:
            part(torch.tensor([p]))
        except RequestError:
            return p
        p += 1


def _draw_beyond(found: dict[str, list[float]]) -> "Figure":
    figure, (axes,) = panels("Right, by position", width=5.2)
    curves(axes, range(1, 2 * TRAINED), found, x_label="position", y_label="share of right answers")
    axes.axvline(TRAINED - 0.5, color="0.4", linestyle="--", linewidth=1)
    axes.text(TRAINED - 0.2, 0.02, "never trained", fontsize=9, color="0.3")
    axes.set_ylim(0, 1.05)
    return figure


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
        "symmetric. (Asked: does the PE function satisfy this property?)",
        source="S0, positional encoding, distance matrix",
        items=(48,),
        run=partial(_growing, part=lambda n: SinusoidalPositions(D_MODEL)),
        control=partial(_growing, part=OneHotPositions),
        changed="Positions are one-hot vectors.",
        expected=("holds with conditions", "is wrong"),
    ),
    Experiment(
        name="one-hot-distances",
        title="One-hot positions are all equally far apart",
        claim="With one-hot encoding, the Euclidean distance between any two vectors is always √2.",
        source="S0, positional encoding",
        items=(48, 50),
        run=partial(_always_root_two, part=OneHotPositions),
        control=partial(_always_root_two, part=lambda n: SinusoidalPositions(D_MODEL)),
        changed="Positions are sinusoids.",
    ),
    Experiment(
        name="position-shift",
        title="To shift a position is to rotate it",
        claim="For any fixed offset k, PE_(pos+k) can be represented as a linear function of PE_pos.",
        source="S2, positional encoding; Vaswani et al. 2017, section 3.5",
        items=(47, 49),
        run=partial(_shift, printed=False),
        control=partial(_shift, printed=True),
        changed="The cosine's exponent is (2i+1)/d, as S0 prints it.",
    ),
    Experiment(
        name="constant-positions",
        title="A constant vector tells nothing behind a layer norm",
        claim="The positional vector could be a constant one, all elements of which are the position j. (A "
        "question.)",
        source="S0, positional encoding",
        items=(50,),
        run=partial(_constant, part=ConstantPositions),
        control=partial(_constant, part=SinusoidalPositions),
        changed="Positions are sinusoids.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        name="learned-positions",
        title="Learned positions do not extrapolate",
        claim="Learned position embeddings definitely cannot extrapolate to indices outside 1, …, n.",
        source="S3, positional embeddings; S0: not suitable if the sentence length is dynamic",
        items=(50,),
        run=partial(_beyond, judged="learned table"),
        control=partial(_beyond, judged="rotary"),
        changed="Queries and keys are rotated by their positions; there is no table.",
    ),
]
