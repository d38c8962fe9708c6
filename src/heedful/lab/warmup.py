"""What a warm-up is for: gradients before the first update, and trainings with and without.

Items 55 (the schedule) and 56 (the open questions) of the lectures.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch

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
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

Placement = Literal["post", "pre"]

PLACEMENTS: tuple[Placement, ...] = ("post", "pre")

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


_XIONG = "Xiong et al. 2020"

EXPERIMENTS = [
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
