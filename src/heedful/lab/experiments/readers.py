"""Readers of positions: a small model trained to find the previous token by different positions.

Item 50 of the lectures.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count, starmap
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.errors import RequestError
from heedful.lab.drawing import Curves, numbered_curves
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import cache, seeded
from heedful.lab.tiny import minimise, n_parameters, relative_difference
from heedful.nn.attention.relative import Rotary
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.positions import (
    Added,
    Concatenated,
    LearnedPositions,
    NoPositions,
    Positions,
    SinusoidalPositions,
)

# Learned tables

VOCABULARY, WIDTH, TRAINED = 8, 32, 16
UPDATES, TESTED = {"short": 200, "long": 1000}, 200


class _Reader(nn.Module):
    """Tokens and positions, one causal attention, an output layer: enough to predict the previous token."""

    def __init__(self, positions: Added | Concatenated, rotary: Rotary | None = None) -> None:
        super().__init__()
        d_positions = positions.positions.d if isinstance(positions, Concatenated) else 0
        self.embedding = nn.Embedding(VOCABULARY, WIDTH - d_positions)
        self.positions = positions
        self.attention = SelfAttention(WIDTH, 1, causal=True, qkv_bias=True, rotary=rotary)
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids ``[B, n]`` to logits ``[B, n, V]``."""
        layout = Layout.of([ids.shape[1]] * ids.shape[0])
        x = self.positions(self.embedding(ids.flatten()), layout.positions)
        return self.out(self.attention(x, layout)).view(*ids.shape, -1)


def _train_and_test(model: _Reader, updates: int) -> list[float]:
    """Train a model to output the previous token; return its accuracy by position from 1, on longer ones."""
    batches = (torch.randint(VOCABULARY, (32, TRAINED)) for _ in range(updates))
    pairs = ((model(ids)[:, 1:].flatten(0, 1), ids[:, :-1].flatten()) for ids in batches)
    for _ in minimise(model, starmap(functional.cross_entropy, pairs), 0.01):
        pass
    with torch.no_grad():
        ids = torch.randint(VOCABULARY, (TESTED, 2 * TRAINED))
        is_correct = model(ids)[:, 1:].argmax(-1) == ids[:, :-1]
    return is_correct.double().mean(0).tolist()


def _readers() -> dict[str, _Reader]:
    """Build readers by type of positions; the table has rows for twice the training length."""
    return {
        "learned table": _Reader(Added(LearnedPositions(2 * TRAINED, WIDTH))),
        "rotary": _Reader(Added(NoPositions(WIDTH)), Rotary(WIDTH)),
        "sinusoids": _Reader(Added(SinusoidalPositions(WIDTH))),
    }


@measures("learned-positions", judged=("learned table", "rotary"))
@seeded()
def measure_accuracy_beyond_training(size: Size, judged: str) -> Series:
    """Measure the accuracy of a model at positions that were never trained."""
    models = _readers()
    if size == "short":
        models = {judged: models[judged]}
    accuracies = {name: _train_and_test(model, UPDATES[size]) for name, model in models.items()}
    means = {
        name: (fmean(accuracy[: TRAINED - 1]), fmean(accuracy[TRAINED - 1 :]))
        for name, accuracy in accuracies.items()
    }
    trained, beyond = means[judged]
    refused = float(_first_refused(LearnedPositions(32, 2)))
    return Series(
        {
            "within": Measured(f"right at trained positions (to {TRAINED - 1})", 100 * trained, "%"),
            "beyond": Measured(f"right at positions {TRAINED} to {2 * TRAINED - 1}", 100 * beyond, "%"),
            "chance": Measured("right by chance", 100 / VOCABULARY, "%"),
            "refused": Measured("position that a table of 32 rows refuses", refused, expected=32.0),
        },
        [{"positions": name, "trained": a, "beyond": b} for name, (a, b) in means.items()],
        [_accuracy_panel(accuracies, places={"from here on never trained": TRAINED - 0.5})],
    )


def _accuracy_panel(
    accuracies: Mapping[str, Sequence[float]],
    *,
    levels: Mapping[str, float] = {},
    places: Mapping[str, float] = {},
) -> Curves:
    """Draw accuracies by position, from 1."""
    title, x, y = "Accuracy by position", "position", "accuracy"
    return Curves(title, x, y, numbered_curves(accuracies), levels, places, limits=(0, 1.05))


def _first_refused(part: Positions) -> int:
    """Return the first position that has no vector."""
    for p in count():
        try:
            part(torch.tensor([p]))
        except RequestError:
            break
    return p


# Concatenation

D_POSITIONS = 8  # columns of positions, of `WIDTH`
ADDED = "added"
COMBINATIONS: dict[str, Callable[[], Added | Concatenated]] = {
    ADDED: lambda: Added(SinusoidalPositions(WIDTH)),
    "concatenated": lambda: Concatenated(SinusoidalPositions(D_POSITIONS)),
    "concatenated zeros": lambda: Concatenated(NoPositions(D_POSITIONS)),
}


@cache
def _train_reader(name: str, updates: int) -> tuple[int, Sequence[float]]:
    """Return the number of parameters of a reader with such positions, and its accuracy by position."""
    with seeded():
        model = _Reader(COMBINATIONS[name]())
        accuracies = _train_and_test(model, updates)[: TRAINED - 1]
    return n_parameters(model), accuracies


def sum_of_products() -> float:
    """Return the relative difference of W [x; p] and W_x x + W_p p, with W = [W_x W_p]."""
    d = WIDTH - D_POSITIONS
    with seeded():
        linear = nn.Linear(WIDTH, WIDTH, bias=False).double()
        x, layout = torch.randn(TRAINED, d, dtype=torch.float64), Layout.of([TRAINED])
    concatenated = Concatenated(SinusoidalPositions(D_POSITIONS))(x, layout.positions)
    of_x, of_p = linear.weight.split([d, D_POSITIONS], dim=1)
    sum_of_both = x @ of_x.mT + concatenated[:, d:] @ of_p.mT
    return relative_difference(linear(concatenated), sum_of_both)


@measures("concatenated-positions", judged=("concatenated", "concatenated zeros"))
def compare_added_and_concatenated_positions(size: Size, judged: str) -> Series:
    """Measure whether concatenated positions do as well as added ones."""
    runs = {name: _train_reader(name, UPDATES[size]) for name in (ADDED, judged)}
    parameters = {name: n for name, (n, _) in runs.items()}
    accuracies = {name: by_position for name, (_, by_position) in runs.items()}
    means = {name: fmean(by_position) for name, by_position in accuracies.items()}
    percentages = {name: 100 * mean for name, mean in reversed(means.items())}
    return Series(
        {
            **measured_each("right, {}", percentages, "%"),
            "chance": Measured("right by chance", 100 / VOCABULARY, "%"),
            "difference": Measured("W [x; p] less W_x x + W_p p, as a share", sum_of_products()),
            **measured_each("parameters, {}", parameters),
            "added": means[ADDED],
            "beside": means[judged],
        },
        table_of(
            {
                "positions are": means,
                "columns for words": [WIDTH, WIDTH - D_POSITIONS],
                "right": means.values(),
            }
        ),
        [_accuracy_panel(accuracies, levels={"chance": 1 / VOCABULARY})],
    )
