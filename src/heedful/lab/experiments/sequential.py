"""Sequential dependencies of encoders and decoders, teacher forcing, and decoding with a cache.

Items 17, 45, 46 and 61 of the lectures. Wall times are reported in a table and a panel; verdicts depend on
the depth of dependencies and on operation counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, takewhile
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, numbered, over
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import flops_of, milliseconds, n_parameters, plain_stack, slope, train
from heedful.models import language_model
from heedful.models.language_model import LanguageModel, LanguageModelConfig
from heedful.models.mixers import AttentionConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.recurrent import decoder as recurrent_decoder
from heedful.models.registry import build_model
from heedful.models.sections import AdditiveConfig, FeedForwardConfig
from heedful.models.stacks import LayerConfig, decoder_stack
from heedful.models.transformer import TransformerConfig
from heedful.nn.attention.recurrent import Encoded
from heedful.nn.blocks import EncoderStack
from heedful.nn.cells import Cell, ElmanCell, LSTMCell
from heedful.nn.layout import Layout, Tokens
from heedful.nn.recurrent import Recurrence
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.generation.generator import Generator
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

D = 32


def depth(result: Tensor) -> int:
    """Return the length of the longest chain of operations that leads to ``result``, as recorded by autograd.

    These operations must run one after the other, however many processors there are.
    """
    depths: dict[Any, int] = {}
    waiting: list[Any] = [result.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in before if each not in depths]
        if missing:
            waiting += missing
            continue
        depths[waiting.pop()] = 1 + max((depths[each] for each in before), default=0)
    return depths[result.grad_fn]


def _recurrent_encoder(n: int, cell: Callable[[int, int], Cell]) -> Callable[[], Tensor]:
    with seeded(0):
        layer, x = Recurrence(cell(D, D)), torch.randn(n, D)
    return partial(layer, x, Layout.of([n]))


def _attention_encoder(n: int, n_layers: int = 2) -> Callable[[], Tensor]:
    with seeded(0):
        stack, x = plain_stack(D, n_layers, causal=False), torch.randn(n, D)
    return partial(stack, x, Layout.of([n]))


ENCODERS: dict[str, Callable[[int], Callable[[], Tensor]]] = {
    "RNN": partial(_recurrent_encoder, cell=ElmanCell),
    "LSTM": partial(_recurrent_encoder, cell=LSTMCell),
    "attention": _attention_encoder,
}
"""Functions that build an encoder and its input for a number of tokens; what they return runs it."""


@cache
def encoder_depth(name: str, n: int) -> int:
    """Return the depth of one of `ENCODERS`."""
    return depth(ENCODERS[name](n)())


@measures("serial-encoder", judged=(("RNN", "LSTM"), ("attention",)))
def waits(size: Size, judged: Sequence[str]) -> Series:
    """Measure depth by number of tokens, for all encoders."""
    lengths = [4, 8, 16, 32] if size == "short" else [4, 8, 16, 32, 64, 128, 256]
    depths = {name: [encoder_depth(name, n) for n in lengths] for name in ENCODERS}
    times = {name: [_timed(make(n)) for n in lengths] for name, make in ENCODERS.items()}
    growth = {name: slope(lengths, depths[name]) for name in judged}
    last = {name: own[-1] for name, own in depths.items()}
    two, three = (depth(_attention_encoder(8, n_layers)()) for n_layers in (2, 3))
    return Series(
        {
            **measured_each("further operations in a row for each token, {}", growth),
            **measured_each(f"operations in a row for {lengths[-1]} tokens, {{}}", last),
            "by_layer": Measured("further operations in a row for each layer of attention", three - two),
            "growth": list(growth.values()),
        },
        [
            {
                "tokens": n,
                **{f"in a row, {name}": depths[name][i] for name in ENCODERS},
                **{f"ms, {name}": times[name][i] for name in ENCODERS},
            }
            for i, n in enumerate(lengths)
        ],
        [
            Curves("Sequential operations", "tokens", "longest chain", over(lengths, depths)),
            _clock(lengths, times, "tokens"),
        ],
    )


def _timed(run: Callable[[], Any]) -> float:
    """Time a computation without arguments, in milliseconds."""
    return milliseconds(lambda _: run(), lambda: None)


def _clock(lengths: Sequence[int], times: Mapping[str, Sequence[float]], unit: str) -> Curves:
    """Draw wall times by number of tokens or words."""
    title = "Wall time here (not used for the verdict)"
    return Curves(title, unit, "ms", over(lengths, times), log="xy")


def _recurrent_attention(n_source: int, n_target: int) -> Tensor:
    """Run a recurrent decoder with given h_i (Bahdanau et al. 2014)."""
    score = AdditiveConfig(d_attention=D)
    config = RecurrentConfig(d_embedding=D, d_hidden=D, attention=score)
    with seeded(0):
        part = recurrent_decoder(config)
        annotations, summary = torch.randn(n_source, config.d_annotation), torch.randn(1, D)
        x = torch.randn(n_target, D)
    encoded = Encoded(annotations, Layout.of([n_source]), [], summary)
    memories: Any
    caches: Any
    memories, caches = part.initial_state(encoded)
    return part(x, Layout.of([n_target]), memories, caches)


ONE_LAYER = TransformerConfig(
    d_model=D,
    n_layers=1,
    layer=LayerConfig(mixer=AttentionConfig(n_heads=4), channels=FeedForwardConfig(d_ff=4 * D)),
    dropout=0.0,
)


def _cross_attention(n_source: int, n_target: int) -> Tensor:
    """Run a Transformer's decoder on the whole target."""
    with seeded(0):
        stack = decoder_stack(ONE_LAYER)
        encoded, x = torch.randn(n_source, D), torch.randn(n_target, D)
    return stack(x, Layout.of([n_target]), stack.make_memory(encoded, Layout.of([n_source])))


DECODERS: dict[str, Callable[[int, int], Tensor]] = {
    "recurrent": _recurrent_attention,
    "Transformer": _cross_attention,
}


@cache
def decoder_depth(name: str, n_source: int, n_target: int) -> int:
    """Return the depth of one of `DECODERS`."""
    return depth(DECODERS[name](n_source, n_target))


@measures("parallel-weights", judged=("recurrent", "Transformer"))
def weighs(size: Size, judged: str) -> Series:
    """Measure the depth of a decoder by source words at a fixed number of steps, and by steps."""
    lengths = [4, 8, 16, 32] if size == "short" else [4, 8, 16, 32, 64, 128]
    over_source = {name: [decoder_depth(name, n, 4) for n in lengths] for name in DECODERS}
    over_steps = {name: [decoder_depth(name, 4, n) for n in lengths] for name in DECODERS}
    by_word, by_step = slope(lengths, over_source[judged]), slope(lengths, over_steps[judged])
    y = "sequential operations"
    return Series(
        {
            "by_word": Measured("further operations in a row for each source word", by_word, expected=0.0),
            "by_step": Measured("further operations in a row for each step", by_step),
        },
        panels=[
            Curves(f"Longest chain by {what}", what, y, over(lengths, found))
            for what, found in (("source words", over_source), ("steps of the decoder", over_steps))
        ],
    )


# Training two translation models

TYPES = 50
CONFIGS: dict[str, RecurrentConfig | TransformerConfig] = {
    "LSTM with attention": RecurrentConfig(
        cell="lstm", d_embedding=D, d_hidden=D, attention=AdditiveConfig(d_attention=D)
    ),
    "Transformer": ONE_LAYER,
}


@cache
def translator(name: str) -> Any:
    """Return one of `CONFIGS` with initial weights."""
    with seeded(0):
        return build_model(CONFIGS[name], TYPES, TYPES)


@cache
def words(n: int) -> Tokens:
    """Draw ``n`` random words."""
    with seeded(1):
        return Tokens(torch.randint(TYPES, (n,)), Layout.of([n]))


def read(name: str, n_source: int, n_target: int) -> Tensor:
    """Compute logits for all words of a given translation, as in training."""
    model = translator(name)
    logits: Tensor = model.heads["token"](model(words(n_target), words(n_source)))
    return logits


def step_logits(name: str, n: int) -> Tensor:
    """Compute logits for word ``n`` of a generated translation; earlier states are cached."""
    model = translator(name)
    with torch.no_grad():
        state = model.start(words(n))
        if n > 1:
            _, state = model.extend(words(n - 1), state)
    hidden, _ = model.extend(Tokens(torch.tensor([1]), state.next_layout((1,))), state)
    logits: Tensor = model.heads["token"](hidden)
    return logits


@cache
def chain(name: str, n: int, *, written: bool) -> int:
    """Count sequential operations for a sentence of ``n`` words and a translation of the same length.

    If the translation is generated, each word is chosen from the output of its own step, so steps are
    sequential: the encoder and the first word, and then one step after the other.
    """
    if not written:
        return depth(read(name, n, n))
    return depth(read(name, n, 1)) + sum(depth(step_logits(name, so_far)) for so_far in range(2, n + 1))


def train_step(name: str, n: int) -> None:
    """Run a training step with such a pair, forward and backward."""
    torch.autograd.grad(read(name, n, n).sum(), list(translator(name).parameters()), allow_unused=True)


@torch.no_grad()
def write_words(name: str, n: int) -> None:
    """Encode a sentence of ``n`` words and generate as many, one after the other."""
    model = translator(name)
    state = model.start(words(n))
    for _ in range(n):
        hidden, state = model.extend(Tokens(torch.tensor([1]), state.next_layout((1,))), state)
        model.heads["token"](hidden)


def operations(name: str, n: int) -> float:
    """Count the FLOPs of a training step per word."""
    return flops_of(lambda: train_step(name, n)) / (2 * n)


@measures("trained-faster", written=(False, True))
def trains(size: Size, written: bool) -> Series:
    """Measure chains and operations of two translation models by number of words."""
    lengths = [4, 8, 16] if size == "short" else [4, 8, 16, 32, 64]
    n = lengths[-1]
    chains = {name: [chain(name, n, written=written) for n in lengths] for name in CONFIGS}
    growth = {name: slope(lengths, own) for name, own in chains.items()}
    counts = {name: [operations(name, n) for n in lengths] for name in CONFIGS}
    work = write_words if written else train_step
    times = {name: [_timed(partial(work, name, n)) for n in lengths] for name in CONFIGS}
    longest, most = ({name: own[-1] for name, own in each.items()} for each in (chains, counts))
    recurrent, transformer = CONFIGS
    parameters = {name: n_parameters(translator(name)) for name in CONFIGS}
    return Series(
        {
            **measured_each("further operations in a row for each word, {}", growth),
            **measured_each(f"operations in a row for {n} words, {{}}", longest),
            **measured_each(f"operations of a training step for each of {n} words, {{}}", most, "FLOPs"),
            **measured_each("parameters, {}", parameters),
            "recurrent": growth[recurrent],
            "transformer": growth[transformer],
            "ratio": most[transformer] / most[recurrent],
            "timed": "generating one sentence" if written else "a training step with one sentence",
        },
        [
            {
                "words": n,
                **{f"in a row, {name}": chains[name][i] for name in CONFIGS},
                **{f"FLOPs a word, {name}": counts[name][i] for name in CONFIGS},
                **{f"ms, {name}": times[name][i] for name in CONFIGS},
            }
            for i, n in enumerate(lengths)
        ],
        [
            Curves(
                f"Sequential operations, {'generation' if written else 'training'}",
                "words per sentence",
                "longest chain",
                over(lengths, chains),
                log="xy",
            ),
            Curves(
                "Operations of a training step",
                "words per sentence",
                "FLOPs per word",
                over(lengths, counts),
                limits=(0, None),
            ),
            _clock(lengths, times, "words per sentence"),
        ],
    )


# Gold and generated prefixes

N_SYMBOLS, LENGTH = 31, 30


def chained(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Draw sequences in which each symbol determines the next: a single cycle through all symbols."""
    order = torch.randperm(N_SYMBOLS, generator=generator_from(7))
    first = torch.randint(N_SYMBOLS, (n, 1), generator=generator)
    return order[(first + torch.arange(LENGTH + 1)) % N_SYMBOLS]


def unchained(n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
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


@measures("exposure", draw_rows=(chained, unchained))
def exposed(size: Size, draw_rows: Callable[[int, torch.Generator], Int[Tensor, "n length"]]) -> Series:
    """Train on gold prefixes until at most one token in five is wrong; then use generated prefixes."""
    config = LanguageModelConfig(
        d_model=32,
        n_layers=1,
        layer=LayerConfig(mixer=AttentionConfig(n_heads=4)),
        context=LENGTH,
        dropout=0.0,
    )
    with seeded(0):
        model = language_model.build(config, N_SYMBOLS)
    generator = generator_from(11)
    rows = draw_rows(64 if size == "short" else 512, generator_from(12))
    batches = (Batch.windows(draw_rows(16, generator).numpy()) for _ in range(100))
    until_good = takewhile(lambda _: not with_gold_prefix(model, rows).wrong.mean().item() < 0.2, batches)
    train(model, NextToken(), until_good, AdamConfig(), Constant(5e-3))
    gold, own = with_gold_prefix(model, rows), with_own_prefix(model, rows)
    added, wrong, quarter = own.loss - gold.loss, own.wrong - gold.wrong, LENGTH // 4
    early, late = wrong[:quarter].mean().item(), wrong[-quarter:].mean().item()
    places = list(range(1, LENGTH + 1))
    last, first = f"last {quarter} places", f"first {quarter} places"
    late_loss, early_loss = added[-quarter:].mean().item(), added[:quarter].mean().item()
    return Series(
        {
            "late": Measured(f"wrong tokens that own prefixes add, {last}", late),
            "early": Measured(f"wrong tokens that own prefixes add, {first}", early),
            "late_loss": Measured(f"loss that they add, {last}", late_loss, "nats"),
            "early_loss": Measured(f"loss that they add, {first}", early_loss, "nats"),
            "gold": Measured("wrong tokens with gold prefixes", gold.wrong.mean().item()),
            "own": Measured("wrong tokens with own prefixes", own.wrong.mean().item()),
        },
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


# With and without a cache


def _stack(*, causal: bool) -> EncoderStack:
    with seeded(0):
        return plain_stack(D, 2, causal=causal).eval()


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


@measures("cached-decoding", causal=(True, False))
def cached(size: Size, *, causal: bool) -> Series:
    """Measure whether tokens change when later ones are added, and count the operations saved by a cache."""
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
    rows = [
        {"tokens": n, **{f"FLOPs, {name}": float(costs[i]) for name, costs in cost.items()}}
        for i, n in enumerate(lengths)
    ]
    return Series(
        {
            "change": Measured("largest change of a token by those that follow it", change, expected=0.0),
            "saved": Measured(f"operations that a cache saves for {lengths[-1]} tokens, factor", anew / kept),
        },
        rows,
        [
            Curves("Operations to generate a text", "tokens", "FLOPs", over(lengths, cost), log="xy"),
            Curves(
                "Change of each token caused by later ones",
                "token",
                "largest difference",
                numbered({"change": (stepwise - whole).abs().amax(-1).tolist()}),
            ),
        ],
    )
