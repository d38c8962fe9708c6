"""Learning from a single example in the context: a model predicts a repeated sequence after seeing it once.

Item 67 of the lectures, as far as a small model can show it. Symbols come in an order that is drawn for each
sequence, so that the weights cannot store it; then a part of it is repeated. The successor of a symbol can be
inferred only from its earlier occurrence. A head searches for that symbol, among symbols to which another
head has attached their predecessors (an induction head, Elhage et al. 2021; Olsson et al. 2022). That takes
two layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, Matrix, curves_over
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import cache, generator_from
from heedful.lab.tiny import Training, attention_weights, symbol_model, train
from heedful.models.language_model import LanguageModel
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import MuonConfig
from heedful.training.schedules import Cosine

# Sequences

SYMBOLS = "abcdefghijklmnop"
FIRST, AGAIN = 12, 8
"""Number of distinct symbols, and how many of them are repeated, from one of several positions on."""
LENGTH = FIRST + AGAIN
PREDICTED = AGAIN - 1  # all repeated symbols but the first, which cannot be predicted


def draw_sequences(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw ``n`` sequences."""
    first = torch.rand(n, len(SYMBOLS), generator=generator).argsort(1)[:, :FIRST]
    starts = torch.randint(FIRST - AGAIN + 1, (n, 1), generator=generator)
    return torch.cat([first, first.gather(1, starts + torch.arange(AGAIN))], 1)


def batch_of(rows: Int[Tensor, "n length"]) -> Batch:
    """Build a batch with all symbols but the last as inputs, and the predictable symbols as targets."""
    windows = Batch.windows(rows.numpy())
    starts = torch.arange(len(rows))[:, None] * (LENGTH - 1)
    positions = (starts + torch.arange(FIRST, LENGTH - 1)).flatten()
    return Batch(windows.inputs, windows.targets[positions], None, (), positions)


# Models

N_HEADS = 2
BATCH, RATE = 32, 0.01
UPDATES, SEEDS = {"short": 600, "long": 600}, {"short": 1, "long": 4}
TESTED = 400


def model_of(n_layers: int, seed: int) -> LanguageModel:
    """Build a causal Transformer with learned positions."""
    return symbol_model(len(SYMBOLS), LENGTH, n_layers=n_layers, n_heads=N_HEADS, seed=seed)


@torch.no_grad()
def accuracy_by_position(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Float[Tensor, " predicted"]:
    """Return the accuracy on the second, third, … repeated symbol."""
    batch = batch_of(rows)
    predictions = model.heads["token"](batch.picked(model(batch.inputs))).argmax(-1)
    return (predictions == batch.targets).view(-1, PREDICTED).float().mean(0)


@dataclass(frozen=True)
class Learned:
    """A trained model.

    Args:
        model: the model.
        training: losses by update.
        accuracy: accuracy on new sequences, by position.
    """

    model: LanguageModel
    training: Training
    accuracy: Float[Tensor, " predicted"]


@cache
def train_model(n_layers: int, updates: int, seed: int) -> Learned:
    """Train a model and evaluate it."""
    model, generator = model_of(n_layers, seed), generator_from(9 + seed)
    batches = (batch_of(draw_sequences(BATCH, generator)) for _ in range(updates))
    training = train(model, NextToken(), batches, MuonConfig(), Cosine(RATE, updates, warmup=20))
    return Learned(model, training, accuracy_by_position(model, draw_test_sequences()))


def draw_test_sequences() -> Int[Tensor, "n length"]:
    """Draw the test sequences."""
    return draw_sequences(TESTED, generator_from(77))


def induction_scores(weights: Float[Tensor, "n H T T"], rows: Int[Tensor, "n length"]) -> Float[Tensor, " H"]:
    """Return the mean weight of each head for the successor of the earlier occurrence of the query's symbol.

    The mean is over the queries whose successor can be predicted.
    """
    queries = torch.arange(FIRST, LENGTH - 1)
    is_match = rows[:, queries, None] == rows[:, None, :FIRST]
    keys = is_match.int().argmax(-1) + 1
    picked = weights[:, :, queries].gather(-1, keys[:, None, :, None].expand(-1, weights.shape[1], -1, -1))
    return picked.mean((0, 2, 3))


# The experiment

LAYERS = {2: "2 layers", 1: "1 layer"}


@measures("copying-in-context", judged=(2, 1))
def measure_accuracy_on_repeated_symbols(size: Size, judged: int) -> Series:
    """Measure the accuracy of models with two layers and with one."""
    seeds, rows = range(SEEDS[size]), draw_test_sequences()
    models = {name: [train_model(n, UPDATES[size], seed) for seed in seeds] for n, name in LAYERS.items()}
    accuracies = {name: [run.accuracy.mean().item() for run in runs] for name, runs in models.items()}
    heads = {name: attention_weights(runs[0].model, batch_of(rows).inputs) for name, runs in models.items()}
    best = {name: induction_scores(runs[-1], rows).max().item() for name, runs in heads.items()}
    names = sorted(accuracies, key=lambda name: name != LAYERS[judged])
    accuracy = {name: 100 * fmean(accuracies[name]) for name in names}
    return Series(
        {
            **measured_each("right when symbols come again, {}", accuracy, "%"),
            "chance": Measured("right by chance", 100 / len(SYMBOLS), "%"),
            **measured_each("weight on what followed before, best head, {}", best),
            "right": fmean(accuracies[LAYERS[judged]]),
            "n_layers": judged,
        },
        table_of({"first weights": [seed + 1 for seed in seeds], **accuracies}),
        [_accuracy_panel(models), _head_panel(heads[LAYERS[judged]][-1], rows, judged)],
    )


def _accuracy_panel(models: Mapping[str, Sequence[Learned]]) -> Curves:
    means = {name: torch.stack([run.accuracy for run in runs]).mean(0) for name, runs in models.items()}
    return Curves(
        "Accuracy on repeated symbols",
        "index of the repeated symbol",
        "accuracy on new sequences",
        curves_over(range(2, AGAIN + 1), {name: mean.tolist() for name, mean in means.items()}),
        levels={"chance": 1 / len(SYMBOLS)},
        limits=(0.0, 1.04),
    )


def _head_panel(last: Float[Tensor, "n H T T"], rows: Int[Tensor, "n length"], n_layers: int) -> Matrix:
    """Draw the head of the last layer with the largest induction score, for one sequence."""
    head = int(induction_scores(last, rows).argmax())
    symbols = [SYMBOLS[symbol] for symbol in rows[0, :-1].tolist()]
    return Matrix(
        f"One sequence: layer {n_layers}, head {head + 1}",
        "key",
        "query, whose successor is predicted",
        last[0, head].tolist(),
        (0.0, 1.0),
        symbols,
        symbols,
        inches=(5.2, 4.4),
    )
