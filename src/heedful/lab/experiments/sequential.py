"""Sequential dependencies of encoders and decoders, and of their training.

Items 17 and 61 of the lectures. Wall times are reported in a table and a panel; verdicts depend on
the depth of dependencies and on operation counts.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from heedful.lab.drawing import Curves, curves_over
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, named_each, table_of
from heedful.lab.seeds import cache, seeded
from heedful.lab.tiny import flops_of, milliseconds, n_parameters, operations_behind, plain_stack, slope
from heedful.models.base import Model
from heedful.models.cells import LSTMConfig
from heedful.models.mixers import AttentionConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.recurrent import decoder as recurrent_decoder
from heedful.models.registry import build_model
from heedful.models.sections import AdditiveConfig, FeedForwardConfig
from heedful.models.stacks import LayerConfig, decoder_stack
from heedful.models.transformer import TransformerConfig
from heedful.nn.attention.recurrent import EncoderOutput
from heedful.nn.cells import ElmanCell, LSTMCell
from heedful.nn.layout import Layout, Tokens
from heedful.nn.recurrent import Recurrence

D = 32


def depth(result: Tensor) -> int:
    """Return the length of the longest chain of operations that leads to ``result``, as recorded by autograd.

    These operations must run one after the other, however many processors there are.
    """
    depths: dict[Node, int] = {}
    for node, inputs in operations_behind(result).items():
        depths[node] = 1 + max((depths[input_node] for input_node in inputs), default=0)
    return max(depths.values())


ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "RNN": lambda: Recurrence(ElmanCell(D, D)),
    "LSTM": lambda: Recurrence(LSTMCell(D, D)),
    "attention": lambda: plain_stack(D, 2, causal=False),
}


def build_run(build: Callable[[], nn.Module], n: int) -> Callable[[], Tensor]:
    """Build an encoder and its input of ``n`` tokens; return a function that runs it."""
    with seeded(0):
        encoder, x = build(), torch.randn(n, D)
    return partial(encoder, x, Layout.of([n]))


@cache
def encoder_depth(name: str, n: int) -> int:
    """Return the depth of one of `ENCODERS`."""
    return depth(build_run(ENCODERS[name], n)())


@measures("serial-encoder", judged=(("RNN", "LSTM"), ("attention",)))
def measure_depth_by_length(size: Size, judged: Sequence[str]) -> Series:
    """Measure depth by number of tokens, for all encoders."""
    lengths = [4, 8, 16, 32] if size == "short" else [4, 8, 16, 32, 64, 128, 256]
    depths = {name: [encoder_depth(name, n) for n in lengths] for name in ENCODERS}
    times = {name: [_time(build_run(build, n)) for n in lengths] for name, build in ENCODERS.items()}
    growth = {name: slope(lengths, depths[name]) for name in judged}
    last_depths = {name: by_length[-1] for name, by_length in depths.items()}
    deeper = depth(build_run(lambda: plain_stack(D, 3, causal=False), 8)())
    by_layer = deeper - encoder_depth("attention", 8)
    return Series(
        {
            **measured_each("further operations in a row for each token, {}", growth),
            **measured_each(f"operations in a row for {lengths[-1]} tokens, {{}}", last_depths),
            "by_layer": Measured("further operations in a row for each layer of attention", by_layer),
            "growth": list(growth.values()),
        },
        table_of({"tokens": lengths, **named_each("in a row, {}", depths), **named_each("ms, {}", times)}),
        [
            Curves("Sequential operations", "tokens", "longest chain", curves_over(lengths, depths)),
            _time_panel(lengths, times, "tokens"),
        ],
    )


def _time(computation: Callable[[], object]) -> float:
    """Time a computation without arguments, in milliseconds."""
    return milliseconds(lambda _: computation(), lambda: None)


def _time_panel(lengths: Sequence[int], times: Mapping[str, Sequence[float]], unit: str) -> Curves:
    """Draw wall times by number of tokens or words."""
    title = "Wall time here (not used for the verdict)"
    return Curves(title, unit, "ms", curves_over(lengths, times), log="xy")


def _recurrent_attention(n_source: int, n_target: int) -> Tensor:
    """Run a recurrent decoder with given h_i (Bahdanau et al. 2015)."""
    score = AdditiveConfig(d_attention=D)
    config = RecurrentConfig(d_embedding=D, d_hidden=D, attention=score)
    with seeded(0):
        part = recurrent_decoder(config)
        annotations, summary = torch.randn(n_source, config.d_annotation), torch.randn(1, D)
        x = torch.randn(n_target, D)
    encoded = EncoderOutput(annotations, Layout.of([n_source]), [], summary)
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
def measure_depth_by_source_length(size: Size, judged: str) -> Series:
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
            Curves(f"Longest chain by {unit}", unit, y, curves_over(lengths, depths))
            for unit, depths in (("source words", over_source), ("steps of the decoder", over_steps))
        ],
    )


# Training two translation models

TYPES = 50
CONFIGS: dict[str, RecurrentConfig | TransformerConfig] = {
    "LSTM with attention": RecurrentConfig(
        cell=LSTMConfig(), d_embedding=D, d_hidden=D, attention=AdditiveConfig(d_attention=D)
    ),
    "Transformer": ONE_LAYER,
}


@cache
def translator(name: str) -> Model:
    """Return one of `CONFIGS` with initial weights."""
    with seeded(0):
        return build_model(CONFIGS[name], TYPES, TYPES)


@cache
def draw_words(n: int) -> Tokens:
    """Draw ``n`` random words."""
    with seeded(1):
        return Tokens(torch.randint(TYPES, (n,)), Layout.of([n]))


def training_logits(name: str, n_source: int, n_target: int) -> Tensor:
    """Compute logits for all words of a given translation, as in training."""
    model = translator(name)
    return model.heads["token"](model(draw_words(n_target), draw_words(n_source)))


def step_logits(name: str, n: int) -> Tensor:
    """Compute logits for word ``n`` of a generated translation; earlier states are cached."""
    model = translator(name)
    with torch.no_grad():
        state = model.start(draw_words(n))
        if n > 1:
            _, state = model.extend(draw_words(n - 1), state)
    hidden, _ = model.extend(Tokens(torch.tensor([1]), state.next_layout((1,))), state)
    return model.heads["token"](hidden)


@cache
def sequential_operations(name: str, n: int, *, generated: bool) -> int:
    """Count sequential operations for a sentence of ``n`` words and a translation of the same length.

    If the translation is generated, each word is chosen from the output of its own step, so steps are
    sequential: the encoder and the first word, and then one step after the other.
    """
    if not generated:
        return depth(training_logits(name, n, n))
    return depth(training_logits(name, n, 1)) + sum(depth(step_logits(name, t)) for t in range(2, n + 1))


def train_step(name: str, n: int) -> None:
    """Run a training step with such a pair, forward and backward."""
    torch.autograd.grad(
        training_logits(name, n, n).sum(), list(translator(name).parameters()), allow_unused=True
    )


@torch.no_grad()
def generate_words(name: str, n: int) -> None:
    """Encode a sentence of ``n`` words and generate as many, one after the other."""
    model = translator(name)
    state = model.start(draw_words(n))
    for _ in range(n):
        hidden, state = model.extend(Tokens(torch.tensor([1]), state.next_layout((1,))), state)
        model.heads["token"](hidden)


def flops_per_word(name: str, n: int) -> float:
    """Count the FLOPs of a training step per word."""
    return flops_of(lambda: train_step(name, n)) / (2 * n)


@measures("trained-faster", generated=(False, True))
def compare_training_of_two_models(size: Size, generated: bool) -> Series:
    """Measure chains and operations of two translation models by number of words."""
    lengths = [4, 8, 16] if size == "short" else [4, 8, 16, 32, 64]
    n = lengths[-1]
    chains = {
        name: [sequential_operations(name, n, generated=generated) for n in lengths] for name in CONFIGS
    }
    growth = {name: slope(lengths, by_length) for name, by_length in chains.items()}
    counts = {name: [flops_per_word(name, n) for n in lengths] for name in CONFIGS}
    computation = generate_words if generated else train_step
    times = {name: [_time(partial(computation, name, n)) for n in lengths] for name in CONFIGS}
    last_chains, last_counts = (
        {name: by_length[-1] for name, by_length in by_name.items()} for by_name in (chains, counts)
    )
    recurrent, transformer = CONFIGS
    parameters = {name: n_parameters(translator(name)) for name in CONFIGS}
    mode, x, y = "generation" if generated else "training", "words per sentence", "FLOPs per word"
    return Series(
        {
            **measured_each("further operations in a row for each word, {}", growth),
            **measured_each(f"operations in a row for {n} words, {{}}", last_chains),
            **measured_each(
                f"operations of a training step for each of {n} words, {{}}", last_counts, "FLOPs"
            ),
            **measured_each("parameters, {}", parameters),
            "recurrent": growth[recurrent],
            "transformer": growth[transformer],
            "ratio": last_counts[transformer] / last_counts[recurrent],
            "timed": "generating one sentence" if generated else "a training step with one sentence",
        },
        table_of(
            {
                "words": lengths,
                **named_each("in a row, {}", chains),
                **named_each("FLOPs a word, {}", counts),
                **named_each("ms, {}", times),
            }
        ),
        [
            Curves(
                f"Sequential operations, {mode}", x, "longest chain", curves_over(lengths, chains), log="xy"
            ),
            Curves("Operations of a training step", x, y, curves_over(lengths, counts), limits=(0, None)),
            _time_panel(lengths, times, x),
        ],
    )
