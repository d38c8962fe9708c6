"""Sequential dependencies: operations that must run one after the other, in recurrence and in attention.

Items 17 and 61 of the lectures. Wall times are reported in a table and a panel; verdicts depend on the depth
of dependencies and on operation counts.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from heedful.lab.costs import flops_of, milliseconds
from heedful.lab.drawing import Curves, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import cache, seeded
from heedful.lab.tiny import n_parameters, slope
from heedful.models.attention_stack import cross_attention_stack, self_attention_stack
from heedful.models.recurrent import AdditiveAttention, RecurrentConfig
from heedful.models.recurrent import decoder as recurrent_decoder
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.nn.attention.recurrent import Encoded
from heedful.nn.cells import Cell, ElmanCell, LSTMCell
from heedful.nn.layout import Layout, Tokens
from heedful.nn.recurrent import Recurrence

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


Run = Callable[[], Tensor]
"""A computation whose model and inputs already exist."""


def _recurrent_encoder(n: int, cell: Callable[[int, int], Cell]) -> Run:
    with seeded(0):
        layer, x = Recurrence(cell(D, D)), torch.randn(n, D)
    return partial(layer, x, Layout.of([n]))


def _config(n_layers: int) -> TransformerConfig:
    return TransformerConfig(d_model=D, d_ff=4 * D, n_heads=4, n_layers=n_layers, dropout=0.0)


def _attention_encoder(n: int, n_layers: int = 2) -> Run:
    with seeded(0):
        stack, x = self_attention_stack(_config(n_layers), 4 * D, causal=False), torch.randn(n, D)
    return partial(stack, x, Layout.of([n]))


ENCODERS: dict[str, Callable[[int], Run]] = {
    "RNN": partial(_recurrent_encoder, cell=ElmanCell),
    "LSTM": partial(_recurrent_encoder, cell=LSTMCell),
    "attention": _attention_encoder,
}
"""Encoders by name: functions that build one for a number of tokens."""


@cache
def encoder_depth(name: str, n: int) -> int:
    """Return the depth of one of `ENCODERS`."""
    return depth(ENCODERS[name](n)())


def _waits(judged: Sequence[str], size: Size) -> Outcome:
    """Measure depth by number of tokens, for all encoders."""
    lengths = [4, 8, 16, 32] if size == "short" else [4, 8, 16, 32, 64, 128, 256]
    depths = {name: [encoder_depth(name, n) for n in lengths] for name in ENCODERS}
    times = {name: [_timed(make(n)) for n in lengths] for name, make in ENCODERS.items()}
    growth = {name: slope(lengths, own) for name, own in depths.items()}
    by_layers = [depth(_attention_encoder(8, n_layers)()) for n_layers in (1, 2, 3)]
    return Outcome(
        "holds" if all(growth[name] > 0.5 for name in judged) else "is wrong",
        "In a recurrent encoder, h_i depends on h_{i-1}, in a plain RNN as in an LSTM: the chain of "
        "operations grows with every token. In a Transformer's encoder the chain grows only with the number "
        "of layers. (On a processor with few cores, wall time depends on the number of calls, which grows "
        "with that chain.)",
        [
            *(
                Measured(f"further operations in a row for each token, {name}", growth[name])
                for name in judged
            ),
            *(
                Measured(f"operations in a row for {lengths[-1]} tokens, {name}", own[-1])
                for name, own in depths.items()
            ),
            Measured("further operations in a row for each layer of attention", by_layers[2] - by_layers[1]),
        ],
        [
            {
                "tokens": n,
                **{f"in a row, {name}": depths[name][i] for name in ENCODERS},
                **{f"ms, {name}": times[name][i] for name in ENCODERS},
            }
            for i, n in enumerate(lengths)
        ],
        [
            Curves(
                "Sequential operations",
                "tokens",
                "longest chain",
                over(lengths, depths),
            ),
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
    """Run a Transformer's decoder on the whole target."""
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
    """Return the depth of one of `DECODERS`."""
    return depth(DECODERS[name](n_source, n_target))


def _weighs(judged: str, size: Size) -> Outcome:
    """Measure the depth of a decoder by source words at a fixed number of steps, and by steps."""
    lengths = [4, 8, 16, 32] if size == "short" else [4, 8, 16, 32, 64, 128]
    over_source = {name: [decoder_depth(name, n, 4) for n in lengths] for name in DECODERS}
    over_steps = {name: [decoder_depth(name, 4, n) for n in lengths] for name in DECODERS}
    by_word, by_step = slope(lengths, over_source[judged]), slope(lengths, over_steps[judged])
    return Outcome(
        "holds" if abs(by_word) < 0.01 and by_step > 0.5 else "is wrong",
        "At one step t, the weights of all source words are computed in parallel. Different t are sequential "
        "in a recurrent decoder, whose next state needs the context of the step before. They are not in a "
        "Transformer's decoder that is given the whole target, as in training.",
        [
            Measured("further operations in a row for each source word", by_word, expected=0.0),
            Measured("further operations in a row for each step", by_step),
        ],
        panels=[
            Curves(
                f"Longest chain by {what}",
                what,
                "sequential operations",
                {name: (lengths, own) for name, own in found.items()},
            )
            for what, found in (("source words", over_source), ("steps of the decoder", over_steps))
        ],
    )


# Training two translation models

TYPES = 50
CONFIGS: dict[str, RecurrentConfig | TransformerConfig] = {
    "LSTM with attention": RecurrentConfig(
        cell="lstm", d_embedding=D, d_hidden=D, attention=AdditiveAttention(score="additive", d_attention=D)
    ),
    "Transformer": _config(1),
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


def step(name: str, n: int) -> Tensor:
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
    return depth(read(name, n, 1)) + sum(depth(step(name, so_far)) for so_far in range(2, n + 1))


def train(name: str, n: int) -> None:
    """Run a training step with such a pair, forward and backward."""
    torch.autograd.grad(read(name, n, n).sum(), list(translator(name).parameters()), allow_unused=True)


@torch.no_grad()
def write(name: str, n: int) -> None:
    """Encode a sentence of ``n`` words and generate as many, one after the other."""
    model = translator(name)
    state = model.start(words(n))
    for _ in range(n):
        hidden, state = model.extend(Tokens(torch.tensor([1]), state.next_layout((1,))), state)
        model.heads["token"](hidden)


def operations(name: str, n: int) -> float:
    """Count the FLOPs of a training step per word."""
    return flops_of(lambda: train(name, n)) / (2 * n)


FASTER = 2.0
"""Largest ratio of operations at which a step with a constant chain still counts as faster."""


def _trains(size: Size, written: bool) -> Outcome:
    """Measure chains and operations of two translation models by number of words."""
    lengths = [4, 8, 16] if size == "short" else [4, 8, 16, 32, 64]
    chains = {name: [chain(name, n, written=written) for n in lengths] for name in CONFIGS}
    growth = {name: slope(lengths, own) for name, own in chains.items()}
    counts = {name: [operations(name, n) for n in lengths] for name in CONFIGS}
    work = write if written else train
    times = {name: [_timed(partial(work, name, n)) for n in lengths] for name in CONFIGS}
    recurrent, transformer = CONFIGS
    ratio = counts[transformer][-1] / counts[recurrent][-1]
    faster = growth[transformer] < 0.01 < 0.5 < growth[recurrent] and ratio < FASTER
    return Outcome(
        "holds with conditions" if faster else "is wrong",
        "In training, a Transformer processes all words of both sentences in parallel: the length of its "
        "chain of operations is the same for every sentence, while that of a recurrent translation model "
        "grows with each word; both need about as many operations. So the Transformer is faster on hardware "
        "that runs many operations in parallel. Generation is not faster: in both, each word depends on the "
        "one before. (Times here are for "
        f"{'generating one sentence' if written else 'a training step with one sentence'}.)",
        [
            *(
                Measured(f"further operations in a row for each word, {name}", own)
                for name, own in growth.items()
            ),
            *(
                Measured(f"operations in a row for {lengths[-1]} words, {name}", own[-1])
                for name, own in chains.items()
            ),
            *(
                Measured(
                    f"operations of a training step for each of {lengths[-1]} words, {name}", own[-1], "FLOPs"
                )
                for name, own in counts.items()
            ),
            *(Measured(f"parameters, {name}", n_parameters(translator(name))) for name in CONFIGS),
        ],
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


EXPERIMENTS = [
    Experiment(
        "serial-encoder",
        "Whether all h_i can be computed at once",
        "The encoder's states h_i cannot be computed for all i in parallel.",
        "S0, attention: a quick tour; S1; S2",
        (17,),
        run=lambda size: _waits(("RNN", "LSTM"), size),
        control=lambda size: _waits(("attention",), size),
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
    Experiment(
        "trained-faster",
        "Whether a Transformer trains faster than a recurrent translation model",
        "The Transformer was proposed for translation, and trained faster than the models before it.",
        "S0, attention is all you need; Vaswani et al. 2017, section 4, table 1",
        (61,),
        run=partial(_trains, written=False),
        control=partial(_trains, written=True),
        changed="The translation is not given, but generated word by word.",
        expected=("holds with conditions", "is wrong"),
    ),
]
