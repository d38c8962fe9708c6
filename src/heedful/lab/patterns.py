"""Attention patterns produced by training: a census of a small encoder's heads before and after it.

Item 74 of the lectures. The encoder learns to fill gaps in sequences in which a symbol leaves few choices for
its neighbours, so that both neighbours of a gap help to predict it. The census is that of `heedful explain`
(`heedful.explain.patterns`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.explain.patterns import Census
from heedful.lab.drawing import Curves, Matrix, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import generator_from, seeded
from heedful.lab.tiny import attention_weights, census_of, train
from heedful.models import encoder
from heedful.models.encoder import EncoderConfig
from heedful.models.encoder_decoder import token_head
from heedful.nn.layout import Layout, Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.text.specials import SPECIALS
from heedful.training.optimizers import MuonConfig
from heedful.training.schedules import Constant

# Sequences

SYMBOLS, NEIGHBOURS, LENGTH = "abcdefghijkl", 2, 12
N = LENGTH + 2  # with the special tokens at both ends
CLASSIFY, SEPARATE, GAP = range(len(SYMBOLS), len(SYMBOLS) + 3)  # ids
GAPS = 0.3  # share of the symbols


def followers() -> Int[Tensor, "symbols followers"]:
    """Draw the possible successors of each symbol; every symbol succeeds equally many."""
    order = torch.randperm(len(SYMBOLS), generator=generator_from(7))
    return torch.stack([order.roll(k) for k in range(NEIGHBOURS)], 1)


def drawn(n: int, chained: bool, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences in which each symbol is one of the `followers` of the last, or any symbol."""
    rows = torch.randint(len(SYMBOLS), (n, LENGTH), generator=generator)
    if chained:
        table = followers()
        for t in range(1, LENGTH):
            rows[:, t] = table[rows[:, t - 1], torch.randint(NEIGHBOURS, (n,), generator=generator)]
    return rows


def inputs_of(rows: Int[Tensor, "n length"]) -> Tokens:
    """Add a token before each sequence and one after it."""
    before, after = (torch.full((len(rows), 1), id_) for id_ in (CLASSIFY, SEPARATE))
    return Tokens(torch.cat([before, rows, after], 1).flatten(), Layout.of([N] * len(rows)))


def batch_of(rows: Int[Tensor, "n length"], generator: torch.Generator) -> Batch:
    """Replace some symbols, at least one in the batch, by gaps, and use them as targets."""
    gaps = torch.rand(rows.shape, generator=generator) < GAPS
    gaps[0, 0] |= not gaps.any()
    places = torch.arange(len(rows))[:, None] * N + 1 + torch.arange(LENGTH)
    return Batch(inputs_of(rows.masked_fill(gaps, GAP)), rows[gaps], None, (), places[gaps])


# Models and their attention

N_HEADS, WIDTH = 2, 32
BATCH, RATE = 32, 0.02
UPDATES, SEEDS = {"short": 200, "long": 400}, {"short": 2, "long": 6}
TESTED = 48
SEEN = 4  # number of offsets shown, on both sides


def model_of(seed: int) -> nn.Module:
    """Build an encoder of one layer, with a head that predicts symbols."""
    config = EncoderConfig(
        d_model=WIDTH, d_ff=2 * WIDTH, n_heads=N_HEADS, n_layers=1, norm_placement="pre", max_length=N,
        dropout=0.0, attention_dropout=0.0, segments=0, pooler=False,
    )  # fmt: skip
    with seeded(seed):
        model = encoder.build(config, GAP + 1)
        model.heads["token"] = token_head(WIDTH, len(SYMBOLS), None)
    return model


@dataclass(frozen=True)
class Observed:
    """Attention of the heads of a model.

    Args:
        seen: weights, ``[L, n, H, T, T]``.
        census: census of the heads.
    """

    seen: Float[Tensor, "L n H T T"]
    census: Census

    @property
    def patterns(self) -> list[str]:
        """Names of the patterns that heads follow; "none" and "broad" (uniform) do not count."""
        return [head.pattern for head in self.census.heads if head.pattern not in {"none", "broad"}]


def observe(model: nn.Module, rows: Int[Tensor, "n length"]) -> Observed:
    """Capture the attention of a model for sequences without gaps."""
    seen = attention_weights(model, inputs_of(rows))
    return Observed(seen, census_of(map(_shown, rows.tolist()), "self", seen))


def _shown(row: Sequence[int]) -> tuple[str, ...]:
    before, after = SPECIALS.names[SPECIALS.classify], SPECIALS.names[SPECIALS.separate]
    return (before, *(SYMBOLS[symbol] for symbol in row), after)


@dataclass(frozen=True)
class Learned:
    """A model before and after training.

    Args:
        before, after: attention of its heads.
        loss: final loss, in nats per gap.
    """

    before: Observed
    after: Observed
    loss: float


def learned(chained: bool, updates: int, seed: int) -> Learned:
    """Train a model, and capture its attention before and after."""
    model, generator = model_of(seed).eval(), generator_from(50 + seed)
    rows = tested(chained)
    before = observe(model, rows)
    batches = (batch_of(drawn(BATCH, chained, generator), generator) for _ in range(updates))
    training = train(model, NextToken(), batches, MuonConfig(), Constant(RATE, warmup=20))
    return Learned(before, observe(model, rows), training.end)


def tested(chained: bool) -> Int[Tensor, "n length"]:
    """Draw the sequences for which attention is captured."""
    return drawn(TESTED, chained, generator_from(1))


# The experiment


def _patterned(size: Size, chained: bool) -> Outcome:
    """Count patterns of heads, untrained and trained, over several initialisations."""
    models = [learned(chained, UPDATES[size], seed) for seed in range(SEEDS[size])]
    before, after = [each.before.patterns for each in models], [each.after.patterns for each in models]
    emerged = all(after) and not any(before)
    counts = Counter(name for each in after for name in each)
    n_heads = N_HEADS * len(models)
    first = models[0]
    return Outcome(
        "holds with conditions" if emerged else "is wrong",
        "Before training, the attention of every head is nearly uniform. Heads of the trained encoder have "
        "patterns, the previous and the next token, if these help to predict a gap. The patterns depend on "
        "the data: if neighbours are uninformative, heads have none. Attention to the same word or to the "
        "whole sentence, which heads of BERT also show, is of no use in these sequences.",
        [
            Measured("heads with a pattern, trained", 100 * sum(counts.values()) / n_heads, "%"),
            Measured("heads with a pattern, untrained", 100 * sum(map(len, before)) / n_heads, "%"),
            *(
                Measured(f"heads that look so: {name}", counts[name])
                for name in ("next token", "previous token")
            ),
            Measured("models with a pattern", sum(map(bool, after))),
            Measured("models", len(models)),
            Measured("loss at the end", fmean([each.loss for each in models]), "nats a gap"),
        ],
        [
            {
                "first weights": seed,
                "head": f"{head.head + 1}",
                "pattern, untrained": of.before.census.heads[i].pattern,
                "pattern, trained": head.pattern,
                "score": "" if head.score is None else head.score,
            }
            for seed, of in enumerate(models, 1)
            for i, head in enumerate(of.after.census.heads)
        ],
        [_offsets(first), _sequence(first, tested(chained)[0].tolist())],
    )


def _offsets(of: Learned) -> Curves:
    offsets = range(-SEEN, SEEN + 1)
    lines = {f"head {i + 1}": own for i, own in enumerate(by_offset(of.after.seen).tolist())}
    return Curves(
        "Attention by offset after training",
        "offset in positions (0: the symbol itself)",
        "mean weight",
        over(offsets, {**lines, "all heads, before": by_offset(of.before.seen).mean(0).tolist()}),
        limits=(0.0, 1.04),
        inches=(5.0, 3.8),
    )


def by_offset(seen: Float[Tensor, "L n H T T"]) -> Float[Tensor, "heads offsets"]:
    """Return the mean weight of each head for the symbol `SEEN` positions before the query, …, and after.

    The mean is over queries with enough symbols on both sides.
    """
    queries = torch.arange(1 + SEEN, N - 1 - SEEN)
    offsets = [seen[..., queries, queries + k].mean((1, 3)).flatten() for k in range(-SEEN, SEEN + 1)]
    return torch.stack(offsets, -1)


def _sequence(of: Learned, row: Sequence[int]) -> Matrix:
    """Draw the sharpest head for one sequence."""
    head = int(by_offset(of.after.seen).amax(1).argmax())
    tokens = _shown(row)
    return Matrix(
        f"One sequence: head {head + 1}",
        "key",
        "query",
        of.after.seen[0, 0, head].tolist(),
        (0.0, 1.0),
        tokens,
        tokens,
        inches=(4.8, 4.0),
    )


EXPERIMENTS = [
    Experiment(
        "patterns-of-heads",
        "Attention patterns of an encoder before and after training",
        "Interesting patterns emerge in the self-attention of a trained encoder: heads that attend to the "
        "next word, to the previous word, to the same word, or to the whole sentence.",
        "S1, visualizing attention patterns in Transformers, on Vig, with figures 11 and 12; Clark et al. "
        "2019, section 3",
        (74,),
        run=partial(_patterned, chained=True),
        control=partial(_patterned, chained=False),
        changed="Symbols are drawn independently, so neighbours do not help to predict a gap.",
        expected=("holds with conditions", "is wrong"),
    ),
]
