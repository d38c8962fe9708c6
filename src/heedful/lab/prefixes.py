"""Training and use of a decoder: with gold or generated prefixes, with or without a cache.

Items 45 (teacher forcing) and 46 (autoregressive decoding) of the lectures.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.lab.costs import flops_of
from heedful.lab.drawing import Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import train
from heedful.models import language_model
from heedful.models.attention_stack import self_attention_stack
from heedful.models.language_model import LanguageModel, LanguageModelConfig
from heedful.models.transformer import TransformerConfig
from heedful.nn.blocks import EncoderStack
from heedful.nn.layout import Layout, Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.generation import Generator
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# Gold and generated prefixes

TYPES, LENGTH = 31, 30
Draw = Callable[[int, torch.Generator], Int[Tensor, "n length"]]


def chained(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences in which each symbol determines the next: a single cycle through all symbols."""
    order = torch.randperm(TYPES, generator=generator_from(7))
    first = torch.randint(TYPES, (n, 1), generator=generator)
    return order[(first + torch.arange(LENGTH + 1)) % TYPES]


def unchained(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences of independent symbols, each with a probability proportional to 1 / rank."""
    shares = 1.0 / torch.arange(1, TYPES + 1)
    return torch.multinomial(shares, n * (LENGTH + 1), replacement=True, generator=generator).view(n, -1)


@dataclass(frozen=True)
class Errors:
    """Errors of a model on given sequences, by position.

    Args:
        wrong: share of tokens that the model does not find most probable.
        loss: mean negative log-probability of the correct token, in nats.
    """

    wrong: Float[Tensor, " length"]
    loss: Float[Tensor, " length"]


@torch.no_grad()
def with_gold_prefix(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Errors:
    """Predict every token from the correct tokens before it, as in training."""
    batch = Batch.windows(rows.numpy())
    assert isinstance(batch.inputs, Tokens)
    logits = model.heads["token"](model(batch.inputs))
    return _errors(logits.unflatten(0, (len(rows), -1)), rows[:, 1:])


@torch.no_grad()
def with_own_prefix(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Errors:
    """Predict every token but the first from the tokens that the model itself found most probable."""
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
    """Train on gold prefixes until at most one token in five is wrong; then use generated prefixes."""
    config = LanguageModelConfig(d_model=32, n_heads=4, n_layers=1, context=LENGTH, dropout=0.0)
    with seeded(0):
        model = language_model.build(config, TYPES)
    generator = generator_from(11)
    rows = draw_rows(64 if size == "short" else 512, generator_from(12))
    batches = (Batch.windows(draw_rows(16, generator).numpy()) for _ in range(100))
    good = lambda: with_gold_prefix(model, rows).wrong.mean().item() < 0.2  # noqa: E731
    train(model, NextToken(), _until(good, batches), AdamConfig(), Constant(5e-3))
    gold, own = with_gold_prefix(model, rows), with_own_prefix(model, rows)
    added, wrong, quarter = own.loss - gold.loss, own.wrong - gold.wrong, LENGTH // 4
    early, late = wrong[:quarter].mean().item(), wrong[-quarter:].mean().item()
    places = list(range(1, LENGTH + 1))
    return Outcome(
        "holds" if late > 0.2 and late - early > 0.1 else "is wrong",
        "A model that was trained on gold prefixes and then reads its own output continues from its first "
        "mistake: if tokens depend on those before them, its errors grow with the length. If they do not, "
        "generated prefixes do no harm.",
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
        [
            Curves(
                what,
                "position",
                unit,
                {
                    "gold prefix": (places, getattr(gold, field).tolist()),
                    "own prefix": (places, getattr(own, field).tolist()),
                },
            )
            for what, unit, field in (
                ("Loss by position", "nats per token", "loss"),
                ("Wrong tokens by position", "share", "wrong"),
            )
        ],
    )


def _until(good: Callable[[], bool], batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches until the condition holds."""
    return takewhile(lambda _: not good(), batches)


# With and without a cache

D = 32


def _stack(*, causal: bool) -> EncoderStack:
    config = TransformerConfig(d_model=D, d_ff=4 * D, n_heads=4, n_layers=2, dropout=0.0)
    with seeded(0):
        return self_attention_stack(config, config.d_ff, causal=causal).eval()


@torch.no_grad()
def _newest_alone(stack: EncoderStack, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Compute each token when it is the newest, from its whole prefix; it is not recomputed later."""
    prefixes = range(1, len(x) + 1)
    return torch.cat([stack(x[:n], Layout.of([n]))[-1:] for n in prefixes])


@torch.no_grad()
def _with_cache(stack: EncoderStack, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Compute the tokens one by one, keeping keys and values of earlier tokens."""
    blocks: Any = stack.blocks
    caches = [block.new_cache() for block in blocks]
    return torch.cat([stack(x[i : i + 1], Layout.of([1], [i]), caches) for i in range(len(x))])


@cache
def flops_to_write(n: int) -> dict[str, list[int]]:
    """Count the operations to generate 1 to ``n`` tokens under a causal mask, with and without a cache."""
    stack, x = _stack(causal=True), torch.zeros(n, D)
    blocks: Any = stack.blocks
    caches = [block.new_cache() for block in blocks]
    kept = [_flops(stack, x[i : i + 1], Layout.of([1], [i]), caches) for i in range(n)]
    anew = [_flops(stack, x[:m], Layout.of([m])) for m in range(1, n + 1)]
    return {"with a cache": list(accumulate(kept)), "all anew for each token": list(accumulate(anew))}


@torch.no_grad()
def _flops(stack: EncoderStack, *inputs: Any) -> int:
    return flops_of(lambda: stack(*inputs))


def _cached(*, causal: bool, size: Size) -> Outcome:
    """Test whether tokens change when later ones are added, and count the operations saved by a cache."""
    lengths = [4, 8, 16] if size == "short" else [4, 8, 16, 32, 64, 128]
    stack = _stack(causal=causal)
    with seeded(1):
        x = torch.randn(lengths[-1], D)
    with torch.no_grad():
        whole = stack(x, Layout.of([len(x)]))
    stepwise = _with_cache(stack, x) if causal else _newest_alone(stack, x)
    change = (stepwise - whole).abs().max().item()
    writing = flops_to_write(lengths[-1])
    cost = {name: [own[n - 1] for n in lengths] for name, own in writing.items()}
    kept, anew = (costs[-1] for costs in cost.values())
    return Outcome(
        "holds" if change < 1e-4 else "is wrong",
        "Under a causal mask, nothing computed for a prefix changes when tokens are added, so keys and "
        "values can be cached, and decoding token by token gives the same as one pass over the whole text. "
        "Attention to later tokens changes earlier tokens, so nothing can be cached.",
        [
            Measured("largest change of a token by those that follow it", change, expected=0.0),
            Measured(f"operations that a cache saves for {lengths[-1]} tokens, factor", anew / kept),
        ],
        [
            {"tokens": n, **{f"FLOPs, {name}": float(costs[i]) for name, costs in cost.items()}}
            for i, n in enumerate(lengths)
        ],
        [
            Curves(
                "Operations to generate a text",
                "tokens",
                "FLOPs",
                {name: (lengths, costs) for name, costs in cost.items()},
                log="xy",
            ),
            Curves(
                "Change of each token caused by later ones",
                "token",
                "largest difference",
                {"change": (list(range(1, len(x) + 1)), (stepwise - whole).abs().amax(-1).tolist())},
            ),
        ],
    )


EXPERIMENTS = [
    Experiment(
        "exposure",
        "Teacher forcing and its consequences",
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
        changed="Attention includes later tokens, and each token is computed when it is the newest.",
    ),
]
