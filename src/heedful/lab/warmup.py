"""The learning rate of the first updates: the schedule, Adam's first steps, gradients, and what needs it.

Items 53 (Adam), 54 (two attempts at a schedule), 55 (the schedule) and 56 (the open questions) of the
lectures.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, Panel
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import seeded
from heedful.lab.tiny import Training, slope, train
from heedful.models.attention_stack import self_attention_stack
from heedful.models.encoder_decoder import embedding_table, token_head
from heedful.models.language_model import LanguageModel
from heedful.models.transformer import TransformerConfig
from heedful.nn.blocks import EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.layout import Layout
from heedful.nn.positions import Added, SinusoidalPositions
from heedful.objectives.cross_entropy import NextToken, linear_cross_entropy
from heedful.training.optimizers import AdamConfig, build_optimizer, set_rate
from heedful.training.schedules import Constant, Warmup

Rate = Callable[[int], float]
Placement = Literal["post", "pre"]

PLACEMENTS: tuple[Placement, ...] = ("post", "pre")

D_MODEL, WARMUP = 512, 4000


# The schedule


def first_attempt(step: int) -> float:
    """Lecture S0: ``s^-0.5``."""
    return step**-0.5


def second_attempt(step: int) -> float:
    """Lecture S0: ``s 4000^-1.5``."""
    return step * WARMUP**-1.5


def pieces(step: int, change: int = WARMUP) -> float:
    """Lecture S0: the second attempt up to update ``change``, then the first."""
    return second_attempt(step) if step <= change else first_attempt(step)


def _is_the_schedule(rate: Rate, name: str, size: Size) -> Outcome:
    """Hold a form of the schedule against `Warmup`, update by update."""
    schedule = Warmup(D_MODEL, WARMUP)
    steps = _updates(size)
    ratios = [rate(s) / schedule.rate(s) for s in steps]
    agrees = all(math.isclose(ratio, 1.0, rel_tol=1e-9) for ratio in ratios)
    shown = _spread(steps)
    return Outcome(
        "holds" if agrees else "is wrong",
        "The rate is d_model^-0.5 min(s^-0.5, s w^-1.5). Without the factor d_model^-0.5 it is √512 = 22.6 "
        "times as large for d_model = 512, with a peak of 0.0158 instead of 0.000699 at update 4000.",
        [
            Measured("peak of the rate", max(map(rate, steps)), expected=schedule.rate(WARMUP)),
            Measured("update of the peak", max(steps, key=rate), expected=float(WARMUP)),
            Measured("largest ratio to the schedule", max(ratios), expected=1.0),
        ],
        panels=[
            Curves(
                "Attempts 1 and 2 of lecture S0",
                "update",
                "learning rate",
                {
                    "attempt 1: s^-0.5": (shown, [first_attempt(s) for s in shown]),
                    "attempt 2: s 4000^-1.5": (shown, [second_attempt(s) for s in shown]),
                },
                log="y",
            ),
            Curves(
                "The schedule, d_model = 512",
                "update",
                "learning rate",
                {
                    name: (shown, [rate(s) for s in shown]),
                    "with d_model^-0.5": (shown, [schedule.rate(s) for s in shown]),
                },
                log="y",
            ),
        ],
    )


def _is_the_minimum(change: int, size: Size) -> Outcome:
    """Whether the two pieces, changed at update ``change``, are the smaller of both attempts everywhere."""
    steps = _updates(size)
    differ = [
        s for s in steps if not math.isclose(pieces(s, change), min(first_attempt(s), second_attempt(s)))
    ]
    shown = _spread(steps)
    return Outcome(
        "is wrong" if differ else "holds",
        "The falling curve s^-0.5 and the rising line s w^-1.5 meet at s = w alone: before it the line is "
        "the smaller one, after it the curve. So the two pieces are the minimum if they change at w.",
        [
            Measured("updates at which pieces and minimum differ", len(differ), expected=0.0),
            Measured("where the attempts meet", _meeting(steps), expected=float(WARMUP)),
        ],
        panels=[
            Curves(
                f"Pieces that change at update {change}",
                "update",
                "learning rate (without d_model^-0.5)",
                {
                    "pieces": (shown, [pieces(s, change) for s in shown]),
                    "minimum": (shown, [min(first_attempt(s), second_attempt(s)) for s in shown]),
                },
            )
        ],
    )


def _meeting(steps: Sequence[int]) -> int:
    """The first update at which the line has reached the curve."""
    return next(s for s in steps if second_attempt(s) >= first_attempt(s) * (1 - 1e-12))


def _updates(size: Size) -> list[int]:
    return list(range(1, (3 if size == "short" else 25) * WARMUP + 1))


def _spread(steps: Sequence[int]) -> list[int]:
    """Some 200 of them, the first and the 4000th among them."""
    every = max(1, len(steps) // 200)
    return sorted({1, 2, 5, 10, 20, WARMUP, *steps[every - 1 :: every]})


# Adam's first steps


def _first_steps(*, corrected: bool, beta2: float, size: Size) -> Outcome:
    """The length of Adam's steps under a gradient that stays the same, in units of the rate."""
    gradients = [1e-6, 1e-3, 1.0, 1e3]
    n = 50 if size == "short" else 2000
    config = AdamConfig(beta2=beta2)
    paths = {g: (_adam if corrected else _uncorrected)(config, g, n) for g in gradients}
    first = {g: lengths[0] for g, lengths in paths.items()}
    right = all(abs(length - 1) < 0.01 for lengths in paths.values() for length in lengths)
    middle = paths[1.0]
    plain = _uncorrected(config, 1.0, n)
    numbers = list(range(1, n + 1))
    return Outcome(
        "holds" if right else "is wrong",
        "With m̂ and v̂, the first step is η g / (|g| + ε): as long as the rate, whatever the gradient's "
        "size, and so are all steps while the gradient stays the same. Without the correction the first "
        "step is (1 - β1) / √(1 - β2) of that: 0.71 for β2 = 0.98, and 3.2 for the library default of "
        "0.999.",
        [
            Measured("first step, gradient 1", first[1.0], "rates", 1.0),
            Measured("first step, gradient 0.001", first[1e-3], "rates", 1.0),
            Measured("step 10, gradient 1", middle[9], "rates", 1.0),
            Measured(
                "first step without the correction",
                plain[0],
                "rates",
                (1 - config.beta1) / (1 - beta2) ** 0.5,
            ),
        ],
        [{"gradient": g, "first step, in rates": length} for g, length in first.items()],
        [
            Curves(
                f"Steps under one gradient, β2 = {beta2}",
                "update",
                "length of the step, in rates",
                {
                    "Adam": (numbers, _adam(config, 1.0, n)),
                    "without bias correction": (numbers, plain),
                },
                levels={"the rate": 1.0},
            )
        ],
    )


def _adam(config: AdamConfig, gradient: float, n: int, rate: float = 1e-3) -> list[float]:
    """Lengths of heedful's own steps, in rates."""
    with seeded(0):
        weight = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    optimizer = build_optimizer(config, weight)
    set_rate(optimizer, rate)
    lengths = []
    for _ in range(n):
        before = weight.weight.item()
        weight.weight.grad = torch.full((1, 1), gradient, dtype=torch.float64)
        optimizer.step()
        lengths.append((before - weight.weight.item()) / rate)
    return lengths


def _uncorrected(config: AdamConfig, gradient: float, n: int) -> list[float]:
    """The same for m and v in place of m̂ and v̂."""
    m = v = 0.0
    lengths = []
    for _ in range(n):
        m = config.beta1 * m + (1 - config.beta1) * gradient
        v = config.beta2 * v + (1 - config.beta2) * gradient**2
        lengths.append(m / (v**0.5 + config.eps))
    return lengths


# Gradients at the first update

WIDTH, TYPES = 32, 29


def _stack(placement: Placement, n_layers: int) -> EncoderStack:
    """Causal blocks of width `WIDTH`, Xavier-uniform as in the paper's analysis."""
    config = TransformerConfig(
        d_model=WIDTH, d_ff=4 * WIDTH, n_heads=4, n_layers=n_layers, dropout=0.0, norm_placement=placement
    )
    return self_attention_stack(config, config.d_ff, causal=True)


def gradients(placement: Placement, n_layers: int, seed: int) -> list[float]:
    """Norms of the gradients of W_2 of the feed-forwards, from the first layer to the last, before training.

    Inputs and output layer are random, and so is the token that the loss asks for, at the last place of 16:
    the mean over many tokens would hide what each of them gives.
    """
    layout = Layout.of([16])
    with seeded(seed):
        stack = _stack(placement, n_layers)
        x, head = torch.randn(layout.n_tokens, WIDTH), torch.randn(TYPES, WIDTH) * WIDTH**-0.5
        target = torch.randint(TYPES, (1,))
    loss, _ = linear_cross_entropy(stack(x, layout)[-1:], head, None, target)
    loss.backward()
    matrices = [p for name, p in stack.named_parameters() if name.endswith("feed_forward.part.down.weight")]
    found = [p.grad.norm().item() for p in matrices if p.grad is not None]
    assert len(found) == n_layers
    return found


@cache
def _by_layer(placement: Placement, n_layers: int, seeds: int) -> list[float]:
    """Their means over so many stacks."""
    rows = [gradients(placement, n_layers, seed) for seed in range(seeds)]
    return [sum(column) / seeds for column in zip(*rows, strict=True)]


def _last_layer(placement: Placement, size: Size) -> Outcome:
    """How the gradient of the last layer depends on the number of layers."""
    depths, seeds = ([2, 4, 8, 16], 8) if size == "short" else ([2, 4, 8, 16, 32], 24)
    norms = {each: [_by_layer(each, n, seeds) for n in depths] for each in PLACEMENTS}
    last = {each: [by_layer[-1] for by_layer in own] for each, own in norms.items()}
    power = slope([math.log(n) for n in depths], [math.log(norm) for norm in last[placement]])
    verdict: Verdict = "holds" if power > -0.15 else "is wrong" if power < -0.25 else "holds with conditions"
    return Outcome(
        verdict,
        "Before the first update of a post-norm stack, the gradient of the last layer is as large in a deep "
        "stack as in a shallow one. Of a pre-norm stack it falls with depth, as L^-0.5 once the sum of all "
        "layers outweighs the input: its first steps are small by themselves.",
        [
            Measured(
                "power of L by which the last layer's gradient goes",
                power,
                expected=0.0 if placement == "post" else -0.5,
            ),
            Measured(f"gradient of the last of {depths[-1]} layers", last[placement][-1]),
            Measured(f"gradient of the first of {depths[-1]} layers", norms[placement][-1][0]),
            Measured(f"gradient of the last of {depths[0]} layers", last[placement][0]),
        ],
        [
            {"layers": n, **{f"gradient of the last, {each}-norm": last[each][i] for each in PLACEMENTS}}
            for i, n in enumerate(depths)
        ],
        [
            Curves(
                "Gradient of W_2 in the last layer",
                "layers",
                "norm, before the first update",
                {f"{each}-norm": (depths, last[each]) for each in PLACEMENTS},
                log="y",
            ),
            Curves(
                f"Gradient of W_2 in each of {depths[-1]} layers",
                "layer",
                "norm, before the first update",
                {f"{each}-norm": (range(1, depths[-1] + 1), norms[each][-1]) for each in PLACEMENTS},
                log="y",
            ),
        ],
    )


# What trains without a warm-up

N_LAYERS, LENGTH, SENTENCES, RATE = 6, 16, 8, 1e-2


def cycle(n_batches: int, seed: int) -> Iterator[Batch]:
    """Sequences in which each symbol decides the next one: a single cycle through all symbols.

    A model that knows the cycle has a loss of 0; one that knows nothing has ln 29 = 3.37.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(TYPES, generator=torch.Generator().manual_seed(7))
    for _ in range(n_batches):
        first = torch.randint(TYPES, (SENTENCES, 1), generator=generator)
        yield Batch.windows(order[(first + torch.arange(LENGTH + 1)) % TYPES].numpy())


def _model(placement: Placement, seed: int) -> LanguageModel:
    with seeded(seed):
        table = embedding_table(TYPES, WIDTH)
        embedding = TokenEmbedding(table, Added(SinusoidalPositions(WIDTH)), scale=math.sqrt(WIDTH))
        return LanguageModel(embedding, _stack(placement, N_LAYERS), token_head(WIDTH, TYPES, None))


def _trained(placement: Placement, warmup: int, n: int, seed: int) -> Training:
    """A training of ``n`` updates at one rate, after a rise from 0 over the first ``warmup`` of them."""
    batches = cycle(n, seed)
    return train(_model(placement, seed), NextToken(), batches, AdamConfig(), Constant(RATE, warmup))


GAIN = 0.5
"""From how many nats a token on warm-up counts as needed."""


@dataclass(frozen=True)
class Pair:
    """Trainings that differ in the warm-up alone, for several seeds."""

    without: list[Training]
    warmed: list[Training]

    @property
    def gain(self) -> float:
        """What warm-up takes off the last losses, in nats a token; a diverged training counts as chance."""
        chance = math.log(TYPES)
        ends = [[min(t.end, chance) for t in trainings] for trainings in (self.without, self.warmed)]
        return sum(ends[0]) / len(ends[0]) - sum(ends[1]) / len(ends[1])


@cache
def _pair(placement: Placement, size: Size) -> Pair:
    n, seeds = 60, range(1 if size == "short" else 5)
    return Pair(*([_trained(placement, warmup, n, seed) for seed in seeds] for warmup in (0, n // 3)))


def _needs(placement: Placement, size: Size) -> Outcome:
    """Train with and without a warm-up."""
    pair = _pair(placement, size)
    return Outcome(
        "holds" if pair.gain > GAIN else "is wrong",
        "A deep post-norm stack that starts at the full rate does not learn, or learns worse, where one that "
        "is warmed up does; a pre-norm stack learns at the same rate without a warm-up.",
        [
            Measured("what warm-up takes off the loss at the end", pair.gain, "nats"),
            Measured("loss at the end without warm-up", pair.without[0].end, "nats"),
            Measured("loss at the end with warm-up", pair.warmed[0].end, "nats"),
            Measured("norm of the first gradient", pair.without[0].norms[0]),
        ],
        panels=_courses({"without": pair.without[0], "with warm-up": pair.warmed[0]}, placement),
    )


def _courses(trainings: Mapping[str, Training], title: str) -> list[Panel]:
    """Loss and gradients over the updates."""
    return [
        Curves(
            f"{what} ({title}-norm, {N_LAYERS} layers)",
            "update",
            unit,
            {
                name: (list(range(1, len(getattr(t, field)) + 1)), getattr(t, field))
                for name, t in trainings.items()
            },
            log="y",
        )
        for what, unit, field in (("Loss", "nats a token", "losses"), ("Gradients", "norm", "norms"))
    ]


_VASWANI = "Vaswani et al. 2017, section 5.3, equation 3"
_XIONG = "Xiong et al. 2020"

EXPERIMENTS = [
    Experiment(
        "schedule-without-width",
        "The schedule in two pieces",
        "The learning rate is s 4000^-1.5 up to update 4000, and s^-0.5 after it.",
        f"S0, warm-up strategy (its last formula has the factor); {_VASWANI}",
        (54, 55),
        run=lambda size: _is_the_schedule(pieces, "as printed in pieces", size),
        control=lambda size: _is_the_schedule(
            lambda s: D_MODEL**-0.5 * min(first_attempt(s), second_attempt(s)), "with the factor", size
        ),
        changed="Both pieces are multiplied by d_model^-0.5.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "schedule-as-minimum",
        "Two pieces are a minimum",
        "The falling and the rising curve meet once, so the two pieces can be written as their minimum.",
        f"S0, warm-up strategy; {_VASWANI}",
        (54, 55),
        run=lambda size: _is_the_minimum(WARMUP, size),
        control=lambda size: _is_the_minimum(WARMUP // 2, size),
        changed="The pieces change at update 2000, while the line is still made for 4000.",
    ),
    Experiment(
        "adam-first-steps",
        "Adam's first steps and their correction",
        "Adam divides by the corrected m̂ and v̂, so that its first steps already have the length of the rate.",
        "S0, training the Transformer; S2; Kingma and Ba 2015, section 3 and algorithm 1",
        (53,),
        run=lambda size: _first_steps(corrected=True, beta2=0.98, size=size),
        control=lambda size: _first_steps(corrected=False, beta2=0.98, size=size),
        changed="The steps are made of m and v, not of m̂ and v̂.",
    ),
    Experiment(
        "gradients-before-training",
        "Gradients of the last layer before the first update",
        "Before training, the gradients of a post-norm stack's last layer are large however deep it is, and "
        "a warm-up keeps the first steps from being too long.",
        f"S0 asks what happens to the gradients; {_XIONG}, section 3.3 and theorem 1",
        (55, 56),
        run=lambda size: _last_layer("post", size),
        control=lambda size: _last_layer("pre", size),
        changed="The norms stand before the parts.",
    ),
    Experiment(
        "post-norm-needs-warm-up",
        "What a warm-up is needed for",
        "Without a warm-up a Transformer does not train, or ends worse.",
        f"S0 asks what happens without warm-up; {_XIONG}, section 3.1",
        (56,),
        run=lambda size: _needs("post", size),
        control=lambda size: _needs("pre", size),
        changed="The norms stand before the parts.",
    ),
]
