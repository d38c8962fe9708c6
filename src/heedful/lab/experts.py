"""A mixture of experts against a single network with as many operations, by perplexity on new text.

Item 95 of the lectures. In the language of the texts, every pair of symbols has a likely successor, drawn
once and fixed. To predict the texts, a model must learn these successors one by one, which takes parameters.
A mixture has many parameters and uses few of them for each token.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.lab.costs import flops_of
from heedful.lab.drawing import Bars, Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import generator_from, seeded
from heedful.lab.tiny import Training, n_parameters, train
from heedful.models.encoder_decoder import token_head
from heedful.models.language_model import LanguageModel
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.experts import MixtureOfExperts, NoisyTopKGate
from heedful.nn.feedforward import FeedForward
from heedful.nn.mixers import Convolution
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Added, NoPositions
from heedful.nn.residual import PreNorm
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# A language

FAVOURED = 0.8
"""Probability mass of the likely successor; the rest is uniform over all symbols."""
LENGTH, BATCH, TESTED = 32, 32, 128


def text(symbols: int, n: int, generator: torch.Generator) -> Batch:
    """Draw ``n`` sequences of the language with this many symbols; their first two tokens are uniform."""
    favourites = torch.randint(symbols, (symbols, symbols), generator=generator_from(7))
    rows = torch.randint(symbols, (n, LENGTH + 1), generator=generator)
    favoured = torch.rand(n, LENGTH + 1, generator=generator) < FAVOURED
    for t in range(2, LENGTH + 1):
        likely = favourites[rows[:, t - 2], rows[:, t - 1]]
        rows[:, t] = torch.where(favoured[:, t], likely, rows[:, t])
    return Batch.windows(rows.numpy())


def least_perplexity(symbols: int) -> float:
    """Return the perplexity of a model that knows every successor; the first target has none."""
    other = (1 - FAVOURED) / symbols
    best = FAVOURED + other
    known = -best * math.log(best) - (symbols - 1) * other * math.log(other)
    return math.exp((math.log(symbols) + (LENGTH - 1) * known) / LENGTH)


# Networks of equal operations

D, N_EXPERTS, K, HIDDEN = 16, 16, 2, 8
WIDER = K * HIDDEN + N_EXPERTS
"""Hidden units of the single network, at 4 d operations each: those of K experts, W_g and W_noise."""

ONE, MANY = "one network", f"{N_EXPERTS} experts, {K} of them used"


def networks() -> dict[str, nn.Module]:
    """Build channel mixers by name; the experts have the noisy gate of Shazeer et al. 2017, both terms."""
    with seeded(0):
        gate = NoisyTopKGate(D, N_EXPERTS, K)
        return {
            ONE: FeedForward(D, WIDER),
            MANY: MixtureOfExperts(gate, [FeedForward(D, HIDDEN) for _ in range(N_EXPERTS)]),
        }


@seeded()
@torch.no_grad()
def operations(network: nn.Module) -> float:
    """Count the FLOPs for one token in training, noise included."""
    return flops_of(lambda: network.train()(torch.zeros(10, D))) / 10


@seeded(1)
def model_of(network: nn.Module, symbols: int) -> LanguageModel:
    """Build a model in which each token sees itself and its predecessor, and the network sees the pair."""
    pair = Convolution(D, 2, activation=nn.Identity(), causal=True)
    block = EncoderBlock(PreNorm(pair, LayerNorm(D)), PreNorm(network, LayerNorm(D)))
    table = nn.Parameter(torch.randn(symbols, D))
    embedding = TokenEmbedding(table, Added(NoPositions(D)))
    return LanguageModel(embedding, EncoderStack([block], LayerNorm(D)), token_head(D, symbols, None))


# Training

RATE = 0.01
SYMBOLS, UPDATES = {"short": 24, "long": 32}, {"short": 300, "long": 1500}
FEW = 5


@dataclass(frozen=True)
class Learned:
    """Results of a training run.

    Args:
        training: losses by update, load-balancing loss included.
        perplexity: perplexity on new text.
        busiest: tokens of new text routed to the busiest expert, divided by the mean; 1 without experts.
        operations: FLOPs for one token.
        parameters: parameters of the network.
    """

    training: Training
    perplexity: float
    busiest: float
    operations: float
    parameters: int


def learned(network: nn.Module, symbols: int, updates: int) -> Learned:
    """Train a model with the network on freshly drawn text, and evaluate it on new text."""
    model, generator = model_of(network, symbols), generator_from(1)
    tested = text(symbols, TESTED, generator_from(2))
    with seeded(3):  # the gate's noise
        training = train(
            model, NextToken(), _texts(symbols, updates, generator), AdamConfig(), Constant(RATE, 20)
        )
    step = ModelWithLoss(model, NextToken())
    with torch.no_grad():
        _, terms = step(tested, step.counts(tested))
    means = {term.name: term.sum.item() / term.count for term in terms}
    return Learned(
        training,
        math.exp(means["nll"]),
        means.get("max_load", 1.0),
        operations(network),
        n_parameters(network),
    )


def _texts(symbols: int, updates: int, generator: torch.Generator) -> Iterator[Batch]:
    for _ in range(updates):
        yield text(symbols, BATCH, generator)


# The experiment

LOWER = 0.95
"""Largest ratio of two perplexities at which the first counts as lower."""


def _lower(size: Size, few: bool) -> Outcome:
    """Compare the perplexity of a mixture and of a single network, with many or few successors to learn."""
    symbols = FEW if few else SYMBOLS[size]
    found = {name: learned(network, symbols, UPDATES[size]) for name, network in networks().items()}
    lower = found[MANY].perplexity < LOWER * found[ONE].perplexity
    return Outcome(
        "holds with conditions" if lower else "is wrong",
        "With as many operations per token, a mixture of experts has a lower perplexity on new text if there "
        "is more to learn than a single network can store: its parameters grow with the number of experts, "
        "its operations with the number used per token. If a single network can store everything, experts "
        "add nothing. (The paper measured on its own texts that perplexity falls and ROUGE rises with 128 "
        "and 256 experts.)",
        [
            *(Measured(f"perplexity of new text, {name}", found[name].perplexity) for name in (MANY, ONE)),
            Measured("perplexity, if all favourites are known", least_perplexity(symbols)),
            Measured("tokens of the busiest expert, over the mean", found[MANY].busiest),
            *(
                Measured(
                    f"operations for a token, {name}", each.operations, "FLOPs", expected=4.0 * D * WIDER
                )
                for name, each in found.items()
            ),
            *(Measured(f"parameters, {name}", each.parameters) for name, each in found.items()),
            Measured("favourites to learn", symbols**2),
        ],
        [
            {
                "network": name,
                "perplexity": each.perplexity,
                "operations": each.operations,
                "parameters": each.parameters,
            }
            for name, each in found.items()
        ],
        [
            Curves(
                f"Training loss, {symbols**2} successors to learn",
                "update",
                "nats per token, incl. load balancing",
                {name: each.training.curve for name, each in found.items()},
            ),
            Bars(
                "Perplexity on new text",
                "",
                "",
                {name: each.perplexity for name, each in found.items()},
                levels={"all known": least_perplexity(symbols)},
            ),
            Bars(
                "Parameters at equal operations",
                "",
                "",
                {name: each.parameters for name, each in found.items()},
            ),
        ],
    )


EXPERIMENTS = [
    Experiment(
        "experts-at-equal-operations",
        "Experts compared with one network of as many operations",
        "A layer of many experts, of which each token uses a few, lowers the perplexity.",
        "S3, table of summarisation systems; Liu et al. 2018; Shazeer et al. 2017, section 5",
        (95,),
        run=partial(_lower, few=False),
        control=partial(_lower, few=True),
        changed="There are only 25 successors to learn.",
        expected=("holds with conditions", "is wrong"),
    ),
]
