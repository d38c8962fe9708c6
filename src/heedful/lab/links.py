"""Recurrent connections, as attention heads that learn to attend to the previous token.

Item 75 of the lectures. A causal Transformer learns to predict symbols, each of which depends on the symbol a
fixed number of positions before the last one. The untrained model has no preference for neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.explain.patterns import Census, recurrence
from heedful.lab.drawing import Curves, Matrix, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import generator_from, seeded
from heedful.lab.tiny import attention_weights, census_of, train
from heedful.models import language_model
from heedful.models.language_model import LanguageModel, LanguageModelConfig
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

SYMBOLS, FOLLOWERS, LENGTH = "abcdefgh", 2, 12
N_LAYERS, N_HEADS = 2, 2
BATCH, RATE = 32, 1e-2
UPDATES, SEEDS = {"short": 400, "long": 400}, {"short": 2, "long": 6}
TESTED = 64
SEEN = 6  # number of offsets shown, from 0; queries at earlier positions are left out

PREVIOUS = "previous token"

# Sequences


def followers() -> Int[Tensor, "symbols followers"]:
    """Draw the possible successors of each symbol, which are equally likely."""
    generator = generator_from(7)
    rows = [torch.randperm(len(SYMBOLS), generator=generator)[:FOLLOWERS] for _ in SYMBOLS]
    return torch.stack(rows)


def drawn(n: int, back: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences of `LENGTH` + 1 symbols; the first ones are uniform.

    Each symbol is one of the `followers` of the symbol ``back`` positions before its left neighbour. With 1
    that is the last but one, as in a second-order Markov chain in which the last symbol is uninformative.
    """
    table = followers()
    rows = torch.randint(len(SYMBOLS), (n, LENGTH + 1), generator=generator)
    for t in range(back + 1, LENGTH + 1):
        chosen = torch.randint(FOLLOWERS, (n,), generator=generator)
        rows[:, t] = table[rows[:, t - 1 - back], chosen]
    return rows


def least_loss(back: int) -> float:
    """Return the entropy in nats per symbol: uniform first symbols, then equally likely successors."""
    return (back * np.log(len(SYMBOLS)) + (LENGTH - back) * np.log(FOLLOWERS)) / LENGTH


# Models and their attention


def model_of(seed: int) -> LanguageModel:
    """Build a causal Transformer with learned positions, randomly initialised."""
    config = LanguageModelConfig(
        d_model=32, n_heads=N_HEADS, n_layers=N_LAYERS, context=LENGTH, dropout=0.0, positions="learned"
    )
    with seeded(seed):
        return language_model.build(config, len(SYMBOLS))


def weights(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Float[Tensor, "L n H T T"]:
    """Return the attention weights of all layers for all symbols but the last."""
    return attention_weights(model, Batch.windows(rows.numpy()).inputs)


def scored(rows: Int[Tensor, "n length"], seen: Float[Tensor, "L n H T T"]) -> Census:
    """Take the census of the heads from their weights for these sequences."""
    return census_of(([SYMBOLS[symbol] for symbol in row[:-1]] for row in rows.tolist()), "causal", seen)


def by_offset(seen: Float[Tensor, "L n H T T"]) -> Float[Tensor, "heads offsets"]:
    """Return the mean weight of each head for the symbol 0, 1, … `SEEN` - 1 positions back.

    The mean is over queries with enough predecessors. The heads of the first layer come first.
    """
    queries = torch.arange(SEEN - 1, seen.shape[-1])
    offsets = [seen[..., queries, queries - k].mean((1, 3)).flatten() for k in range(SEEN)]
    return torch.stack(offsets, -1)


@dataclass(frozen=True)
class Observed:
    """Attention of the heads of a model.

    Args:
        seen: weights, ``[L, n, H, T, T]``.
        scores: previous-token score of each head; 0 is chance, 1 is the maximum.
        share: share of heads classified as previous-token heads.
    """

    seen: Float[Tensor, "L n H T T"]
    scores: Sequence[float]
    share: float


def observe(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Observed:
    """Capture the attention of a model for sequences."""
    seen = weights(model, rows)
    found = scored(rows, seen)
    links = recurrence(found)
    assert links is not None
    return Observed(seen, [head.matches[PREVIOUS].score for head in found.heads], links.previous)


@dataclass(frozen=True)
class Learned:
    """A model before and after training.

    Args:
        before, after: attention of its heads.
        loss: final loss, in nats per symbol.
    """

    before: Observed
    after: Observed
    loss: float


def learned(back: int, updates: int, seed: int) -> Learned:
    """Train a model."""
    model, generator = model_of(seed), generator_from(100 + seed)
    rows = drawn(TESTED, back, generator_from(1))
    before = observe(model.eval(), rows)
    batches = (Batch.windows(drawn(BATCH, back, generator).numpy()) for _ in range(updates))
    training = train(model, NextToken(), batches, AdamConfig(), Constant(RATE, warmup=20))
    return Learned(before, observe(model, rows), training.end)


# The experiment


def _emerge(size: Size, back: int) -> Outcome:
    """Count heads that attend to the previous token, untrained and trained, over several initialisations."""
    models = [learned(back, UPDATES[size], seed) for seed in range(SEEDS[size])]
    shares = [each.after.share for each in models]
    untrained = [each.before.share for each in models]
    best = [max(each.after.scores) for each in models]
    first = models[0]
    return Outcome(
        _verdict(untrained, shares),
        "Before training, the attention of every head is nearly uniform. If the previous symbol determines "
        "what comes next, training produces heads that attend to it, like the connections of an RNN. Only "
        "the data favour that neighbour: if a symbol further back determines the next one, heads attend "
        "there, and no such connections emerge.",
        [
            Measured("heads that look at the token before, trained", 100 * fmean(shares), "%"),
            Measured("heads that look at the token before, untrained", 100 * fmean(untrained), "%"),
            Measured("score of the best head for it, mean of models", fmean(best)),
            Measured("score of the best head for it, least of models", min(best)),
            Measured(
                "score of the best head for it, untrained", max(max(each.before.scores) for each in models)
            ),
            Measured("models with such a head", sum(share > 0 for share in shares)),
            Measured("models", len(models)),
            Measured("loss at the end", fmean([each.loss for each in models]), "nats a symbol"),
            Measured("least loss there can be", least_loss(back), "nats a symbol"),
        ],
        [
            {"first weights": seed, **{_name(head): score for head, score in enumerate(each.after.scores)}}
            for seed, each in enumerate(models, 1)
        ],
        [_offsets(first), _sequence(first, drawn(TESTED, back, generator_from(1))[0])],
    )


def _verdict(untrained: Sequence[float], trained: Sequence[float]) -> Verdict:
    """Judge by the shares of previous-token heads of each model."""
    if not any(trained):
        return "is wrong"
    return "holds" if all(trained) and not any(untrained) else "holds with conditions"


def _name(head: int) -> str:
    return f"layer {head // N_HEADS + 1}, head {head % N_HEADS + 1}"


def _offsets(of: Learned) -> Curves:
    after, before = by_offset(of.after.seen), by_offset(of.before.seen).mean(0)
    lines = {_name(head): own.tolist() for head, own in enumerate(after)}
    return Curves(
        "Attention by offset after training",
        "positions back (0: the symbol itself)",
        "mean weight",
        over(range(SEEN), {**lines, "all heads, before": before.tolist()}),
        limits=(0.0, 1.04),
        inches=(5.0, 3.8),
    )


def _sequence(of: Learned, row: Int[Tensor, " length"]) -> Matrix:
    """Draw the sharpest head for one sequence."""
    head = int(by_offset(of.after.seen).amax(1).argmax())
    symbols = [SYMBOLS[symbol] for symbol in row[:-1].tolist()]
    values = of.after.seen[head // N_HEADS, 0, head % N_HEADS].tolist()
    title = f"One sequence: {_name(head)}"
    return Matrix(title, "key", "query", values, (0.0, 1.0), symbols, symbols, inches=(4.6, 3.8))


EXPERIMENTS = [
    Experiment(
        "emerging-links",
        "Recurrent connections learned by attention",
        "The recurrent connections that an RNN is wired with emerge in attention networks as a result of "
        "training.",
        "S1, visualizing attention patterns in Transformers, on Vig, with figure 11",
        (75,),
        run=partial(_emerge, back=1),
        control=partial(_emerge, back=5),
        changed="The next symbol depends on the one five positions before the last.",
    ),
]
