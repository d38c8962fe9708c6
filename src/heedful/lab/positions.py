"""Alternatives to sinusoidal positions: one-hot vectors, constant vectors, learned tables.

Items 48 (distances) and 50 (alternatives) of the lectures.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.errors import RequestError
from heedful.lab.drawing import Curves, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import cache, seeded
from heedful.lab.sinusoids import D_MODEL, distance_panels, distances_of
from heedful.lab.tiny import n_parameters
from heedful.nn.attention.relative import Rotary
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import (
    Added,
    Concatenated,
    ConstantPositions,
    LearnedPositions,
    NoPositions,
    OneHotPositions,
    Positions,
    SinusoidalPositions,
)
from heedful.nn.residual import PreNorm

# One-hot vectors


def _always_root_two(size: Size, part: Callable[[int], Positions]) -> Outcome:
    """Test whether the distance of any two positions is √2."""
    n = {"short": 50, "long": 200}[size]
    distances = distances_of(part(n), n)
    apart = distances[~torch.eye(n, dtype=torch.bool)]
    least, most = apart.min().item(), apart.max().item()
    holds = most - least < 1e-9 and abs(most - math.sqrt(2)) < 1e-9
    return Outcome(
        "holds" if holds else "is wrong",
        (
            "One-hot vectors identify a position, but give no information on the distance of another; and "
            "they need a column for every position, so a longer sentence cannot be represented."
            if holds
            else "Sinusoids of neighbouring positions are nearer than those of distant positions."
        ),
        [
            Measured("least distance of two positions", least, expected=math.sqrt(2) if holds else None),
            Measured("greatest distance of two positions", most, expected=math.sqrt(2) if holds else None),
        ],
        panels=distance_panels(distances),
    )


# Constant vectors

LENGTHS_AT = (1, 5, 10, 50, 100, 500)


def _pre_norm_stack(d: int) -> EncoderStack:
    blocks = [
        EncoderBlock(PreNorm(SelfAttention(d, 4), LayerNorm(d)), PreNorm(FeedForward(d, 2 * d), LayerNorm(d)))
        for _ in range(2)
    ]
    return EncoderStack(blocks, LayerNorm(d)).double()


@seeded()
@torch.no_grad()
def _constant(size: Size, part: Callable[[int], Positions]) -> Outcome:
    """Test whether a stack with layer norms is sensitive to shuffled tokens."""
    n, d = {"short": 12, "long": 64}[size], 32
    stack, added, layout = _pre_norm_stack(d), Added(part(d).double()), Layout.of([n])
    x, order = torch.randn(n, d, dtype=torch.float64), torch.randperm(n)
    read = lambda tokens: stack(added(tokens, layout.positions), layout)  # noqa: E731
    before = read(x)
    change = ((read(x[order]) - before[order]).norm() / before.norm()).item()
    sensitive = change > 1e-6
    lengths = [part(D_MODEL)(torch.tensor([p])).double().norm().item() for p in LENGTHS_AT]
    return Outcome(
        "holds" if sensitive else "is wrong",
        (
            "Sinusoids pass through a layer norm, and all of them have the same length."
            if sensitive
            else "A layer norm removes a vector whose elements are all p: a model that reads its tokens "
            "through one is as blind to order as without positions. Besides, the vector grows without "
            "bound: at d = 512, position 500 has the length 500·√512 = 11,314."
        ),
        [
            Measured("change of a token's output when shuffled", change, expected=None if sensitive else 0.0),
            Measured(f"length of the vector of position {LENGTHS_AT[-1]}, d = {D_MODEL}", lengths[-1]),
        ],
        [
            {"position": p, "length of its vector": length}
            for p, length in zip(LENGTHS_AT, lengths, strict=True)
        ],
        [
            Curves(
                f"Length of a position's vector, d = {D_MODEL}",
                "position",
                "length",
                over(LENGTHS_AT, {"its vector": lengths}),
                levels={"an embedding of N(0, 1)": math.sqrt(D_MODEL)},
                log="xy",
            )
        ],
    )


# Learned tables

VOCABULARY, WIDTH, TRAINED = 8, 32, 16
UPDATES, TESTED = {"short": 200, "long": 1000}, 200


class _Reader(nn.Module):
    """Tokens and positions, one causal attention, an output layer: enough to predict the previous token."""

    def __init__(self, positions: Added | Concatenated, rotary: Rotary | None = None) -> None:
        super().__init__()
        beside = positions.positions.d if isinstance(positions, Concatenated) else 0
        self.embedding = nn.Embedding(VOCABULARY, WIDTH - beside)
        self.positions = positions
        self.attention = SelfAttention(WIDTH, 1, causal=True, qkv_bias=True, rotary=rotary)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids ``[B, n]`` to logits ``[B, n, V]``."""
        layout = Layout.of([ids.shape[1]] * ids.shape[0])
        x = self.positions(self.embedding(ids.flatten()), layout.positions)
        return self.out(self.attention(x, layout)).view(*ids.shape, -1)


def _accuracies(model: _Reader, updates: int) -> list[float]:
    """Train a model to output the previous token; return its accuracy by position from 1, on longer ones."""
    optimizer = torch.optim.Adam(model.parameters(), 0.01, fused=True)
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


def _readers() -> dict[str, _Reader]:
    """Build readers by type of positions; the table has rows for twice the training length."""
    return {
        "learned table": _Reader(Added(LearnedPositions(2 * TRAINED, WIDTH))),
        "rotary": _Reader(Added(NoPositions(WIDTH)), Rotary(WIDTH)),
        "sinusoids": _Reader(Added(SinusoidalPositions(WIDTH))),
    }


@seeded()
def _beyond(size: Size, judged: str) -> Outcome:
    """Measure the accuracy of a model at positions that were never trained."""
    wanted = _readers()
    if size == "short":
        wanted = {judged: wanted[judged]}
    found = {name: _accuracies(model, UPDATES[size]) for name, model in wanted.items()}
    means = {name: (fmean(each[: TRAINED - 1]), fmean(each[TRAINED - 1 :])) for name, each in found.items()}
    within, beyond = means[judged]
    fails = within > 0.9 and beyond < 0.5
    return Outcome(
        "holds" if fails else "is wrong",
        (
            "A row that was never trained keeps its random initial values, and a position without a row is "
            "refused. If sequences may grow, positions must be encoded by distance."
            if fails
            else "Positions that enter by distance only (here rotations of queries and keys) generalise to "
            "positions that never occurred in training."
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
        [
            Curves(
                "Accuracy by position",
                "position",
                "accuracy",
                over(range(1, 2 * TRAINED), found),
                places={"from here on never trained": TRAINED - 0.5},
                limits=(0, 1.05),
            )
        ],
    )


def _refused(part: Positions) -> int:
    """Return the first position that has no vector."""
    p = 0
    while True:
        try:
            part(torch.tensor([p]))
        except RequestError:
            return p
        p += 1


# Concatenation

BESIDE = 8  # columns of positions, of `WIDTH`
ADDED = "added"
JOINED: dict[str, Callable[[], Added | Concatenated]] = {
    ADDED: lambda: Added(SinusoidalPositions(WIDTH)),
    "concatenated": lambda: Concatenated(SinusoidalPositions(BESIDE)),
    "concatenated zeros": lambda: Concatenated(NoPositions(BESIDE)),
}
AS_GOOD = 0.05
"""Difference in accuracy up to which results count as equal."""


@cache
def _joined(name: str, updates: int) -> tuple[int, Sequence[float]]:
    """Return the parameters of a reader with positions joined in this way, and its accuracy by position."""
    with seeded():
        model = _Reader(JOINED[name]())
        right = _accuracies(model, updates)[: TRAINED - 1]
    return n_parameters(model), right


def sum_of_products() -> float:
    """Return the relative difference of W [x; p] and W_x x + W_p p, with W = [W_x W_p]."""
    d = {"x": WIDTH - BESIDE, "p": BESIDE}
    with seeded():
        whole = nn.Linear(WIDTH, WIDTH, bias=False).double()
        x, layout = torch.randn(TRAINED, d["x"], dtype=torch.float64), Layout.of([TRAINED])
    together = Concatenated(SinusoidalPositions(BESIDE))(x, layout.positions)
    of_x, of_p = whole.weight.split([*d.values()], dim=1)
    apart = x @ of_x.mT + together[:, d["x"] :] @ of_p.mT
    return ((whole(together) - apart).norm() / apart.norm()).item()


def _beside(size: Size, judged: str) -> Outcome:
    """Test whether concatenated positions do as well as added ones."""
    found = {name: _joined(name, UPDATES[size]) for name in (ADDED, judged)}
    means = {name: fmean(right) for name, (_, right) in found.items()}
    as_good = means[judged] > means[ADDED] - AS_GOOD
    return Outcome(
        "holds" if as_good else "is wrong",
        "They can. The first matrix after the concatenation separates the parts, W [x; p] = W_x x + W_p p: "
        "position and word have separate matrices in the sum, while after adding they share one. At equal "
        "width, columns for positions are lost to words; in return, the two cannot be confused. "
        "Concatenated vectors must identify positions, like added ones.",
        [
            *(Measured(f"right, {name}", 100 * mean, "%") for name, mean in reversed(means.items())),
            Measured("right by chance", 100 / VOCABULARY, "%"),
            Measured("W [x; p] less W_x x + W_p p, as a share", sum_of_products()),
            *(Measured(f"parameters, {name}", n) for name, (n, _) in found.items()),
        ],
        [
            {
                "positions are": name,
                "columns for words": WIDTH - (0 if name == ADDED else BESIDE),
                "right": mean,
            }
            for name, mean in means.items()
        ],
        [
            Curves(
                "Accuracy by position",
                "position",
                "accuracy",
                over(range(1, TRAINED), {name: right for name, (_, right) in found.items()}),
                levels={"chance": 1 / VOCABULARY},
                limits=(0, 1.05),
            )
        ],
    )


EXPERIMENTS = [
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
        name="constant-positions",
        title="A constant vector has no effect before a layer norm",
        claim="The positional vector could be a constant one, all elements of which are the position j.",
        source="S0, positional encoding",
        items=(50,),
        run=partial(_constant, part=ConstantPositions),
        control=partial(_constant, part=SinusoidalPositions),
        changed="Positions are sinusoids.",
        expected=("is wrong", "holds"),
        asked=True,
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
    Experiment(
        name="concatenated-positions",
        title="Positions concatenated with embeddings, or added to them",
        claim="Position vectors could be concatenated to the inputs as well; mostly they are just added.",
        source="S3, position representation vectors",
        items=(50,),
        run=partial(_beside, judged="concatenated"),
        control=partial(_beside, judged="concatenated zeros"),
        changed="What is concatenated is zero at every position.",
    ),
]
