"""Recurrent networks: gradients over a distance, and what a single context vector holds of a sentence.

Items 1, 2, 4, 8 and 10 of the lectures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, curves_over, numbered_curves
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import n_parameters, slope, train
from heedful.models import recurrent
from heedful.models.cells import RNNConfig
from heedful.models.recurrent import RecurrentConfig, RecurrentEncoderDecoder
from heedful.models.sections import DotConfig
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.cells import Cell, ElmanCell, LSTMCell
from heedful.nn.layout import Layout
from heedful.nn.recurrent import Recurrence
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig, clip, gradient_norm
from heedful.training.schedules import Cosine

D = 32

# Gradients over a distance

MIXERS: dict[str, Callable[[], nn.Module]] = {
    "RNN": lambda: Recurrence(ElmanCell(D, D)),
    "LSTM": lambda: Recurrence(LSTMCell(D, D)),
    "attention": lambda: SelfAttention(D, 4, causal=True),
}


def gradient_by_distance(make: Callable[[], nn.Module], n: int, seed: int) -> Float[Tensor, " n"]:
    """Return the norm of the gradient of the last output with respect to each input, by distance.

    Entry k is that of the input k tokens back. The output is multiplied by a random vector; inputs and
    initial weights are random too.
    """
    with seeded(seed):
        mixer = make().double()
        x, weights = torch.randn(n, D, dtype=torch.float64), torch.randn(D, dtype=torch.float64)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(mixer(x, Layout.of([n]))[-1] @ weights, x)
    return gradient.norm(dim=-1).flip(0)


@cache
def shares_by_distance(n: int, seeds: int) -> dict[str, list[float]]:
    """Return the gradients of all `MIXERS` by distance, relative to distance 1; geometric means."""
    shares: dict[str, list[float]] = {}
    for name, make in MIXERS.items():
        logs = torch.stack([gradient_by_distance(make, n, seed).log() for seed in range(seeds)]).mean(0)
        shares[name] = (logs[1:] - logs[1]).exp().tolist()
    return shares


@measures("gradient-over-distance", judged=("RNN", "attention"))
def measure_gradient_by_distance(size: Size, judged: str) -> Series:
    """Measure how fast the gradient of one of `MIXERS` decreases, compared with the others."""
    n, seeds = (33, 4) if size == "short" else (129, 16)
    distances, shares = list(range(1, n)), shares_by_distance(n, seeds)
    # Factor per token, fitted at distances at which the nearest tokens no longer matter.
    logs = {
        name: torch.tensor(by_distance[4:], dtype=torch.float64).log2().tolist()
        for name, by_distance in shares.items()
    }
    factors = {name: 2.0 ** slope(distances[4:], by_distance) for name, by_distance in logs.items()}
    powers_of_two = [k for k in distances if k & (k - 1) == 0]
    table_shares = {name: [by_distance[k - 1] for k in powers_of_two] for name, by_distance in shares.items()}
    ordered = dict(sorted(factors.items(), key=lambda item: item[0] != judged))
    return Series(
        {
            **measured_each("what a token of distance leaves of the gradient, {}", ordered),
            "factor": factors[judged],
        },
        table_of({"distance": powers_of_two, **table_shares}),
        [
            Curves(
                "Gradient of the last output w.r.t. earlier tokens",
                "distance in tokens",
                "norm, relative to that at distance 1",
                curves_over(distances, shares),
                log="y",
            )
        ],
    )


# The cell of 1997 and the forget gate

OPEN = 100.0
"""A bias that makes the sigmoid equal 1 in fp64: a forget gate that cannot close has no effect."""
MEMORIES: dict[str, Callable[[], Cell]] = {
    "RNN (no additive memory)": lambda: ElmanCell(D, D),
    "LSTM of 1997 (no forget gate)": lambda: LSTMCell(D, D, forget_bias=OPEN),
    "LSTM with a forget gate": lambda: LSTMCell(D, D, forget_bias=0.0),
    "LSTM with a forget gate, its bias 1": lambda: LSTMCell(D, D, forget_bias=1.0),
}
_RNN, _CAROUSEL, _GATED = list(MEMORIES)[:3]


@cache
def memory_gradients(make: Callable[[], Cell], n: int, interval: int = 1, seed: int = 0) -> list[float]:
    """Return the gradient norm of the memory w.r.t. the initial memory, after every ``interval`` of n steps.

    Only the memory's own path is measured. The memory is c for an LSTM, whose gates then depend on the inputs
    only, and h for an RNN, which has no other path. The memory is multiplied by a random vector of norm 1.
    """
    with seeded(seed):
        cell = make().double()
        x, weights = torch.randn(n, 1, D, dtype=torch.float64), torch.randn(D, dtype=torch.float64)
    weights = weights / weights.norm()
    if isinstance(cell, LSTMCell):
        nn.init.zeros_(cell.recurrent.weight)
    *hidden, first = cell.initial(1, x)
    state: tuple[Tensor, ...] = (*hidden, first.requires_grad_())
    norms = []
    for step, inputs in enumerate(cell.project(x), 1):
        state = cell(inputs, state)
        if step % interval:
            continue
        (gradient,) = torch.autograd.grad(state[-1][0] @ weights, first, retain_graph=True)
        norms.append(gradient.norm().item())
    return norms


@measures("forget-gate", addition=(_GATED, _CAROUSEL), without=(_CAROUSEL, _RNN))
def measure_gradient_through_memory(size: Size, addition: str, without: str) -> Series:
    """Measure whether an addition to a memory preserves more of the gradient."""
    n, interval = (40, 1) if size == "short" else (400, 20)
    norms = {name: memory_gradients(make, n, interval) for name, make in MEMORIES.items()}
    ordered = sorted(norms.items(), key=lambda item: item[0] != addition)
    last_norms = {name: norms_by_step[-1] for name, norms_by_step in ordered}
    curves = curves_over(range(interval, n + 1, interval), norms)
    return Series(
        {
            **measured_each(f"gradient after {n} steps, {{}}", last_norms, expected={_CAROUSEL: 1.0}),
            "kept": last_norms[addition],
            "kept_without": last_norms[without],
        },
        panels=[Curves("Gradient w.r.t. the initial memory", "steps", "norm", curves, log="y")],
    )


# Clipping

LIMIT = 1.0


@measures("clipping", gain=(1.5, 0.5))
def measure_clipped_gradients(size: Size, gain: float) -> Series:
    """Clip the gradient of an RNN whose steps multiply it by ``gain``, and measure it at the first token.

    The recurrent matrix is an orthogonal matrix times the gain, and the inputs are so small that tanh is
    linear. So the gradient with respect to the token k steps back has the norm gain^k.
    """
    n = 30 if size == "short" else 40
    with seeded(0):
        cell = ElmanCell(D, D).double()
        nn.init.orthogonal_(cell.input.weight)
        x = nn.Parameter(1e-9 * torch.randn(n, D, dtype=torch.float64))
        weights = torch.randn(D, dtype=torch.float64)
    with torch.no_grad():
        cell.recurrent.weight *= gain
    (Recurrence(cell)(x, Layout.of([n]))[-1] @ (weights / weights.norm())).backward()
    assert x.grad is not None
    unclipped, norm = x.grad.norm(dim=-1).clone(), gradient_norm([x])
    clip([x], LIMIT, norm)
    clipped = x.grad.norm(dim=-1)
    gradients = {"before clipping": unclipped.flip(0).tolist(), "clipped": clipped.flip(0).tolist()}
    exploded = gain ** (n - 1)
    return Series(
        {
            "clipped": Measured("gradient at the first token, clipped", clipped[0].item()),
            "before": Measured("gradient at the first token, before", unclipped[0].item(), expected=exploded),
            "norm": Measured("norm of all gradients, before", norm.item()),
            "clipped_norm": Measured("norm of all gradients, clipped", gradient_norm([x]).item()),
        },
        panels=[
            Curves(
                f"Gradients, multiplied by {gain:g} at each step",
                "distance in tokens",
                "norm",
                curves_over(range(n), gradients),
                levels={"limit": LIMIT},
                log="y",
            )
        ],
    )


# One vector for a sentence
#
# Sentences of random symbols must be generated in reverse order, so that the first word read is the last
# one generated: it has the longest path of all words, as the lecture says of "She" in its figure of an
# encoder and a decoder.

SYMBOLS, START, END, FIRST = 10, 0, 1, 2  # number of symbols, and ids
SHORTEST = 2
TESTED = 100  # sentences of each length, but at most a tenth of all possible ones
BATCH, RATE = 32, 5e-3
Words = tuple[int, ...]


@dataclass(frozen=True)
class Setting:
    """A setting to train.

    Args:
        attends: whether the decoder uses attention, or the encoder's last state at each step.
        in_order: whether sentences are generated in the order in which they are read.
        d: width of the states.
    """

    attends: bool
    in_order: bool = False
    d: int = 32


FIXED, ATTENTION = "fixed context", "attention"
SETTINGS = {FIXED: Setting(attends=False), ATTENTION: Setting(attends=True)}
WIDER, IN_ORDER = "fixed context, twice as wide", "fixed context, written in order"
FURTHER = {WIDER: Setting(attends=False, d=64), IN_ORDER: Setting(attends=False, in_order=True)}
"""Additional settings of the long form."""


def model_of(setting: Setting, seed: int) -> RecurrentEncoderDecoder:
    """Build an RNN encoder, and an RNN decoder that starts from the encoder's last state.

    Scores are dot products, which have no parameters, and annotations are as wide as the last state. So the
    parameters with and without attention have the same number and shapes.
    """
    config = RecurrentConfig(
        cell=RNNConfig(),
        d_embedding=16,
        d_hidden=setting.d,
        direction="left-to-right",
        attention=DotConfig() if setting.attends else None,
        bridge="copy",
    )
    with seeded(seed):
        return recurrent.build(config, FIRST + SYMBOLS, FIRST + SYMBOLS)


def _sentence(length: int, generator: torch.Generator) -> Words:
    return tuple((FIRST + torch.randint(SYMBOLS, (length,), generator=generator)).tolist())


@cache
def draw_test_sentences(length: int) -> tuple[Words, ...]:
    """Draw distinct sentences of one length, which are excluded from training."""
    generator = generator_from(100 + length)
    sentences: dict[Words, None] = {}
    while len(sentences) < min(TESTED, SYMBOLS**length // 10):
        sentences[_sentence(length, generator)] = None
    return tuple(sentences)


def draw_sentences(n: int, longest: int, generator: torch.Generator) -> list[Words]:
    """Draw training sentences, with uniformly distributed lengths."""
    sentences: list[Words] = []
    while len(sentences) < n:
        length = int(torch.randint(SHORTEST, longest + 1, (), generator=generator))
        sentence = _sentence(length, generator)
        if sentence not in draw_test_sentences(length):
            sentences.append(sentence)
    return sentences


def batch_of(sentences: Sequence[Words], in_order: bool) -> Batch:
    """Build a teacher-forced batch of sentences and their targets."""
    targets = sentences if in_order else [sentence[::-1] for sentence in sentences]
    return Batch.teacher_forced(sentences, targets, start=START, end=END)


@cache
def train_model(setting: Setting, longest: int, updates: int, seed: int) -> RecurrentEncoderDecoder:
    """Train a model for this many updates on sentences of at most ``longest`` words."""
    model, generator = model_of(setting, seed), generator_from(1000 + seed)

    batches = (batch_of(draw_sentences(BATCH, longest, generator), setting.in_order) for _ in range(updates))
    train(model, NextToken(), batches, AdamConfig(), Cosine(RATE, updates, 20))
    return model


@torch.no_grad()
def correct_words(
    model: RecurrentEncoderDecoder, sentences: Sequence[Words], in_order: bool
) -> Float[Tensor, "n length"]:
    """Return 1 for each word that is predicted correctly and 0 for others, in the order of reading.

    All sentences have one length. Every word is predicted after the correct ones before it. These are
    uninformative, since words are drawn independently: the result measures what the decoder knows of the
    source, not how errors accumulate.
    """
    batch = batch_of(sentences, in_order)
    assert batch.source is not None
    logits = model.heads["token"](model(batch.inputs, batch.source))
    is_correct = (logits.argmax(-1) == batch.targets).float().view(len(sentences), -1)[:, :-1]
    return is_correct if in_order else is_correct.flip(1)


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of predicted words.

    Args:
        by_length: accuracy on sentences of `SHORTEST` words and more.
        by_place: accuracy on the longest sentences, by position in the source sentence.
    """

    by_length: Sequence[float]
    by_place: Sequence[float]


def mean_accuracy(setting: Setting, longest: int, updates: int, seeds: int) -> Accuracy:
    """Return the mean accuracy over models with different initial weights and training data."""
    by_length = []
    for length in range(SHORTEST, longest + 1):
        models = (train_model(setting, longest, updates, seed) for seed in range(seeds))
        by_length.append(
            torch.cat(
                [correct_words(model, draw_test_sentences(length), setting.in_order) for model in models]
            )
        )
    return Accuracy([is_correct.mean().item() for is_correct in by_length], by_length[-1].mean(0).tolist())


LONGEST, UPDATES, SEEDS = {"short": 8, "long": 12}, {"short": 150, "long": 400}, {"short": 1, "long": 2}


@measures("one-vector", longest=(None, 3))
def measure_accuracy_by_sentence_length(size: Size, longest: int | None) -> Series:
    """Measure accuracy by sentence length, and by position in the longest sentences."""
    longest = longest or LONGEST[size]
    settings = SETTINGS | (FURTHER if size == "long" else {})
    accuracies = {
        name: mean_accuracy(setting, longest, UPDATES[size], SEEDS[size])
        for name, setting in settings.items()
    }
    by_length = {name: accuracy.by_length for name, accuracy in accuracies.items()}
    by_place = {name: accuracy.by_place for name, accuracy in accuracies.items() if name != IN_ORDER}
    lengths = range(SHORTEST, longest + 1)
    deciding = {name: deciding_values(accuracy) for name, accuracy in accuracies.items()}
    fall, first, last = (
        {name: 100 * values[key] for name, values in deciding.items()} for key in ("fall", "first", "last")
    )
    parameters = {name: n_parameters(model_of(setting, 0)) for name, setting in settings.items()}
    longest_title = f"Accuracy in sentences of {longest} words"
    y = "share of correct words"
    final_accuracies = {name: accuracy[-1] for name, accuracy in by_length.items()}
    return Series(
        {
            **measured_each(f"fewer right words of {longest} than of {SHORTEST}, {{}}", fall, "points"),
            **measured_each(f"first of {longest} words right, {{}}", first, "%"),
            **measured_each(f"last of {longest} words right, {{}}", last, "%"),
            "chance": Measured("right by chance", 100 / SYMBOLS, "%"),
            **measured_each("parameters, {}", parameters),
            "fixed": deciding[FIXED],
            "attention": deciding[ATTENTION],
            "wider_gain": final_accuracies.get(WIDER, final_accuracies[FIXED]) - final_accuracies[FIXED],
            "in_order_loss": final_accuracies[FIXED]
            - final_accuracies.get(IN_ORDER, final_accuracies[FIXED]),
        },
        table_of({"words": lengths, **by_length}),
        [
            Curves(title, x, y, lines, limits=(0.0, 1.04), inches=(4.8, 3.8))
            for title, x, lines in (
                ("Accuracy by sentence length", "words in the sentence", curves_over(lengths, by_length)),
                (longest_title, "position in the source sentence", numbered_curves(by_place)),
            )
        ],
    )


def deciding_values(accuracy: Accuracy) -> dict[str, float]:
    """Return the values for the verdict: accuracy on the first and the last word of the longest sentences.

    ``fall`` is the decrease in accuracy from the shortest sentences to the longest.
    """
    fall = accuracy.by_length[0] - accuracy.by_length[-1]
    return {"fall": fall, "first": accuracy.by_place[0], "last": accuracy.by_place[-1]}
