"""How a model is trained and used: gold or own prefixes, with or without a cache, with tied or own weights.

Items 9 (weights tied over time), 45 (teacher forcing), 46 (autoregressive decoding) and 51 (embeddings) of
the lectures.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from heedful.data.batch import Batch
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.panels import Panel, draw
from heedful.lab.seeds import seeded
from heedful.lab.tiny import n_parameters, train
from heedful.models import language_model
from heedful.models.attention_stack import self_attention_stack
from heedful.models.encoder_decoder import embedding_table
from heedful.models.language_model import LanguageModel, LanguageModelConfig
from heedful.models.transformer import TransformerConfig
from heedful.nn.blocks import EncoderStack
from heedful.nn.cells import ElmanCell
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.layout import Layout, Tokens
from heedful.nn.positions import Added, SinusoidalPositions
from heedful.nn.recurrent import Recurrence
from heedful.objectives.cross_entropy import NextToken
from heedful.runs.ledger.ledger import describe
from heedful.tasks.generation import Generator
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# Gold prefixes and own ones

TYPES, LENGTH = 31, 30
Draw = Callable[[int, torch.Generator], Int[Tensor, "n length"]]


def chained(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Sequences in which each symbol decides the next: a single cycle through all of them."""
    order = torch.randperm(TYPES, generator=torch.Generator().manual_seed(7))
    first = torch.randint(TYPES, (n, 1), generator=generator)
    return order[(first + torch.arange(LENGTH + 1)) % TYPES]


def unchained(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Sequences in which no symbol depends on another: each is drawn with a probability of 1 / its rank."""
    shares = 1.0 / torch.arange(1, TYPES + 1)
    return torch.multinomial(shares, n * (LENGTH + 1), replacement=True, generator=generator).view(n, -1)


@dataclass(frozen=True)
class Errors:
    """Of a model on given sequences, by the place in the sequence.

    Args:
        wrong: share of tokens that are not the most probable one.
        loss: mean negative log-probability of the right token, in nats.
    """

    wrong: Float[Tensor, " length"]
    loss: Float[Tensor, " length"]


@torch.no_grad()
def with_gold_prefix(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Errors:
    """Every token is foretold from the right ones before it, as in training."""
    batch = Batch.windows(rows.numpy())
    assert isinstance(batch.inputs, Tokens)
    logits = model.heads["token"](model(batch.inputs))
    return _errors(logits.unflatten(0, (len(rows), -1)), rows[:, 1:])


@torch.no_grad()
def with_own_prefix(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Errors:
    """Every token but the first is foretold from those that the model itself found most probable."""
    writer = Generator(model)
    logits, state, _ = writer.prefill(None, Tokens.of(rows[:, :1].tolist()))
    found = [logits]
    while len(found) < rows.shape[1] - 1:
        logits, state, _ = writer.step(logits.argmax(-1), state, None)
        found.append(logits)
    return _errors(torch.stack(found, 1), rows[:, 1:])


def _errors(logits: Float[Tensor, "n t V"], wanted: Int[Tensor, "n t"]) -> Errors:
    loss = -logits.log_softmax(-1).gather(-1, wanted[..., None])[..., 0]
    return Errors((logits.argmax(-1) != wanted).float().mean(0), loss.mean(0))


def _exposed(draw_rows: Draw, size: Size) -> Outcome:
    """Train on gold prefixes until one token in five is wrong at most, then let the model go on alone."""
    config = LanguageModelConfig(d_model=32, n_heads=4, n_layers=1, context=LENGTH, dropout=0.0)
    with seeded(0):
        model = language_model.build(config, TYPES)
    generator = torch.Generator().manual_seed(11)
    rows = draw_rows(64 if size == "short" else 512, torch.Generator().manual_seed(12))
    batches = (Batch.windows(draw_rows(16, generator).numpy()) for _ in range(100))
    good = lambda: with_gold_prefix(model, rows).wrong.mean().item() < 0.2  # noqa: E731
    train(model, NextToken(), _until(good, batches), AdamConfig(), Constant(5e-3))
    gold, own = with_gold_prefix(model, rows), with_own_prefix(model, rows)
    added, wrong, quarter = own.loss - gold.loss, own.wrong - gold.wrong, LENGTH // 4
    early, late = wrong[:quarter].mean().item(), wrong[-quarter:].mean().item()
    places = list(range(1, LENGTH + 1))
    return Outcome(
        "holds" if late > 0.2 and late > 2 * early else "is wrong",
        "A model that was trained on gold prefixes and then reads its own output goes on from its first "
        "mistake: where tokens depend on those before them, its errors grow with the length. Where they do "
        "not, own prefixes do no harm.",
        [
            Measured(f"wrong tokens that own prefixes add, last {quarter} places", late),
            Measured(f"wrong tokens that own prefixes add, first {quarter} places", early),
            Measured(f"loss that they add, last {quarter} places", added[-quarter:].mean().item(), "nats"),
            Measured(f"loss that they add, first {quarter} places", added[:quarter].mean().item(), "nats"),
            Measured("wrong tokens with gold prefixes", gold.wrong.mean().item()),
            Measured("wrong tokens with own prefixes", own.wrong.mean().item()),
        ],
        [
            {
                "place": t,
                "wrong, gold prefix": gold.wrong[t - 1].item(),
                "wrong, own": own.wrong[t - 1].item(),
            }
            for t in (1, 2, 4, 8, 16, LENGTH)
        ],
        lambda: draw(
            *(
                Panel(
                    what,
                    "place in the sequence",
                    unit,
                    {
                        "gold prefix": (places, getattr(gold, field).tolist()),
                        "own prefix": (places, getattr(own, field).tolist()),
                    },
                )
                for what, unit, field in (
                    ("Loss by place", "nats a token", "loss"),
                    ("Wrong tokens by place", "share", "wrong"),
                )
            )
        ),
    )


def _until(good: Callable[[], bool], batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, as long as it is not good."""
    return takewhile(lambda _: not good(), batches)


# With a cache and without

D = 32


def _stack(*, causal: bool) -> EncoderStack:
    config = TransformerConfig(d_model=D, d_ff=4 * D, n_heads=4, n_layers=2, dropout=0.0)
    with seeded(0):
        return self_attention_stack(config, config.d_ff, causal=causal).eval()


@torch.no_grad()
def _newest_alone(stack: EncoderStack, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Each token at the moment it is the newest, from all of its prefix; it is never looked at again."""
    prefixes = range(1, len(x) + 1)
    return torch.cat([stack(x[:n], Layout.of([n]))[-1:] for n in prefixes])


@torch.no_grad()
def _with_cache(stack: EncoderStack, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """The same token by token: keys and values of earlier tokens are kept."""
    blocks: Any = stack.blocks
    caches = [block.new_cache() for block in blocks]
    return torch.cat([stack(x[i : i + 1], Layout.of([1], [i]), caches) for i in range(len(x))])


def _flops(run: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def _cached(*, causal: bool, size: Size) -> Outcome:
    """Whether tokens stay what they were when later ones come; and what it saves to keep them."""
    lengths = [4, 8, 16, 32] if size == "short" else [4, 8, 16, 32, 64, 128]
    stack = _stack(causal=causal)
    with seeded(1):
        x = torch.randn(lengths[-1], D)
    with torch.no_grad():
        whole = stack(x, Layout.of([len(x)]))
    stepwise = _with_cache(stack, x) if causal else _newest_alone(stack, x)
    change = (stepwise - whole).abs().max().item()
    causal_stack = _stack(causal=True)
    cost = {
        "with a cache": [_flops(lambda n=n: _with_cache(causal_stack, x[:n])) for n in lengths],
        "all anew for each token": [_flops(lambda n=n: _newest_alone(causal_stack, x[:n])) for n in lengths],
    }
    kept, anew = (costs[-1] for costs in cost.values())
    return Outcome(
        "holds" if change < 1e-4 else "is wrong",
        "Under a causal mask nothing that was computed of a prefix changes when more follows, so keys and "
        "values can be kept, and decoding token by token gives what one pass over the whole gives. "
        "Attention that reads ahead changes earlier tokens, and has nothing to keep.",
        [
            Measured("largest change of a token by those that follow it", change, expected=0.0),
            Measured(f"operations that a cache saves for {lengths[-1]} tokens, factor", anew / kept),
        ],
        [
            {"tokens": n, **{f"FLOPs, {name}": float(costs[i]) for name, costs in cost.items()}}
            for i, n in enumerate(lengths)
        ],
        lambda: draw(
            Panel(
                "Operations to write a text",
                "tokens",
                "FLOPs",
                {name: (lengths, costs) for name, costs in cost.items()},
                log="xy",
            ),
            Panel(
                "Change of each token by those that follow it",
                "token",
                "largest difference",
                {"change": (list(range(1, len(x) + 1)), (stepwise - whole).abs().amax(-1).tolist())},
            ),
        ),
    )


# Tied weights

BASE = "transformer-base"


def _tied_embeddings(tie: str, size: Size) -> Outcome:
    """Hold the base model's parameters against the 65 million of paper and lecture."""
    totals = {
        how: describe(BASE, overrides=[f"tie={how}"]).parameters for how in ("three-way", "target", "none")
    }
    matrix = 37_000 * 512
    total = totals[tie]
    return Outcome(
        "holds" if abs(total / 65e6 - 1) < 0.05 else "is wrong",
        "W_D has 18,944,000 parameters for 37,000 tokens, of about 63 million in all; but only because one "
        "matrix is source embedding, target embedding and output layer. With a set of weights for each "
        "there would be 100.9 million.",
        [
            Measured("parameters of the base model", total, expected=65e6),
            Measured("of which one matrix of 37,000 tokens has", matrix),
            Measured(
                "saved by tying three ways", totals["none"] - totals["three-way"], expected=2.0 * matrix
            ),
            Measured(
                "saved by tying the target's two", totals["none"] - totals["target"], expected=1.0 * matrix
            ),
        ],
        [{"tied": how, "parameters": n} for how, n in totals.items()],
        lambda: draw(
            Panel(
                "Parameters of the base model, V = 37,000",
                "tied",
                "millions",
                bars={how: n / 1e6 for how, n in totals.items()},
                levels={"printed: 65 million": 65.0},
            )
        ),
    )


def _over_time(*, tied: bool, size: Size) -> Outcome:
    """An RNN with one cell for all steps, or with a cell for each."""
    lengths = [1, 5, 25] if size == "short" else [1, 5, 25, 125]
    with seeded(0):
        cell = ElmanCell(D, D)
        x = torch.randn(lengths[-1], D)
    counts = {
        "one cell for all steps": [n_parameters(cell)] * len(lengths),
        "a cell for each step": [n_parameters(*(copy.deepcopy(cell) for _ in range(n))) for n in lengths],
    }
    own = counts["one cell for all steps" if tied else "a cell for each step"]
    return Outcome(
        "holds" if own[-1] == own[0] else "is wrong",
        "Tied over time, an RNN has d_h² + d_h d_x + d_h parameters whatever the length. The same weights "
        "then answer for all of history: their gradient is the sum of those that each step would give to "
        "its own.",
        [
            Measured(f"parameters for {lengths[-1]} steps", own[-1], expected=float(2 * D * D + D)),
            Measured("parameters for one step", own[0], expected=float(2 * D * D + D)),
            Measured(
                "largest difference of the tied gradient to the sum over steps",
                _gradient_difference(cell, x[:5]),
                expected=0.0,
            ),
        ],
        draw=lambda: draw(
            Panel(
                "Parameters of an RNN over the length",
                "steps",
                "parameters",
                {name: (lengths, n) for name, n in counts.items()},
                log="xy",
            )
        ),
    )


def _gradient_difference(cell: ElmanCell, x: Float[Tensor, "n d"]) -> float:
    """Between the gradient of W_hh in one cell and the sum over copies of it, one for each step."""
    tied, copies = copy.deepcopy(cell), [copy.deepcopy(cell) for _ in x]
    Recurrence(tied)(x, Layout.of([len(x)]))[-1].sum().backward()
    state = cell.initial(1, x)
    for own, now in zip(copies, x, strict=True):
        state = own(own.project(now[None]), state)
    state[0].sum().backward()
    grads = [each.recurrent.weight.grad for each in (tied, *copies)]
    assert all(grad is not None for grad in grads)
    whole, *parts = [grad for grad in grads if grad is not None]
    return (whole - torch.stack(parts).sum(0)).abs().max().item()


# The factor before the positions


def _drowned(*, scaled: bool, size: Size) -> Outcome:
    """Whether a word can be told from its embedding plus position, by the table that both ends share."""
    d, n_words = (64, 1000) if size == "short" else (512, 10_000)
    scale = math.sqrt(d) if scaled else 1.0
    with seeded(0):
        table = embedding_table(n_words, d)
        words = torch.randint(n_words, (256,))
    embedding = TokenEmbedding(table, Added(SinusoidalPositions(d)), scale=scale)
    with torch.no_grad():
        x = embedding(Tokens(words, Layout.of([64] * 4)))
        found = (x @ table.T).argmax(-1)
        positions = SinusoidalPositions(d)(torch.arange(64))
        sizes = {
            "positions": positions.square().mean().sqrt().item(),
            "embeddings": table.square().mean().sqrt().item(),
            f"embeddings x √{d}": math.sqrt(d) * table.square().mean().sqrt().item(),
        }
    share = (found == words).float().mean().item()
    return Outcome(
        "holds" if share > 0.99 else "is wrong",
        "A table that is tied to the output layer has entries of size d^-0.5, the positions of size 0.7: "
        "added as it is, a word is drowned by its place. The paper multiplies embeddings by √d_model first, "
        "which no lecture says.",
        [
            Measured("words that can be told from their sums", share, expected=1.0),
            Measured("size of the embeddings' entries", sizes["embeddings"], expected=d**-0.5),
            Measured("size of the positions' entries", sizes["positions"], expected=0.5**0.5),
        ],
        draw=lambda: draw(
            Panel("Size of what is added", "", "root mean square of the entries", bars=sizes),
        ),
    )


_VASWANI = "Vaswani et al. 2017, section 3.4"

EXPERIMENTS = [
    Experiment(
        "exposure",
        "Teacher forcing and what follows it",
        "Errors accumulate where the model reads its own predictions: once one is wrong, the rest are "
        "likely to be, which training on the gold prefix never shows.",
        "S0, teacher forcing; Bengio et al. 2015, section 1",
        (45,),
        run=lambda size: _exposed(chained, size),
        control=lambda size: _exposed(unchained, size),
        changed="No token depends on those before it.",
    ),
    Experiment(
        "cached-decoding",
        "Decoding with a cache",
        "A decoder that writes token by token computes what one pass over the whole text computes.",
        "S0, masked attention and inference; S1, text completion",
        (46,),
        run=lambda size: _cached(causal=True, size=size),
        control=lambda size: _cached(causal=False, size=size),
        changed="Attention reads ahead, and each token is computed when it is the newest.",
    ),
    Experiment(
        "tied-embeddings",
        "Where the 65 million come from",
        "The output matrix contributes about 19 of 65 million parameters, and the input embedding is an "
        "additional set of weights.",
        f"S0, decoder output, and the Transformer architecture; {_VASWANI}; Press and Wolf 2017",
        (35, 51),
        run=lambda size: _tied_embeddings("none", size),
        control=lambda size: _tied_embeddings("three-way", size),
        changed="Both embeddings and the output layer are one matrix.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "tied-over-time",
        "One set of weights for all of history",
        "Weights that are tied across time steps keep the number of parameters manageable.",
        "S3, quiz 3, question 5",
        (1, 9),
        run=lambda size: _over_time(tied=True, size=size),
        control=lambda size: _over_time(tied=False, size=size),
        changed="Every step has a cell of its own.",
    ),
    Experiment(
        "embedding-scale",
        "The factor that the lectures leave out",
        "The position vector is added to the word's embedding as it is.",
        f"S0, S1, S3 and S4, positions; {_VASWANI}",
        (51,),
        run=lambda size: _drowned(scaled=False, size=size),
        control=lambda size: _drowned(scaled=True, size=size),
        changed="Embeddings are multiplied by √d_model before.",
        expected=("is wrong", "holds"),
    ),
]
