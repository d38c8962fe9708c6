"""The learning rate: Adam's first steps, the schedule, and training with and without its warm-up.

Items 53 (Adam), 54 (two attempts at a schedule), 55 (the schedule) and 56 (the open questions) of the
lectures.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, Panel, curves_over, numbered_curves
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, named_each, table_of
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import Training, cyclic_sequences, plain_stack, slope, train, word_model
from heedful.models.language_model import LanguageModel
from heedful.models.stacks import embedding_table
from heedful.nn.blocks import EncoderStack
from heedful.nn.layout import Layout
from heedful.nn.positions import SinusoidalPositions
from heedful.objectives.cross_entropy import NextToken, linear_cross_entropy
from heedful.training.optimizers import AdamConfig, OptimizerConfig, SGDConfig, build_optimizer, set_lr
from heedful.training.schedules import Constant, Warmup

# The schedule

Rate = Callable[[int], float]
D_MODEL, W = 512, 4000


def first_attempt(step: int) -> float:
    """Return the rate ``s^-0.5`` of lecture S0."""
    return step**-0.5


def second_attempt(step: int) -> float:
    """Return the rate ``s 4000^-1.5`` of lecture S0."""
    return step * W**-1.5


def pieces(step: int, change: int = W) -> float:
    """Return the second attempt up to update ``change``, then the first (lecture S0)."""
    return second_attempt(step) if step <= change else first_attempt(step)


def scaled(step: int) -> float:
    """Return the smaller of both attempts, times d_model^-0.5."""
    return D_MODEL**-0.5 * min(first_attempt(step), second_attempt(step))


@measures("schedule-without-width", rate=(pieces, scaled), name=("as printed in pieces", "with the factor"))
def compare_with_the_schedule(size: Size, rate: Rate, name: str) -> Series:
    """Compare a form of the schedule with `Warmup`, update by update."""
    schedule, steps = Warmup(D_MODEL, W), _updates(size)
    ratios = [rate(s) / schedule.rate(s) for s in steps]
    attempts = {"attempt 1: s^-0.5": first_attempt, "attempt 2: s 4000^-1.5": second_attempt}
    return Series(
        {
            "peak": Measured("peak of the rate", max(map(rate, steps)), expected=schedule.rate(W)),
            "at": Measured("update of the peak", max(steps, key=rate), expected=float(W)),
            "most": Measured("largest ratio to the schedule", max(ratios), expected=1.0),
            "least": min(ratios),
        },
        panels=[
            _rate_panel("Attempts 1 and 2 of lecture S0", "learning rate", attempts, steps, log="y"),
            _rate_panel(
                "The schedule, d_model = 512",
                "learning rate",
                {name: rate, "with d_model^-0.5": schedule.rate},
                steps,
                log="y",
            ),
        ],
    )


@measures("schedule-as-minimum", change=(W, W // 2))
def compare_pieces_with_the_minimum(size: Size, change: int) -> Series:
    """Measure whether two pieces, switched at update ``change``, equal `Warmup`, which takes the minimum."""
    schedule, steps = Warmup(D_MODEL, W, factor=D_MODEL**0.5), _updates(size)
    differing = [s for s in steps if not math.isclose(pieces(s, change), schedule.rate(s))]
    above = [second_attempt(s) > first_attempt(s) * (1 + 1e-9) for s in steps]
    name_of_differing = "updates at which pieces and heedful's schedule differ"
    turns = [
        s for s, was_above, is_above in zip(steps, above, above[1:], strict=False) if was_above != is_above
    ]
    return Series(
        {
            "n_differ": Measured(name_of_differing, len(differing), expected=0.0),
            "n_turns": Measured("how often line and curve change places", len(turns), expected=1.0),
            "first": Measured("the first time, after update", turns[0], expected=float(W)),
        },
        panels=[
            _rate_panel(
                f"Pieces that switch at update {change}",
                "learning rate (without d_model^-0.5)",
                {"pieces": lambda s: pieces(s, change), "heedful's schedule": schedule.rate},
                steps,
            )
        ],
    )


def _updates(size: Size) -> list[int]:
    return list(range(1, (3 if size == "short" else 25) * W + 1))


def _rate_panel(
    title: str, y: str, rates: Mapping[str, Rate], steps: Sequence[int], log: Literal["", "y"] = ""
) -> Curves:
    """Draw rates over about 200 updates, including the first and the 4000th."""
    stride = max(1, len(steps) // 200)
    steps_shown = sorted({1, 2, 5, 10, 20, W, *steps[stride - 1 :: stride]})
    lines = {name: [rate(s) for s in steps_shown] for name, rate in rates.items()}
    return Curves(title, "update", y, curves_over(steps_shown, lines), log=log)


# Adam's first steps


@measures("adam-first-steps", corrected=(True, False))
def measure_adams_steps(size: Size, corrected: bool, beta2: float = 0.98) -> Series:
    """Measure the length of Adam's steps under a constant gradient, in units of the learning rate."""
    gradients = [1e-6, 1e-3, 1.0, 1e3]
    n = 50 if size == "short" else 2000
    config = AdamConfig(beta2=beta2)
    paths = {g: (_adam if corrected else _uncorrected)(config, g, n) for g in gradients}
    uncorrected = _uncorrected(config, 1.0, n)
    by_formula = (1 - config.beta1) / (1 - beta2) ** 0.5
    lengths = [length for path in paths.values() for length in path]
    return Series(
        {
            "first": Measured("first step, gradient 1", paths[1.0][0], "rates", 1.0),
            "of_small": Measured("first step, gradient 0.001", paths[1e-3][0], "rates", 1.0),
            "tenth": Measured("step 10, gradient 1", paths[1.0][9], "rates", 1.0),
            "plain": Measured("first step without the correction", uncorrected[0], "rates", by_formula),
            "least": min(lengths),
            "most": max(lengths),
        },
        table_of({"gradient": gradients, "first step, in rates": [path[0] for path in paths.values()]}),
        [
            Curves(
                f"Steps under a constant gradient, β2 = {beta2}",
                "update",
                "step length / learning rate",
                numbered_curves({"Adam": _adam(config, 1.0, n), "without bias correction": uncorrected}),
                levels={"the rate": 1.0},
            )
        ],
    )


def _adam(config: AdamConfig, gradient: float, n: int, rate: float = 1e-3) -> list[float]:
    """Return the step lengths of heedful's Adam, in units of the rate."""
    with seeded(0):
        weight = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    optimizer = build_optimizer(config, weight)
    set_lr(optimizer, rate)
    lengths = []
    for _ in range(n):
        old = weight.weight.item()
        weight.weight.grad = torch.full((1, 1), gradient, dtype=torch.float64)
        optimizer.step()
        lengths.append((old - weight.weight.item()) / rate)
    return lengths


def _uncorrected(config: AdamConfig, gradient: float, n: int) -> list[float]:
    """Return the step lengths with m and v in place of m̂ and v̂."""
    m = v = 0.0
    lengths = []
    for _ in range(n):
        m = config.beta1 * m + (1 - config.beta1) * gradient
        v = config.beta2 * v + (1 - config.beta2) * gradient**2
        lengths.append(m / (v**0.5 + config.eps))
    return lengths


# Gradients at the first update

Placement = Literal["post", "pre"]
PLACEMENTS: tuple[Placement, ...] = ("post", "pre")
WIDTH, TYPES = 32, 29


def _stack(placement: Placement, n_layers: int) -> EncoderStack:
    """Build causal blocks of width `WIDTH`, Xavier-uniform as in the paper's analysis."""
    return plain_stack(WIDTH, n_layers, causal=True, placement=placement)


def gradient_norms(placement: Placement, n_layers: int, seed: int) -> list[float]:
    """Return the gradient norms of W_2 of all feed-forward networks of an untrained stack, first layer first.

    Inputs and output layer are random, and so is the target, at the last of 16 positions only: a mean over
    many tokens would hide the gradient of each.
    """
    layout = Layout.of([16])
    with seeded(seed):
        stack = _stack(placement, n_layers)
        x, head = torch.randn(layout.n_tokens, WIDTH), torch.randn(TYPES, WIDTH) * WIDTH**-0.5
        target = torch.randint(TYPES, (1,))
    loss, _ = linear_cross_entropy(stack(x, layout)[-1:], head, None, target)
    loss.backward()
    matrices = [p for name, p in stack.named_parameters() if name.endswith("feed_forward.part.down.weight")]
    norms = [p.grad.norm().item() for p in matrices if p.grad is not None]
    assert len(norms) == n_layers
    return norms


@cache
def _mean_gradient_norms(placement: Placement, n_layers: int, seeds: int) -> list[float]:
    """Return their means over several stacks."""
    rows = [gradient_norms(placement, n_layers, seed) for seed in range(seeds)]
    return [sum(column) / seeds for column in zip(*rows, strict=True)]


@measures("gradients-before-training", placement=("post", "pre"))
def measure_gradients_by_depth(size: Size, placement: Placement) -> Series:
    """Measure how the gradient of the last layer depends on the number of layers."""
    depths, seeds = ([2, 4, 8, 16], 8) if size == "short" else ([2, 4, 8, 16, 32], 24)
    norms = {name: [_mean_gradient_norms(name, n, seeds) for n in depths] for name in PLACEMENTS}
    last_layer = {name: [by_layer[-1] for by_layer in by_depth] for name, by_depth in norms.items()}
    power = slope([math.log(n) for n in depths], [math.log(norm) for norm in last_layer[placement]])
    deepest = depths[-1]
    deepest_stacks = {name: by_depth[-1] for name, by_depth in norms.items()}
    y = "norm, before the first update"
    return Series(
        {
            "power": Measured(
                "power of L by which the last layer's gradient goes",
                power,
                expected=0.0 if placement == "post" else -0.5,
            ),
            "last": Measured(f"gradient of the last of {deepest} layers", last_layer[placement][-1]),
            "first": Measured(f"gradient of the first of {deepest} layers", deepest_stacks[placement][0]),
            "last_of_few": Measured(f"gradient of the last of {depths[0]} layers", last_layer[placement][0]),
        },
        table_of({"layers": depths, **named_each("gradient of the last, {}-norm", last_layer)}),
        [
            Curves(title, x, y, named_each("{}-norm", curves), log="y")
            for title, x, curves in (
                ("Gradient of W_2 in the last layer", "layers", curves_over(depths, last_layer)),
                (f"Gradient of W_2 in each of {deepest} layers", "layer", numbered_curves(deepest_stacks)),
            )
        ],
    )


# Training without a warm-up

N_LAYERS, LENGTH, SENTENCES = 6, 16, 8
Kind = Literal["Adam", "SGD"]
KINDS: dict[Kind, OptimizerConfig] = {"Adam": AdamConfig(), "SGD": SGDConfig(momentum=0.9)}
RATES: dict[tuple[Kind, Size], tuple[float, ...]] = {
    ("Adam", "short"): (3e-3, 1e-2),
    ("Adam", "long"): (1e-3, 3e-3, 1e-2),
    ("SGD", "short"): (0.03, 0.13),
    ("SGD", "long"): (0.01, 0.03, 0.13),
}
"""Rates at which a stack of either placement trains with a warm-up."""
UPDATES: dict[tuple[Kind, Size], int] = {
    ("Adam", "short"): 60,
    ("Adam", "long"): 120,
    ("SGD", "short"): 180,
    ("SGD", "long"): 180,
}
WARMUP: dict[Kind, float] = {"Adam": 1 / 3, "SGD": 2 / 3}
"""Share of the updates used for warm-up. With SGD at its highest rate, a third is not always enough."""


def cyclic_batches(n_batches: int, seed: int) -> Iterator[Batch]:
    """Yield sequences in which each symbol determines the next one: a single cycle through all symbols.

    A model that knows the cycle has a loss of 0; a uniform prediction has ln 29 = 3.37.
    """
    generator = generator_from(seed)
    for _ in range(n_batches):
        yield Batch.windows(cyclic_sequences(SENTENCES, LENGTH + 1, TYPES, generator).numpy())


def _build_model(placement: Placement, seed: int) -> LanguageModel:
    with seeded(seed):
        embeddings, stack = embedding_table(TYPES, WIDTH), _stack(placement, N_LAYERS)
        return word_model(embeddings, stack, SinusoidalPositions(WIDTH), tied=False)


def _train(kind: Kind, placement: Placement, rate: float, warmup: int, n: int, seed: int) -> Training:
    """Train for ``n`` updates at a constant rate, after a linear rise from 0 in the first ``warmup``."""
    batches = cyclic_batches(n, seed)
    return train(_build_model(placement, seed), NextToken(), batches, KINDS[kind], Constant(rate, warmup))


@dataclass(frozen=True)
class Pair:
    """Training runs that differ only in the warm-up, for several seeds."""

    without: list[Training]
    warmed: list[Training]

    @property
    def ends(self) -> tuple[float, float]:
        """Mean final losses without and with warm-up, in nats per token, at most chance level."""
        chance = math.log(TYPES)
        without, warmed = (
            [min(t.end, chance) for t in trainings] for trainings in (self.without, self.warmed)
        )
        return sum(without) / len(without), sum(warmed) / len(warmed)

    @property
    def gain(self) -> float:
        """Reduction of the final loss by warm-up, in nats per token."""
        without, warmed = self.ends
        return without - warmed


@cache
def _train_pair(kind: Kind, placement: Placement, rate: float, size: Size) -> Pair:
    n, seeds = UPDATES[kind, size], range(1 if size == "short" else 3)
    warmups = 0, round(WARMUP[kind] * n)
    return Pair(*([_train(kind, placement, rate, warmup, n, seed) for seed in seeds] for warmup in warmups))


def _train_pairs(kind: Kind, placement: Placement, size: Size) -> dict[float, Pair]:
    """Return pairs by rate, highest first."""
    return {rate: _train_pair(kind, placement, rate, size) for rate in reversed(RATES[kind, size])}


@measures("post-norm-needs-warm-up", placement=("post", "pre"))
def measure_gain_of_warm_up(size: Size, placement: Placement) -> Series:
    """Train with and without a warm-up, at several rates."""
    pairs = _train_pairs("Adam", placement, size)
    rate, highest = next(iter(pairs.items()))
    gains = {f"{pair_rate:g}": pair.gain for pair_rate, pair in pairs.items()}
    ends = dict(zip(("without", "with"), highest.ends, strict=True))
    return Series(
        {
            **measured_each("what warm-up takes off the loss at the end, rate {}", gains, "nats"),
            **measured_each(f"loss at the end {{}} warm-up, rate {rate:g}", ends, "nats"),
            "norm": Measured("norm of the first gradient", highest.without[0].norms[0]),
            "gains": list(gains.values()),
        },
        _table_of_losses({"Adam": pairs}),
        [
            _loss_panel(f"Final loss ({placement}-norm)", pairs),
            *_training_panels(highest, f"{placement}-norm, rate {rate:g}"),
        ],
    )


@measures("warm-up-and-optimizer", highest=(True, False))
def compare_gains_of_optimizers(size: Size, *, highest: bool) -> Series:
    """Measure whether Adam needs a warm-up and SGD does not, with or without SGD's highest rate."""
    pairs_by_optimizer = {kind: _train_pairs(kind, "post", size) for kind in KINDS}
    pre_norm_gains = {
        kind: _train_pair(kind, "pre", max(pairs_by_optimizer[kind]), size).gain for kind in KINDS
    }
    if not highest:
        pairs_by_optimizer["SGD"] = {
            rate: pair
            for rate, pair in pairs_by_optimizer["SGD"].items()
            if rate < max(pairs_by_optimizer["SGD"])
        }
    gains = {kind: max(pair.gain for pair in pairs.values()) for kind, pairs in pairs_by_optimizer.items()}
    least_losses = {
        kind: min(pair.ends[0] for pair in pairs.values()) for kind, pairs in pairs_by_optimizer.items()
    }
    rate, first = next(iter(pairs_by_optimizer["SGD"].items()))
    return Series(
        {
            **measured_each("most that warm-up takes off the loss at the end, {}", gains, "nats"),
            **measured_each("the same at the highest rate, {}, pre-norm", pre_norm_gains, "nats"),
            **measured_each("least loss at the end without warm-up, {}", least_losses, "nats"),
            "gains": gains,
        },
        _table_of_losses(pairs_by_optimizer),
        [
            *(
                _loss_panel(f"{kind}: final loss (post-norm)", pairs)
                for kind, pairs in pairs_by_optimizer.items()
            ),
            _training_panels(first, f"SGD, post-norm, rate {rate:g}")[0],
        ],
    )


def _table_of_losses(pairs_by_optimizer: Mapping[Kind, Mapping[float, Pair]]) -> list[dict[str, str | float]]:
    """Return a row for each optimizer and rate."""
    return [
        {"optimizer": name, "rate": rate, "without warm-up": pair.ends[0], "with warm-up": pair.ends[1]}
        for name, pairs in pairs_by_optimizer.items()
        for rate, pair in pairs.items()
    ]


def _loss_panel(title: str, pairs: Mapping[float, Pair]) -> Curves:
    """Draw the final losses with and without warm-up by rate."""
    without, warmed = zip(*(pair.ends for pair in pairs.values()), strict=True)
    lines = curves_over([*pairs], {"without": without, "with warm-up": warmed})
    return Curves(title, "rate", "nats per token", lines, levels={"chance": math.log(TYPES)}, log="xy")


def _training_panels(pair: Pair, title: str) -> list[Panel]:
    """Draw losses and gradient norms by update, of the first training without and with warm-up."""
    trainings = {"without": pair.without[0], "with warm-up": pair.warmed[0]}
    return [
        Curves(
            f"{quantity} ({title})",
            "update",
            unit,
            numbered_curves({name: getattr(t, field) for name, t in trainings.items()}),
            log="y",
        )
        for quantity, unit, field in (("Loss", "nats per token", "losses"), ("Gradients", "norm", "norms"))
    ]
