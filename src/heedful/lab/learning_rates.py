"""The learning-rate schedule, and the length of Adam's first steps.

Items 53 (Adam), 54 (two attempts at a schedule) and 55 (the schedule) of the lectures.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from heedful.lab.drawing import Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import seeded
from heedful.training.optimizers import AdamConfig, build_optimizer, set_rate
from heedful.training.schedules import Warmup

Rate = Callable[[int], float]

D_MODEL, WARMUP = 512, 4000

# The schedule


def first_attempt(step: int) -> float:
    """Return the rate ``s^-0.5`` of lecture S0."""
    return step**-0.5


def second_attempt(step: int) -> float:
    """Return the rate ``s 4000^-1.5`` of lecture S0."""
    return step * WARMUP**-1.5


def pieces(step: int, change: int = WARMUP) -> float:
    """Return the second attempt up to update ``change``, then the first (lecture S0)."""
    return second_attempt(step) if step <= change else first_attempt(step)


def _is_the_schedule(rate: Rate, name: str, size: Size) -> Outcome:
    """Compare a form of the schedule with `Warmup`, update by update."""
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
    """Test whether the two pieces, switched at update ``change``, equal `Warmup`, which takes the minimum."""
    schedule, steps = Warmup(D_MODEL, WARMUP, factor=D_MODEL**0.5), _updates(size)
    differ = [s for s in steps if not math.isclose(pieces(s, change), schedule.rate(s))]
    above = [second_attempt(s) > first_attempt(s) * (1 + 1e-9) for s in steps]
    turns = [s for s, was, is_ in zip(steps, above, above[1:], strict=False) if was != is_]
    shown = _spread(steps)
    return Outcome(
        "holds" if len(turns) == 1 and not differ else "is wrong",
        "The decreasing curve s^-0.5 and the increasing line s w^-1.5 intersect only at s = w: before, the "
        "line is smaller, after it the curve. So the two pieces equal the minimum if they switch at w.",
        [
            Measured("updates at which pieces and heedful's schedule differ", len(differ), expected=0.0),
            Measured("how often line and curve change places", len(turns), expected=1.0),
            Measured("the first time, after update", turns[0], expected=float(WARMUP)),
        ],
        panels=[
            Curves(
                f"Pieces that switch at update {change}",
                "update",
                "learning rate (without d_model^-0.5)",
                {
                    "pieces": (shown, [pieces(s, change) for s in shown]),
                    "heedful's schedule": (shown, [schedule.rate(s) for s in shown]),
                },
            )
        ],
    )


def _updates(size: Size) -> list[int]:
    return list(range(1, (3 if size == "short" else 25) * WARMUP + 1))


def _spread(steps: Sequence[int]) -> list[int]:
    """Select about 200 updates, including the first and the 4000th."""
    every = max(1, len(steps) // 200)
    return sorted({1, 2, 5, 10, 20, WARMUP, *steps[every - 1 :: every]})


# Adam's first steps


def _first_steps(*, corrected: bool, beta2: float, size: Size) -> Outcome:
    """Measure the length of Adam's steps under a constant gradient, in units of the learning rate."""
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
        "With m̂ and v̂, the first step is η g / (|g| + ε): its length equals the learning rate, whatever the "
        "size of the gradient, and so do all steps while the gradient is constant. Without the correction "
        "the first step is (1 - β1) / √(1 - β2) of that: 0.71 for β2 = 0.98, and 3.2 for the library default "
        "of 0.999.",
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
                f"Steps under a constant gradient, β2 = {beta2}",
                "update",
                "step length / learning rate",
                {
                    "Adam": (numbers, _adam(config, 1.0, n)),
                    "without bias correction": (numbers, plain),
                },
                levels={"the rate": 1.0},
            )
        ],
    )


def _adam(config: AdamConfig, gradient: float, n: int, rate: float = 1e-3) -> list[float]:
    """Return the step lengths of heedful's Adam, in units of the rate."""
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
    """Return the step lengths with m and v in place of m̂ and v̂."""
    m = v = 0.0
    lengths = []
    for _ in range(n):
        m = config.beta1 * m + (1 - config.beta1) * gradient
        v = config.beta2 * v + (1 - config.beta2) * gradient**2
        lengths.append(m / (v**0.5 + config.eps))
    return lengths


_VASWANI = "Vaswani et al. 2017, section 5.3, equation 3"

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
        "Two pieces equal a minimum",
        "The falling and the rising curve meet once, so the two pieces can be written as their minimum.",
        f"S0, warm-up strategy; {_VASWANI}",
        (54, 55),
        run=lambda size: _is_the_minimum(WARMUP, size),
        control=lambda size: _is_the_minimum(WARMUP // 2, size),
        changed="The pieces switch at update 2000, while the line is still the one for 4000.",
    ),
    Experiment(
        "adam-first-steps",
        "Adam's first steps and their correction",
        "Adam divides by the corrected m̂ and v̂, so that its first steps already have the length of the rate.",
        "S0, training the Transformer; S2; Kingma and Ba 2015, section 3 and algorithm 1",
        (53,),
        run=lambda size: _first_steps(corrected=True, beta2=0.98, size=size),
        control=lambda size: _first_steps(corrected=False, beta2=0.98, size=size),
        changed="The steps use m and v instead of m̂ and v̂.",
    ),
]
