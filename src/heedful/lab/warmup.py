"""Purpose of a warm-up: gradients before the first update, and training with and without warm-up.

Items 55 (the schedule) and 56 (the open questions) of the lectures.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, Panel
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import cache, generator_from, seeded
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
from heedful.training.optimizers import AdamConfig, OptimizerConfig, SGDConfig
from heedful.training.schedules import Constant

Placement = Literal["post", "pre"]

PLACEMENTS: tuple[Placement, ...] = ("post", "pre")

# Gradients at the first update

WIDTH, TYPES = 32, 29


def _stack(placement: Placement, n_layers: int) -> EncoderStack:
    """Build causal blocks of width `WIDTH`, Xavier-uniform as in the paper's analysis."""
    config = TransformerConfig(
        d_model=WIDTH, d_ff=4 * WIDTH, n_heads=4, n_layers=n_layers, dropout=0.0, norm_placement=placement
    )
    return self_attention_stack(config, config.d_ff, causal=True)


def gradients(placement: Placement, n_layers: int, seed: int) -> list[float]:
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
    found = [p.grad.norm().item() for p in matrices if p.grad is not None]
    assert len(found) == n_layers
    return found


@cache
def _by_layer(placement: Placement, n_layers: int, seeds: int) -> list[float]:
    """Return their means over several stacks."""
    rows = [gradients(placement, n_layers, seed) for seed in range(seeds)]
    return [sum(column) / seeds for column in zip(*rows, strict=True)]


def _last_layer(placement: Placement, size: Size) -> Outcome:
    """Measure how the gradient of the last layer depends on the number of layers."""
    depths, seeds = ([2, 4, 8, 16], 8) if size == "short" else ([2, 4, 8, 16, 32], 24)
    norms = {each: [_by_layer(each, n, seeds) for n in depths] for each in PLACEMENTS}
    last = {each: [by_layer[-1] for by_layer in own] for each, own in norms.items()}
    power = slope([math.log(n) for n in depths], [math.log(norm) for norm in last[placement]])
    verdict: Verdict = "holds" if power > -0.15 else "is wrong" if power < -0.25 else "holds with conditions"
    return Outcome(
        verdict,
        "Before the first update of a post-norm stack, the gradient of the last layer is as large in a deep "
        "stack as in a shallow one. In a pre-norm stack it decreases with depth, as L^-0.5 once the sum of "
        "all layers outweighs the input. (Under Adam, gradient norms are not step lengths: "
        "adam-first-steps.)",
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


def cycle(n_batches: int, seed: int) -> Iterator[Batch]:
    """Yield sequences in which each symbol determines the next one: a single cycle through all symbols.

    A model that knows the cycle has a loss of 0; a uniform prediction has ln 29 = 3.37.
    """
    generator = generator_from(seed)
    order = torch.randperm(TYPES, generator=generator_from(7))
    for _ in range(n_batches):
        first = torch.randint(TYPES, (SENTENCES, 1), generator=generator)
        yield Batch.windows(order[(first + torch.arange(LENGTH + 1)) % TYPES].numpy())


def _model(placement: Placement, seed: int) -> LanguageModel:
    with seeded(seed):
        table = embedding_table(TYPES, WIDTH)
        embedding = TokenEmbedding(table, Added(SinusoidalPositions(WIDTH)), scale=math.sqrt(WIDTH))
        return LanguageModel(embedding, _stack(placement, N_LAYERS), token_head(WIDTH, TYPES, None))


def _trained(kind: Kind, placement: Placement, rate: float, warmup: int, n: int, seed: int) -> Training:
    """Train for ``n`` updates at a constant rate, after a linear rise from 0 in the first ``warmup``."""
    batches = cycle(n, seed)
    return train(_model(placement, seed), NextToken(), batches, KINDS[kind], Constant(rate, warmup))


GAIN = 0.5
"""Difference in nats per token above which a warm-up counts as needed."""


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
def _pair(kind: Kind, placement: Placement, rate: float, size: Size) -> Pair:
    n, seeds = UPDATES[kind, size], range(1 if size == "short" else 3)
    warmups = 0, round(WARMUP[kind] * n)
    return Pair(*([_trained(kind, placement, rate, warmup, n, seed) for seed in seeds] for warmup in warmups))


def _pairs(kind: Kind, placement: Placement, size: Size) -> dict[float, Pair]:
    """Return pairs by rate, highest first."""
    return {rate: _pair(kind, placement, rate, size) for rate in reversed(RATES[kind, size])}


def _needs(placement: Placement, size: Size) -> Outcome:
    """Train with and without a warm-up, at several rates."""
    pairs = _pairs("Adam", placement, size)
    needed = [pair.gain > GAIN for pair in pairs.values()]
    verdict: Verdict = "holds" if all(needed) else "holds with conditions" if any(needed) else "is wrong"
    rate, highest = next(iter(pairs.items()))
    return Outcome(
        verdict,
        (
            "At lower rates it does train. A deep post-norm stack that starts at a high rate does not learn, "
            "although with a warm-up to the same rate it does; at a third of that rate it learns without a "
            "warm-up, and as well."
            if any(needed)
            else "A pre-norm stack learns at the same rates without a warm-up."
        ),
        [
            *(
                Measured(f"what warm-up takes off the loss at the end, rate {each:g}", pair.gain, "nats")
                for each, pair in pairs.items()
            ),
            Measured(f"loss at the end without warm-up, rate {rate:g}", highest.ends[0], "nats"),
            Measured(f"loss at the end with warm-up, rate {rate:g}", highest.ends[1], "nats"),
            Measured("norm of the first gradient", highest.without[0].norms[0]),
        ],
        _ends({"Adam": pairs}),
        [
            _over_rates(f"Final loss ({placement}-norm)", pairs),
            *_courses(
                {"without": highest.without[0], "with warm-up": highest.warmed[0]},
                f"{placement}-norm, rate {rate:g}",
            ),
        ],
    )


def _specific(size: Size, *, highest: bool) -> Outcome:
    """Test whether Adam needs a warm-up and SGD does not, with or without SGD's highest rate."""
    found = {kind: _pairs(kind, "post", size) for kind in KINDS}
    pre = {kind: _pair(kind, "pre", max(found[kind]), size) for kind in KINDS}
    if not highest:
        found["SGD"] = {rate: pair for rate, pair in found["SGD"].items() if rate < max(found["SGD"])}
    gains = {kind: max(pair.gain for pair in pairs.values()) for kind, pairs in found.items()}
    own = gains["Adam"] > GAIN > gains["SGD"]
    first = {kind: next(iter(pairs.values())) for kind, pairs in found.items()}
    return Outcome(
        "holds" if own else "is wrong",
        (
            "It appears so if the rates of SGD are low enough: without a warm-up, Adam fails at its highest "
            "rate, and SGD does not fail at these."
            if own
            else "For either optimizer there is a rate at which a post-norm stack trains with a warm-up and "
            "does not learn without one, and there are lower rates at which it needs no warm-up. At the same "
            "rates, a pre-norm stack needs none with either optimizer: a warm-up is needed for post-norm at "
            "a high rate. (Xiong et al. find it needed for SGD in a translation model.)"
        ),
        [
            *(
                Measured(f"most that warm-up takes off the loss at the end, {kind}", gain, "nats")
                for kind, gain in gains.items()
            ),
            *(
                Measured(f"the same at the highest rate, {kind}, pre-norm", pair.gain, "nats")
                for kind, pair in pre.items()
            ),
            *(
                Measured(
                    f"least loss at the end without warm-up, {kind}",
                    min(pair.ends[0] for pair in pairs.values()),
                    "nats",
                )
                for kind, pairs in found.items()
            ),
        ],
        _ends(found),
        [
            *(_over_rates(f"{kind}: final loss (post-norm)", pairs) for kind, pairs in found.items()),
            _courses(
                {"without": first["SGD"].without[0], "with warm-up": first["SGD"].warmed[0]},
                f"SGD, post-norm, rate {max(found['SGD']):g}",
            )[0],
        ],
    )


def _ends(found: Mapping[Kind, Mapping[float, Pair]]) -> list[dict[str, str | float]]:
    """Return a row for each optimizer and rate."""
    return [
        {"optimizer": name, "rate": rate, "without warm-up": pair.ends[0], "with warm-up": pair.ends[1]}
        for name, pairs in found.items()
        for rate, pair in pairs.items()
    ]


def _over_rates(title: str, pairs: Mapping[float, Pair]) -> Curves:
    """Draw the final losses with and without warm-up by rate."""
    return Curves(
        title,
        "rate",
        "nats per token",
        {
            how: (list(pairs), [pair.ends[i] for pair in pairs.values()])
            for i, how in enumerate(("without", "with warm-up"))
        },
        levels={"chance": math.log(TYPES)},
        log="xy",
    )


def _courses(trainings: Mapping[str, Training], title: str) -> list[Panel]:
    """Draw losses and gradient norms by update."""
    return [
        Curves(
            f"{what} ({title})",
            "update",
            unit,
            {
                name: (list(range(1, len(getattr(t, field)) + 1)), getattr(t, field))
                for name, t in trainings.items()
            },
            log="y",
        )
        for what, unit, field in (("Loss", "nats per token", "losses"), ("Gradients", "norm", "norms"))
    ]


_XIONG = "Xiong et al. 2020"

EXPERIMENTS = [
    Experiment(
        "gradients-before-training",
        "Gradients of the last layer before the first update",
        "Before training, the gradients of a post-norm stack's last layer are large however deep it is.",
        f"S0 asks what happens to the gradients; {_XIONG}, section 3.3 and theorem 1",
        (55, 56),
        run=lambda size: _last_layer("post", size),
        control=lambda size: _last_layer("pre", size),
        changed="The stack is pre-norm.",
    ),
    Experiment(
        "post-norm-needs-warm-up",
        "When a warm-up is needed",
        "Without a warm-up a Transformer does not train, or ends worse.",
        f"S0 asks what happens without warm-up; {_XIONG}, section 3.1",
        (56,),
        run=lambda size: _needs("post", size),
        control=lambda size: _needs("pre", size),
        changed="The stack is pre-norm.",
        expected=("holds with conditions", "is wrong"),
    ),
    Experiment(
        "warm-up-and-optimizer",
        "Whether a warm-up is specific to Adam",
        "A warm-up is specific to Adam.",
        f"S0, warm-up strategy, asks; {_XIONG}, section 3.1; Liu et al. 2020, section 3",
        (56,),
        run=lambda size: _specific(size, highest=True),
        control=lambda size: _specific(size, highest=False),
        changed="SGD's highest rate is left out.",
        expected=("is wrong", "holds"),
        asked=True,
    ),
]
