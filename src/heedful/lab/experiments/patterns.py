"""Attention patterns produced by training: heads of a small encoder, and of a small causal model.

Items 74 and 75 of the lectures. The encoder learns to fill gaps in sequences in which a symbol leaves few
choices for its neighbours. The causal model learns to predict symbols, each of which depends on the symbol
a fixed number of positions before the last one. The census of heads is that of `heedful explain`
(`heedful.explain.patterns.census`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.explain.patterns.census import Census, recurrence
from heedful.lab.drawing import Curves, Matrix, curves_over
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures
from heedful.lab.seeds import generator_from, seeded
from heedful.lab.tiny import attention_weights, census_of, symbol_model, train
from heedful.models import encoder
from heedful.models.base import Model
from heedful.models.encoder import Encoder, EncoderConfig
from heedful.models.language_model import LanguageModel
from heedful.models.mixers import AttentionConfig
from heedful.models.sections import FeedForwardConfig
from heedful.models.stacks import LayerConfig, token_head
from heedful.nn.layout import Layout, Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.text.specials import SPECIALS
from heedful.training.optimizers import AdamConfig, MuonConfig, OptimizerConfig
from heedful.training.schedules import Constant

# Attention of heads

PREVIOUS = "previous token"


@dataclass(frozen=True)
class Observed:
    """Attention of the heads of a model.

    Args:
        weights: weights, ``[L, n, H, T, T]``.
        census: census of the heads.
    """

    weights: Float[Tensor, "L n H T T"]
    census: Census

    @property
    def patterns(self) -> list[str]:
        """Names of the patterns that heads follow; "none" and "broad" (uniform) do not count."""
        return [head.pattern for head in self.census.heads if head.pattern not in {"none", "broad"}]

    @property
    def scores(self) -> list[float]:
        """Previous-token score of each head; 0 is chance, 1 is the maximum."""
        return [head.matches[PREVIOUS].score for head in self.census.heads]

    @property
    def share(self) -> float:
        """Share of heads classified as previous-token heads."""
        links = recurrence(self.census)
        assert links is not None
        return links.previous


@dataclass(frozen=True)
class Learned:
    """A model before and after training.

    Args:
        untrained, trained: attention of its heads.
        loss: final loss, in nats per target.
    """

    untrained: Observed
    trained: Observed
    loss: float


def _train_and_observe(
    model: Model,
    observe: Callable[[], Observed],
    batches: Iterable[Batch],
    optimizer: OptimizerConfig,
    rate: float,
) -> Learned:
    """Train a model, and observe its heads before and after."""
    untrained = observe()
    training = train(model, NextToken(), batches, optimizer, Constant(rate, warmup=20))
    return Learned(untrained, observe(), training.end)


def mean_weights_by_offset(
    weights: Float[Tensor, "L n H T T"], queries: Int[Tensor, " q"], offsets: Sequence[int]
) -> Float[Tensor, "heads offsets"]:
    """Return the mean weight of each head at each offset from these queries, layer by layer."""
    return torch.stack([weights[..., queries, queries + k].mean((1, 3)).flatten() for k in offsets], -1)


def _head_panels(
    run: Learned,
    by_offset: Callable[[Tensor], Tensor],
    offsets: tuple[str, Sequence[int]],
    name: Callable[[int], str],
    tokens: Sequence[str],
    inches: tuple[float, float],
) -> tuple[Curves, Matrix]:
    """Draw the mean weights of all heads by offset, and the sharpest head for the first sequence.

    Args:
        run: a model before and after training.
        by_offset: computes the mean weights.
        offsets: label and values of the offsets.
        name: returns the name of a head.
        tokens: tokens of the sequence.
        inches: size of its panel.
    """
    means, (x, xs) = by_offset(run.trained.weights), offsets
    lines = {name(head): offset_weights for head, offset_weights in enumerate(means.tolist())}
    lines["all heads, before"] = by_offset(run.untrained.weights).mean(0).tolist()
    head = int(means.amax(1).argmax())
    weights = run.trained.weights[:, 0].flatten(0, 1)[head].tolist()
    title, limits, y = "Attention by offset after training", (0.0, 1.04), "mean weight"
    return (
        Curves(title, x, y, curves_over(xs, lines), limits=limits, inches=(5.0, 3.8)),
        Matrix(
            f"One sequence: {name(head)}", "key", "query", weights, (0.0, 1.0), tokens, tokens, inches=inches
        ),
    )


# Gaps in sequences

SYMBOLS, NEIGHBOURS, LENGTH = "abcdefghijkl", 2, 12
N = LENGTH + 2  # with the special tokens at both ends
CLASSIFY, SEPARATE, GAP = range(len(SYMBOLS), len(SYMBOLS) + 3)  # ids
GAPS = 0.3  # share of the symbols


def draw_followers() -> Int[Tensor, "symbols followers"]:
    """Draw the possible successors of each symbol; every symbol succeeds equally many."""
    order = torch.randperm(len(SYMBOLS), generator=generator_from(7))
    return torch.stack([order.roll(k) for k in range(NEIGHBOURS)], 1)


def draw_sequences(n: int, chained: bool, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences in which each symbol is one of the `draw_followers` of the last, or any symbol."""
    rows = torch.randint(len(SYMBOLS), (n, LENGTH), generator=generator)
    if chained:
        table = draw_followers()
        for t in range(1, LENGTH):
            rows[:, t] = table[rows[:, t - 1], torch.randint(NEIGHBOURS, (n,), generator=generator)]
    return rows


def inputs_of(rows: Int[Tensor, "n length"]) -> Tokens:
    """Add a token before each sequence and one after it."""
    starts, ends = (torch.full((len(rows), 1), id_) for id_ in (CLASSIFY, SEPARATE))
    return Tokens(torch.cat([starts, rows, ends], 1).flatten(), Layout.of([N] * len(rows)))


def batch_of(rows: Int[Tensor, "n length"], generator: torch.Generator) -> Batch:
    """Replace some symbols, at least one in the batch, by gaps, and use them as targets."""
    gaps = torch.rand(rows.shape, generator=generator) < GAPS
    gaps[0, 0] |= not gaps.any()
    places = torch.arange(len(rows))[:, None] * N + 1 + torch.arange(LENGTH)
    return Batch(inputs_of(rows.masked_fill(gaps, GAP)), rows[gaps], None, (), places[gaps])


N_HEADS, WIDTH = 2, 32
BATCH, RATE = 32, 0.02
UPDATES, SEEDS = {"short": 200, "long": 400}, {"short": 2, "long": 6}
TESTED = 48
SEEN = 4  # number of offsets shown, on both sides


def model_of(seed: int) -> Encoder:
    """Build an encoder of one layer, with a head that predicts symbols."""
    config = EncoderConfig(
        d_model=WIDTH,
        n_layers=1,
        layer=LayerConfig(
            mixer=AttentionConfig(n_heads=N_HEADS, dropout=0.0),
            channels=FeedForwardConfig(d_ff=2 * WIDTH),
            norm_placement="pre",
        ),
        max_length=N,
        dropout=0.0,
        segments=0,
        pooler=False,
    )
    with seeded(seed):
        model = encoder.build(config, GAP + 1)
        model.heads["token"] = token_head(WIDTH, len(SYMBOLS), None)
    return model


def observe_heads(model: Encoder, rows: Int[Tensor, "n length"]) -> Observed:
    """Capture the attention of a model for sequences without gaps."""
    weights = attention_weights(model, inputs_of(rows))
    return Observed(weights, census_of(map(_with_special_names, rows.tolist()), "self", weights))


def _with_special_names(row: Sequence[int]) -> tuple[str, ...]:
    classify, separate = SPECIALS.names[SPECIALS.classify], SPECIALS.names[SPECIALS.separate]
    return (classify, *(SYMBOLS[symbol] for symbol in row), separate)


def train_encoder(chained: bool, updates: int, seed: int) -> Learned:
    """Train a model, and capture its attention before and after."""
    model, generator = model_of(seed).eval(), generator_from(50 + seed)
    rows = draw_test_sequences(chained)
    batches = (batch_of(draw_sequences(BATCH, chained, generator), generator) for _ in range(updates))
    return _train_and_observe(model, lambda: observe_heads(model, rows), batches, MuonConfig(), RATE)


def draw_test_sequences(chained: bool) -> Int[Tensor, "n length"]:
    """Draw the sequences for which attention is captured."""
    return draw_sequences(TESTED, chained, generator_from(1))


@measures("patterns-of-heads", chained=(True, False))
def count_patterns_of_heads(size: Size, chained: bool) -> Series:
    """Count patterns of heads, untrained and trained, over several initialisations."""
    runs = [train_encoder(chained, UPDATES[size], seed) for seed in range(SEEDS[size])]
    untrained, trained = [run.untrained.patterns for run in runs], [run.trained.patterns for run in runs]
    counts = Counter(pattern for patterns in trained for pattern in patterns)
    n_heads = N_HEADS * len(runs)
    shares = {
        "trained": 100 * sum(counts.values()) / n_heads,
        "untrained": 100 * sum(map(len, untrained)) / n_heads,
    }
    sides = {name: counts[name] for name in ("next token", "previous token")}
    return Series(
        {
            **measured_each("heads with a pattern, {}", shares, "%"),
            **measured_each("heads that look so: {}", sides),
            "n_with": Measured("models with a pattern", sum(map(bool, trained))),
            "n_models": Measured("models", len(runs)),
            "loss": Measured("loss at the end", fmean([run.loss for run in runs]), "nats a gap"),
            "n_before": sum(map(bool, untrained)),
        },
        [
            {
                "first weights": seed,
                "head": f"{head.head + 1}",
                "pattern, untrained": learned.untrained.census.heads[i].pattern,
                "pattern, trained": head.pattern,
                "score": "" if head.score is None else head.score,
            }
            for seed, learned in enumerate(runs, 1)
            for i, head in enumerate(learned.trained.census.heads)
        ],
        _head_panels(
            runs[0],
            encoder_weights_by_offset,
            ("offset in positions (0: the symbol itself)", range(-SEEN, SEEN + 1)),
            lambda head: f"head {head + 1}",
            _with_special_names(draw_test_sequences(chained)[0].tolist()),
            inches=(4.8, 4.0),
        ),
    )


def encoder_weights_by_offset(weights: Float[Tensor, "L n H T T"]) -> Float[Tensor, "heads offsets"]:
    """Return the mean weight of each head for the symbol `SEEN` positions before the query, …, and after.

    The mean is over queries with enough symbols on both sides.
    """
    return mean_weights_by_offset(weights, torch.arange(1 + SEEN, N - 1 - SEEN), range(-SEEN, SEEN + 1))


# Recurrent connections

LETTERS, N_CHOICES, READ = "abcdefgh", 2, 12
N_LAYERS, CAUSAL_RATE, CAUSAL_TESTED = 2, 1e-2, 64
CAUSAL_UPDATES = {"short": 400, "long": 400}
SEEN_BACK = 6  # number of offsets shown, from 0; queries at earlier positions are left out


def draw_choices() -> Int[Tensor, "symbols choices"]:
    """Draw the possible successors of each symbol, which are equally likely."""
    generator = generator_from(7)
    rows = [torch.randperm(len(LETTERS), generator=generator)[:N_CHOICES] for _ in LETTERS]
    return torch.stack(rows)


def draw_causal_sequences(n: int, back: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences of `READ` + 1 symbols; the first ones are uniform.

    Each symbol is one of the choices (`draw_choices`) of the symbol ``back`` positions before its left
    neighbour. With 1 that is the last but one, as in a second-order Markov chain in which the last symbol is
    uninformative.
    """
    table = draw_choices()
    rows = torch.randint(len(LETTERS), (n, READ + 1), generator=generator)
    for t in range(back + 1, READ + 1):
        choices = torch.randint(N_CHOICES, (n,), generator=generator)
        rows[:, t] = table[rows[:, t - 1 - back], choices]
    return rows


def least_loss(back: int) -> float:
    """Return the entropy in nats per symbol: uniform first symbols, then equally likely successors."""
    return (back * np.log(len(LETTERS)) + (READ - back) * np.log(N_CHOICES)) / READ


def causal_model(seed: int) -> LanguageModel:
    """Build a causal Transformer with learned positions, randomly initialised."""
    return symbol_model(len(LETTERS), READ, n_layers=N_LAYERS, n_heads=N_HEADS, seed=seed)


def causal_census(rows: Int[Tensor, "n length"], weights: Float[Tensor, "L n H T T"]) -> Census:
    """Take the census of the heads from their weights for these sequences."""
    return census_of(([LETTERS[symbol] for symbol in row[:-1]] for row in rows.tolist()), "causal", weights)


def causal_weights_by_offset(weights: Float[Tensor, "L n H T T"]) -> Float[Tensor, "heads offsets"]:
    """Return the mean weight of each head for the symbol 0, 1, … `SEEN_BACK` - 1 positions back.

    The mean is over queries with enough predecessors. The heads of the first layer come first.
    """
    return mean_weights_by_offset(
        weights, torch.arange(SEEN_BACK - 1, weights.shape[-1]), range(0, -SEEN_BACK, -1)
    )


def train_causal_model(back: int, updates: int, seed: int) -> Learned:
    """Train a model."""
    model, generator = causal_model(seed), generator_from(100 + seed)
    rows = draw_causal_sequences(CAUSAL_TESTED, back, generator_from(1))

    def observe() -> Observed:
        weights = attention_weights(model.eval(), Batch.windows(rows.numpy()).inputs)
        return Observed(weights, causal_census(rows, weights))

    batches = (Batch.windows(draw_causal_sequences(BATCH, back, generator).numpy()) for _ in range(updates))
    return _train_and_observe(model, observe, batches, AdamConfig(), CAUSAL_RATE)


@measures("emerging-links", back=(1, 5))
def count_previous_token_heads(size: Size, back: int) -> Series:
    """Count heads that attend to the previous token, untrained and trained, for several initialisations."""
    runs = [train_causal_model(back, CAUSAL_UPDATES[size], seed) for seed in range(SEEDS[size])]
    shares_trained, shares_untrained = (
        [run.trained.share for run in runs],
        [run.untrained.share for run in runs],
    )
    best = [max(run.trained.scores) for run in runs]
    best_before = max(max(run.untrained.scores) for run in runs)
    loss = fmean([run.loss for run in runs])
    row = draw_causal_sequences(CAUSAL_TESTED, back, generator_from(1))[0]
    shares = {"trained": 100 * fmean(shares_trained), "untrained": 100 * fmean(shares_untrained)}
    return Series(
        {
            **measured_each("heads that look at the token before, {}", shares, "%"),
            "mean_best": Measured("score of the best head for it, mean of models", fmean(best)),
            "least_best": Measured("score of the best head for it, least of models", min(best)),
            "best_before": Measured("score of the best head for it, untrained", best_before),
            "n_with": Measured("models with such a head", sum(share > 0 for share in shares_trained)),
            "n_models": Measured("models", len(runs)),
            "loss": Measured("loss at the end", loss, "nats a symbol"),
            "least_loss": Measured("least loss there can be", least_loss(back), "nats a symbol"),
            "trained": shares_trained,
            "untrained": shares_untrained,
        },
        [
            {
                "first weights": seed,
                **{_head_name(head): score for head, score in enumerate(run.trained.scores)},
            }
            for seed, run in enumerate(runs, 1)
        ],
        _head_panels(
            runs[0],
            causal_weights_by_offset,
            ("positions back (0: the symbol itself)", range(SEEN_BACK)),
            _head_name,
            [LETTERS[symbol] for symbol in row[:-1].tolist()],
            inches=(4.6, 3.8),
        ),
    )


def _head_name(head: int) -> str:
    return f"layer {head // N_HEADS + 1}, head {head % N_HEADS + 1}"
