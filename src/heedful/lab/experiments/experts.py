"""Experts and compressed memories: what many parameters add, and two interpretations of fewer keys.

Items 94 (memory-compressed attention) and 95 (mixtures of experts) of the lectures.

A mixture of experts is compared with a single network of as many operations. In the language of the texts,
every pair of symbols has a likely successor, drawn once and fixed. To predict the texts, a model must learn
these successors one by one, which takes parameters. A mixture has many parameters and uses few of them for
each token.

Memory-compressed attention differs between the paper and the code released with it. With X the tokens, c =
3 and one slot for each block of c tokens:

    paper      K_j = C_1 k_{c(j-1)} + … + C_c k_{cj-1}    with k_t = W_K x_t, head by head; V with filters D
    released   K_j = W_K y_j, V_j = W_V y_j               with y_j = F_1 x_{c(j-1)} + … + F_c x_{cj-1}

The filters C and D have d_k x d_k parameters per head, F has d_model x d_model.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.lab.drawing import Bars, Curves, Matrix
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import (
    Training,
    flops_of,
    largest_difference,
    n_parameters,
    relative_difference,
    train,
)
from heedful.models.language_model import LanguageModel
from heedful.models.stacks import token_head
from heedful.nn.attention.compressed import Compression, MemoryCompressedAttention
from heedful.nn.attention.heads import merge_heads, split_heads
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.experts import MixtureOfExperts, NoisyTopKGate
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.mixers import Convolution
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Added, NoPositions
from heedful.nn.residual import PreNorm
from heedful.nn.taps import recording
from heedful.objectives.cross_entropy import NextToken
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# A language

FAVOURED = 0.8
"""Probability mass of the likely successor; the rest is uniform over all symbols."""
LENGTH, BATCH, TESTED = 32, 32, 128


def draw_text(symbols: int, n: int, generator: torch.Generator) -> Batch:
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
    p_other = (1 - FAVOURED) / symbols
    p_likely = FAVOURED + p_other
    entropy = -p_likely * math.log(p_likely) - (symbols - 1) * p_other * math.log(p_other)
    return math.exp((math.log(symbols) + (LENGTH - 1) * entropy) / LENGTH)


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


def train_model(network: nn.Module, symbols: int, updates: int) -> Learned:
    """Train a model with the network on freshly drawn text, and evaluate it on new text."""
    model, generator = model_of(network, symbols), generator_from(1)
    tested = draw_text(symbols, TESTED, generator_from(2))
    batches = (draw_text(symbols, BATCH, generator) for _ in range(updates))
    with seeded(3):  # the gate's noise
        training = train(model, NextToken(), batches, AdamConfig(), Constant(RATE, 20))
    step = ModelWithLoss(model, NextToken())
    with torch.no_grad():
        _, terms = step(tested, step.counts(tested))
    means = {term.name: term.sum.item() / term.count for term in terms}
    perplexity, busiest = math.exp(means["nll"]), means.get("max_load", 1.0)
    return Learned(training, perplexity, busiest, operations(network), n_parameters(network))


@measures("experts-at-equal-operations", few=(False, True))
def compare_perplexity_at_equal_operations(size: Size, few: bool) -> Series:
    """Compare the perplexity of a mixture and of a single network, with many or few successors to learn."""
    symbols = FEW if few else SYMBOLS[size]
    runs = {name: train_model(network, symbols, UPDATES[size]) for name, network in networks().items()}
    perplexity, flops, parameters = (
        {name: getattr(run, field) for name, run in runs.items()}
        for field in ("perplexity", "operations", "parameters")
    )
    least = least_perplexity(symbols)
    return Series(
        {
            "many": Measured(f"perplexity of new text, {MANY}", perplexity[MANY]),
            "one": Measured(f"perplexity of new text, {ONE}", perplexity[ONE]),
            "known": Measured("perplexity, if all favourites are known", least),
            "busiest": Measured("tokens of the busiest expert, over the mean", runs[MANY].busiest),
            **measured_each("operations for a token, {}", flops, "FLOPs", 4.0 * D * WIDER),
            **measured_each("parameters, {}", parameters),
            "favourites": Measured("favourites to learn", symbols**2),
        },
        table_of(
            {
                "network": runs,
                "perplexity": perplexity.values(),
                "operations": flops.values(),
                "parameters": parameters.values(),
            }
        ),
        [
            Curves(
                f"Training loss, {symbols**2} successors to learn",
                "update",
                "nats per token, incl. load balancing",
                {name: run.training.curve for name, run in runs.items()},
            ),
            Bars("Perplexity on new text", "", "", perplexity, levels={"all known": least}),
            Bars("Parameters at equal operations", "", "", parameters),
        ],
    )


# Memory-compressed attention

MEMORY_WIDTH, HEADS, FACTOR = 24, 4, 3
LENGTHS: dict[Size, int] = {"short": 100, "long": 1000}
DRAWN = 13
ModelInput = Literal["paper", "released"]
READINGS: tuple[ModelInput, ...] = ("paper", "released")


@cache
def memory_layers() -> tuple[MemoryCompressedAttention, Compression]:
    """Build heedful's layer, which follows the paper, and the token filters of the released code."""
    with seeded():
        layer = MemoryCompressedAttention(MEMORY_WIDTH, HEADS, factor=FACTOR).double()
        return layer, Compression(1, MEMORY_WIDTH, FACTOR, bias=False).double()


def visible_slots(n: int, *, early: bool) -> Bool[Tensor, "n m"]:
    """Return which slots each of ``n`` tokens sees: complete blocks; with ``early``, also its own block."""
    ends = FACTOR * torch.arange(1 + n // FACTOR)
    if early:
        ends = (ends - FACTOR + 1).clamp_min(0)
    return ends <= torch.arange(n)[:, None]


@torch.no_grad()
def compressed_attention(
    x: Float[Tensor, "n d"], reading: ModelInput, *, early: bool = False
) -> Float[Tensor, "n d"]:
    """Compute memory-compressed attention for one sequence, step by step.

    Args:
        x: the tokens.
        reading: interpretation of keys and values.
        early: whether a slot is visible from its first token on, instead of after its last.
    """
    layer, filters = memory_layers()
    queries, keys, values = (split_heads(p, HEADS) for p in layer.qkv(x[None]).split(layer.sizes, -1))
    if reading == "paper":
        keys = torch.cat([keys[:, :, :1], layer.compress_keys(keys)], 2)
        values = torch.cat([values[:, :, :1], layer.compress_values(values)], 2)
    else:
        slots = torch.cat([x[None, :1], filters(x[None, None])[:, 0]], 1)
        _, keys, values = (split_heads(p, HEADS) for p in layer.qkv(slots).split(layer.sizes, -1))
    scores = queries @ keys.mT / layer.d_k**0.5
    weights = scores.masked_fill(~visible_slots(len(x), early=early), -torch.inf).softmax(-1)
    return layer.out(merge_heads(weights @ values))[0]


def change_by_later_tokens(n: int, reading: ModelInput, *, early: bool) -> float:
    """Return the greatest change of an output if later tokens change, over all positions."""
    with seeded(1):
        x, other_x = torch.randn(2, n, MEMORY_WIDTH, dtype=torch.float64)
    output, largest = compressed_attention(x, reading, early=early), 0.0
    for position in range(1, n, max(1, n // 50)):
        changed = compressed_attention(torch.cat([x[:position], other_x[position:]]), reading, early=early)
        largest = max(largest, largest_difference(changed[:position], output[:position]))
    return largest


def residuals_of_fits() -> dict[str, float]:
    """Return the relative residuals of fitting the maps of one interpretation by those of the other.

    A slot is a linear map of its tokens. The filters F that reproduce the paper's keys exactly are
    W_K^-1 C W_K, since the W_K of all heads form a square matrix; no F reproduces keys and values at once.
    The paper's filters of a head only receive the projection of a token by the W_K of that head.
    """
    layer, filters = memory_layers()
    _, w_k, w_v = layer.qkv.weight.detach().split(layer.sizes)
    own_k, own_v = _by_place(layer.compress_keys), _by_place(layer.compress_values)
    paper_k = torch.stack([torch.block_diag(*own_k[:, place]) @ w_k for place in range(FACTOR)])
    paper_v = torch.stack([torch.block_diag(*own_v[:, place]) @ w_v for place in range(FACTOR)])
    released = w_k @ _by_place(filters)[0]
    projections, target = torch.cat([w_k, w_v]), torch.cat([paper_k, paper_v], 1)
    return {
        "paper's keys by released filters": _residual_of_fit(w_k, paper_k),
        "paper's keys and values by released filters": _residual_of_fit(projections, target),
        "released keys by the paper's filters": _residual_of_fit_by_head(w_k, released),
    }


def _by_place(compression: Compression) -> Float[Tensor, "h c d d"]:
    """Return each filter as a matrix that multiplies a column vector."""
    return compression.weight.detach().unflatten(1, (FACTOR, -1)).mT


def _residual_of_fit(matrix: Tensor, target: Float[Tensor, "c r d"]) -> float:
    """Return the relative residual of the best F with ``matrix @ F = target``."""
    wide = torch.cat([*target], -1)
    solution = torch.linalg.lstsq(matrix, wide).solution
    return relative_difference(matrix @ solution, wide)


def _residual_of_fit_by_head(w_k: Tensor, target: Float[Tensor, "c r d"]) -> float:
    """Return the relative residual of the best filters C per head with ``C @ W_K of the head = target``."""
    residual = torch.tensor(0.0, dtype=torch.float64)
    d_k = MEMORY_WIDTH // HEADS
    for head, head_target in zip(w_k.split(d_k), target.split(d_k, 1), strict=True):
        rows = head_target.flatten(0, 1).mT
        residual += (head.mT @ torch.linalg.lstsq(head.mT, rows).solution - rows).square().sum()
    return (residual.sqrt() / target.norm()).item()


def difference_from_layer(n: int) -> float:
    """Return the greatest difference between the step-by-step paper interpretation and heedful's layer."""
    with seeded(1):
        x = torch.randn(n, MEMORY_WIDTH, dtype=torch.float64)
    with torch.no_grad():
        layer, _ = memory_layers()
        return largest_difference(compressed_attention(x, "paper"), layer(x, Layout.of([n])))


@torch.no_grad()
def slots_of_layer(n: int) -> int:
    """Count the slots over which heedful's layer spreads the weights of ``n`` tokens."""
    layer, _ = memory_layers()
    with recording(layer, ["weights"]) as activations:
        layer(torch.ones(n, MEMORY_WIDTH, dtype=torch.float64), Layout.of([n]))
    return activations["weights"][0].shape[-1]


@measures("compressed-memory", early=(False, True))
def compare_readings_of_compressed_memory(size: Size, *, early: bool) -> Series:
    """Count slots, and measure how much outputs depend on later tokens, in both interpretations."""
    n = LENGTHS[size]
    leaks = {reading: change_by_later_tokens(n, reading, early=early) for reading in READINGS}
    layer, filters = memory_layers()
    n_paper = n_parameters(layer.compress_keys, layer.compress_values)
    sizes = {"paper": n_paper, "released": filters.weight.numel()}
    residuals = {name: 100 * residual for name, residual in residuals_of_fits().items()}
    slots, a_third = slots_of_layer(n), 1 + n // FACTOR
    visible = visible_slots(DRAWN, early=early).double().tolist()
    return Series(
        {
            "slots": Measured(f"slots that {n:,} tokens attend to", slots, "", a_third),
            **measured_each("greatest change of an output by later tokens, {}", leaks, "", 0.0),
            "apart": Measured(
                "the paper's reading and heedful's layer differ by", difference_from_layer(n), "", 0.0
            ),
            **measured_each("numbers in the filters, {}", sizes),
            **measured_each("left of the {}", residuals, "%"),
            "a_third": a_third,
            "leak": max(leaks.values()),
        },
        table_of({"reading": sizes, "numbers in the filters": sizes.values()}),
        [
            Matrix("Slots that each token sees", "slot", "token", visible, limits=(0.0, 1.0)),
            Bars("Parameters of the filters", "interpretation", "", {**sizes}),
        ],
    )
