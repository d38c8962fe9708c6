"""A mixture of experts against one network that takes as many operations.

Item 95 of the lectures. Things are vectors at random, each with a name that nothing tells but itself: who
is to know them has to have learned them one by one, which takes parameters. A mixture has many, and uses few
of them for each thing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from heedful.lab.costs import flops_of
from heedful.lab.drawing import Bars, Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import seeded
from heedful.lab.tiny import n_parameters
from heedful.nn.experts import MixtureOfExperts, TopKGate
from heedful.nn.feedforward import FeedForward

# Networks of equal operations

D, NAMES = 16, 16
N_EXPERTS, K, HIDDEN = 16, 2, 8
WIDER = K * HIDDEN + N_EXPERTS // 2
"""Hidden units of one network, of 4 d operations each: those of K experts, and what the gate takes, 2 d n."""

ONE, MANY = "one network", f"{N_EXPERTS} experts, {K} of them used"


def networks() -> dict[str, nn.Module]:
    """Channel mixers, by name."""
    with seeded(0):
        gate = TopKGate(D, N_EXPERTS, K)
        return {
            ONE: FeedForward(D, WIDER),
            MANY: MixtureOfExperts(gate, [FeedForward(D, HIDDEN) for _ in range(N_EXPERTS)]),
        }


@torch.no_grad()
def operations(network: nn.Module) -> float:
    """FLOPs for one thing."""
    return flops_of(lambda: network(torch.zeros(10, D))) / 10


# Training

RATE = 0.01
THINGS, UPDATES = {"short": 512, "long": 1024}, {"short": 300, "long": 600}
FEW = 16


@dataclass(frozen=True)
class Learned:
    """What a training came to.

    Args:
        losses: in nats a thing, update by update.
        operations: for one thing.
        parameters: of the mixer.
    """

    losses: Sequence[float]
    operations: float
    parameters: int


def learned(network: nn.Module, things: int, updates: int) -> Learned:
    """Train a mixer, with its residual connection and an output layer, on all things at each update."""
    with seeded(1):
        x, names, out = torch.randn(things, D), torch.randint(NAMES, (things,)), nn.Linear(D, NAMES)
    optimizer = torch.optim.Adam([*network.parameters(), *out.parameters()], RATE, fused=True)
    losses = []
    for _ in range(updates):
        loss = functional.cross_entropy(out(x + network(x)), names)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Learned(losses, operations(network), n_parameters(network))


# The experiment

LOWER = 0.05
"""So many nats less are a lower loss."""


def _lower(size: Size, few: bool) -> Outcome:
    """The losses of a mixture and of one network, on many things or on few."""
    things = FEW if few else THINGS[size]
    found = {name: learned(network, things, UPDATES[size]) for name, network in networks().items()}
    lower = found[MANY].losses[-1] < found[ONE].losses[-1] - LOWER
    return Outcome(
        "holds with conditions" if lower else "is wrong",
        "With as many operations for each thing, a mixture of experts comes to a lower loss where there is "
        "more to know than one network has room for: its parameters grow with the experts, its operations "
        "with those that are used. Where one network can hold all there is, experts add nothing. (That "
        "perplexity fell and ROUGE rose with 128 and 256 experts was measured on the paper's texts.)",
        [
            *(Measured(f"loss at the end, {name}", found[name].losses[-1], "nats") for name in (MANY, ONE)),
            *(
                Measured(
                    f"operations for a thing, {name}", each.operations, "FLOPs", expected=4.0 * D * WIDER
                )
                for name, each in found.items()
            ),
            *(Measured(f"parameters, {name}", each.parameters) for name, each in found.items()),
            Measured("things to learn", things),
        ],
        [
            {
                "network": name,
                "loss": each.losses[-1],
                "operations": each.operations,
                "parameters": each.parameters,
            }
            for name, each in found.items()
        ],
        [
            Curves(
                f"{things} things to learn: loss",
                "update",
                "nats",
                {name: (range(1, UPDATES[size] + 1), each.losses) for name, each in found.items()},
                limits=(0, None),
            ),
            Bars(
                "Parameters, at equal operations",
                "",
                "",
                {name: each.parameters for name, each in found.items()},
            ),
        ],
    )


EXPERIMENTS = [
    Experiment(
        "experts-at-equal-operations",
        "Experts beside one network of as many operations",
        "A layer of many experts, of which each token uses a few, lowers the perplexity.",
        "S3, table of summarisation systems; Liu et al. 2018; Shazeer et al. 2017, section 5",
        (95,),
        run=partial(_lower, few=False),
        control=partial(_lower, few=True),
        changed="There are few things to learn.",
        expected=("holds with conditions", "is wrong"),
    ),
]
