"""Teacher forcing and decoding with a cache.

Items 45 and 46 of the lectures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, curves_over, numbered_curves
from heedful.lab.experiment import Measured, Series, Size, measures, named_each, table_of
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import (
    cyclic_sequences,
    flops_of,
    largest_difference,
    plain_stack,
    symbol_model,
    train,
)
from heedful.models.language_model import LanguageModel
from heedful.nn.blocks import EncoderStack
from heedful.nn.layout import Layout, Tokens
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.generation.generator import (
    Generator,
    TargetScores,
    score_free_running,
    score_targets,
)
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

D = 32

# Gold and generated prefixes

N_SYMBOLS, LENGTH = 31, 30


def draw_cyclic_sequences(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences in which each symbol determines the next: a single cycle through all symbols."""
    return cyclic_sequences(n, LENGTH + 1, N_SYMBOLS, generator)


def draw_independent_sequences(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences of independent symbols, each with a probability proportional to 1 / rank."""
    shares = 1.0 / torch.arange(1, N_SYMBOLS + 1)
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


def errors_with_gold_prefix(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Errors:
    """Predict every token from the correct tokens before it, as in training."""
    return _errors(score_targets(model, Batch.windows(rows.numpy())))


def errors_with_own_prefix(model: LanguageModel, rows: Int[Tensor, "n length"]) -> Errors:
    """Predict every token but the first from the tokens that the model itself found most probable."""
    generator = Generator(model)
    with torch.no_grad():
        prefix_output = generator.prefill(None, Tokens.of(rows[:, :1].tolist()))
    return _errors(score_free_running(generator, prefix_output, rows[:, 1:].tolist()))


def _errors(scores: Sequence[TargetScores]) -> Errors:
    wrong = ~torch.stack([each.correct for each in scores])
    return Errors(wrong.float().mean(0), -torch.stack([each.log_probs for each in scores]).mean(0))


@measures("exposure", draw_rows=(draw_cyclic_sequences, draw_independent_sequences))
def compare_gold_and_own_prefixes(
    size: Size, draw_rows: Callable[[int, torch.Generator], Int[Tensor, "n length"]]
) -> Series:
    """Train on gold prefixes until at most one token in five is wrong; then use generated prefixes."""
    model = symbol_model(N_SYMBOLS, LENGTH, n_layers=1, n_heads=4, seed=0)
    generator = generator_from(11)
    rows = draw_rows(64 if size == "short" else 512, generator_from(12))
    batches = (Batch.windows(draw_rows(16, generator).numpy()) for _ in range(100))

    def is_bad(batch: Batch) -> bool:
        return not errors_with_gold_prefix(model, rows).wrong.mean().item() < 0.2

    train(model, NextToken(), takewhile(is_bad, batches), AdamConfig(), Constant(5e-3))
    gold, own = errors_with_gold_prefix(model, rows), errors_with_own_prefix(model, rows)
    added_loss, added_errors, quarter = own.loss - gold.loss, own.wrong - gold.wrong, LENGTH // 4
    early, late = added_errors[:quarter].mean().item(), added_errors[-quarter:].mean().item()
    last, first = f"last {quarter} places", f"first {quarter} places"
    late_loss, early_loss = added_loss[-quarter:].mean().item(), added_loss[:quarter].mean().item()
    places = [1, 2, 4, 8, 16, LENGTH]
    losses = {"gold prefix": gold.loss.tolist(), "own prefix": own.loss.tolist()}
    shares = {"gold prefix": gold.wrong.tolist(), "own prefix": own.wrong.tolist()}
    return Series(
        {
            "late": Measured(f"wrong tokens that own prefixes add, {last}", late),
            "early": Measured(f"wrong tokens that own prefixes add, {first}", early),
            "late_loss": Measured(f"loss that they add, {last}", late_loss, "nats"),
            "early_loss": Measured(f"loss that they add, {first}", early_loss, "nats"),
            "gold": Measured("wrong tokens with gold prefixes", gold.wrong.mean().item()),
            "own": Measured("wrong tokens with own prefixes", own.wrong.mean().item()),
        },
        table_of(
            {
                "place": places,
                "wrong, gold prefix": [shares["gold prefix"][t - 1] for t in places],
                "wrong, own": [shares["own prefix"][t - 1] for t in places],
            }
        ),
        [
            Curves("Loss by position", "position", "nats per token", numbered_curves(losses)),
            Curves("Wrong tokens by position", "position", "share", numbered_curves(shares)),
        ],
    )


# With and without a cache


def _stack(*, causal: bool) -> EncoderStack:
    with seeded(0):
        return plain_stack(D, 2, causal=causal).eval()


@torch.no_grad()
def _compute_from_prefixes(stack: EncoderStack, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Compute each token when it is the newest, from its whole prefix; it is not recomputed later."""
    prefixes = range(1, len(x) + 1)
    return torch.cat([stack(x[:n], Layout.of([n]))[-1:] for n in prefixes])


@torch.no_grad()
def _compute_with_cache(stack: EncoderStack, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Compute the tokens one by one, keeping keys and values of earlier tokens."""
    caches = [block.new_cache() for block in stack.block_list]
    return torch.cat([stack(x[i : i + 1], Layout.of([1], [i]), caches) for i in range(len(x))])


@cache
def flops_of_generation(n: int) -> dict[str, list[int]]:
    """Count the operations to generate 1 to ``n`` tokens under a causal mask, with and without a cache."""
    stack, x = _stack(causal=True), torch.zeros(n, D)
    caches = [block.new_cache() for block in stack.block_list]
    cached = [_flops(stack, x[i : i + 1], Layout.of([1], [i]), caches) for i in range(n)]
    recomputed = [_flops(stack, x[:m], Layout.of([m])) for m in range(1, n + 1)]
    return {
        "with a cache": list(accumulate(cached)),
        "recomputed for each token": list(accumulate(recomputed)),
    }


@torch.no_grad()
def _flops(stack: EncoderStack, *inputs: object) -> int:
    return flops_of(lambda: stack(*inputs))


@measures("cached-decoding", causal=(True, False))
def measure_savings_of_a_cache(size: Size, *, causal: bool) -> Series:
    """Measure whether tokens change when later ones are added, and count the operations saved by a cache."""
    lengths = [4, 8, 16] if size == "short" else [4, 8, 16, 32, 64, 128]
    stack = _stack(causal=causal)
    with seeded(1):
        x = torch.randn(lengths[-1], D)
    with torch.no_grad():
        complete = stack(x, Layout.of([len(x)]))
    stepwise = _compute_with_cache(stack, x) if causal else _compute_from_prefixes(stack, x)
    change = largest_difference(stepwise, complete)
    flops_by_length = flops_of_generation(lengths[-1])
    costs = {name: [counts[n - 1] for n in lengths] for name, counts in flops_by_length.items()}
    cached, recomputed = (totals[-1] for totals in costs.values())
    flops = named_each("FLOPs, {}", {name: map(float, totals) for name, totals in costs.items()})
    changes = numbered_curves({"change": (stepwise - complete).abs().amax(-1).tolist()})
    return Series(
        {
            "change": Measured("largest change of a token by those that follow it", change, expected=0.0),
            "saved": Measured(
                f"operations that a cache saves for {lengths[-1]} tokens, factor", recomputed / cached
            ),
        },
        table_of({"tokens": lengths, **flops}),
        [
            Curves("Operations to generate a text", "tokens", "FLOPs", curves_over(lengths, costs), log="xy"),
            Curves("Change of each token caused by later ones", "token", "largest difference", changes),
        ],
    )
