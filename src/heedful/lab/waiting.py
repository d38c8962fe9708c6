"""What waits for what: operations that must be done one after the other, in recurrence and in attention.

Item 17 of the lectures. Wall times stand in tables, for people; verdicts rest on the depth of dependencies.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from heedful.lab.drawing import Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import seeded
from heedful.lab.tiny import slope
from heedful.models.attention_stack import cross_attention_stack, self_attention_stack
from heedful.models.recurrent import AdditiveAttention, RecurrentConfig
from heedful.models.recurrent import decoder as recurrent_decoder
from heedful.models.transformer import TransformerConfig
from heedful.nn.attention.recurrent import Encoded
from heedful.nn.cells import LSTMCell
from heedful.nn.layout import Layout
from heedful.nn.recurrent import Recurrence

D = 32


def depth(result: Tensor) -> int:
    """The longest chain of operations that lead to ``result``, as autograd recorded them.

    So many must be done one after the other, however many processors there are.
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


Run = Callable[[int], Tensor]
"""What is computed for so many tokens."""


def _recurrent_encoder(n: int) -> Tensor:
    with seeded(0):
        layer, x = Recurrence(LSTMCell(D, D)), torch.randn(n, D)
    return layer(x, Layout.of([n]))


def _config(n_layers: int) -> TransformerConfig:
    return TransformerConfig(d_model=D, d_ff=4 * D, n_heads=4, n_layers=n_layers, dropout=0.0)


def _attention_encoder(n: int, n_layers: int = 2) -> Tensor:
    with seeded(0):
        stack, x = self_attention_stack(_config(n_layers), 4 * D, causal=False), torch.randn(n, D)
    return stack(x, Layout.of([n]))


ENCODERS: dict[str, Run] = {"recurrent": _recurrent_encoder, "attention": _attention_encoder}


@cache
def encoder_depth(name: str, n: int) -> int:
    """Of one of `ENCODERS`."""
    return depth(ENCODERS[name](n))


def _waits(judged: str, size: Size) -> Outcome:
    """Depth over the number of tokens, of one of two encoders, beside the other."""
    lengths = [4, 8, 16, 32] if size == "short" else [4, 8, 16, 32, 64, 128, 256]
    depths = {name: [encoder_depth(name, n) for n in lengths] for name in ENCODERS}
    growth = {name: slope(lengths, own) for name, own in depths.items()}
    by_layers = [depth(_attention_encoder(8, n_layers)) for n_layers in (1, 2, 3)]
    return Outcome(
        "holds" if growth[judged] > 0.5 else "is wrong",
        "A recurrent encoder's h_i waits for h_{i-1}: the chain of operations grows with every token. In a "
        "Transformer's encoder the chain grows with the layers alone.",
        [
            Measured(f"further operations in a row for each token, {judged} encoder", growth[judged]),
            *(
                Measured(f"operations in a row for {lengths[-1]} tokens, {name} encoder", own[-1])
                for name, own in depths.items()
            ),
            Measured("further operations in a row for each layer of attention", by_layers[2] - by_layers[1]),
        ],
        [
            {
                "tokens": n,
                **{f"in a row, {name}": depths[name][i] for name in ENCODERS},
                **{f"ms, {name}": _milliseconds(run, n) for name, run in ENCODERS.items()},
            }
            for i, n in enumerate(lengths)
        ],
        [
            Curves(
                "Operations that wait for each other",
                "tokens",
                "longest chain",
                {name: (lengths, own) for name, own in depths.items()},
            )
        ],
    )


def _milliseconds(run: Run, n: int) -> float:
    """The shortest of three; for people, no verdict rests on it."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        run(n)
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def _recurrent_attention(n_source: int, n_target: int) -> Tensor:
    """What a recurrent decoder makes of given h_i (Bahdanau et al. 2014)."""
    score = AdditiveAttention(score="additive", d_attention=D)
    config = RecurrentConfig(d_embedding=D, d_hidden=D, attention=score)
    with seeded(0):
        part = recurrent_decoder(config)
        annotations, summary = torch.randn(n_source, config.d_annotation), torch.randn(1, D)
        x = torch.randn(n_target, D)
    encoded = Encoded(annotations, Layout.of([n_source]), [], summary)
    memories: Any
    caches: Any
    memories, caches = part.begin(encoded)
    return part(x, Layout.of([n_target]), memories, caches)


def _cross_attention(n_source: int, n_target: int) -> Tensor:
    """The same of a Transformer's decoder that is given the whole target."""
    with seeded(0):
        stack = cross_attention_stack(_config(1), 4 * D, 1)
        encoded, x = torch.randn(n_source, D), torch.randn(n_target, D)
    return stack(x, Layout.of([n_target]), stack.remember(encoded, Layout.of([n_source])))


DECODERS: dict[str, Callable[[int, int], Tensor]] = {
    "recurrent": _recurrent_attention,
    "Transformer": _cross_attention,
}


@cache
def decoder_depth(name: str, n_source: int, n_target: int) -> int:
    """Of one of `DECODERS`."""
    return depth(DECODERS[name](n_source, n_target))


def _weighs(judged: str, size: Size) -> Outcome:
    """Depth of a decoder over source words at a fixed number of steps, and over steps."""
    lengths = [4, 8, 16, 32] if size == "short" else [4, 8, 16, 32, 64, 128]
    over_source = {name: [decoder_depth(name, n, 4) for n in lengths] for name in DECODERS}
    over_steps = {name: [decoder_depth(name, 4, n) for n in lengths] for name in DECODERS}
    by_word, by_step = slope(lengths, over_source[judged]), slope(lengths, over_steps[judged])
    return Outcome(
        "holds" if abs(by_word) < 0.01 and by_step > 0.5 else "is wrong",
        "At one step t, the weights of all source words are computed at once. Over t they wait in a "
        "recurrent decoder, whose next state needs the context before it; not in a Transformer's decoder "
        "that is given the whole target, as in training.",
        [
            Measured("further operations in a row for each source word", by_word, expected=0.0),
            Measured("further operations in a row for each step", by_step),
        ],
        panels=[
            Curves(
                f"Longest chain over {what}",
                what,
                "operations in a row",
                {name: (lengths, own) for name, own in found.items()},
            )
            for what, found in (("source words", over_source), ("steps of the decoder", over_steps))
        ],
    )


EXPERIMENTS = [
    Experiment(
        "serial-encoder",
        "Whether all h_i can be computed at once",
        "The encoder's states h_i cannot be computed for all i in parallel.",
        "S0, attention: a quick tour; S1; S2",
        (17,),
        run=lambda size: _waits("recurrent", size),
        control=lambda size: _waits("attention", size),
        changed="The encoder is a Transformer's.",
    ),
    Experiment(
        "parallel-weights",
        "Which attention weights can be computed at once",
        "At a time step t, α_ti can be computed for all i in parallel; for all t it cannot.",
        "S0, attention: a quick tour",
        (17,),
        run=lambda size: _weighs("recurrent", size),
        control=lambda size: _weighs("Transformer", size),
        changed="The decoder is a Transformer's, and is given the whole target.",
    ),
]
