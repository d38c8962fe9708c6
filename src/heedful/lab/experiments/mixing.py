"""Mixing positions without attention: its cost, its abilities and its limits; convolutions over text.

Items 84 (depthwise separable convolution), 86 (FNet), 87 (MLP-Mixer) and 88 (convolutions over text) of the
lectures.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.lab.drawing import Bars, Curves, curves_of_columns
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.experiments.transfer import BATCH, data, sentence_batch
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import (
    Training,
    class_accuracy,
    draw_from,
    flops_of,
    largest_difference,
    n_parameters,
    pre_norm_block,
    train,
    word_model,
)
from heedful.models import encoder
from heedful.models.encoder import Encoder, EncoderConfig, class_head
from heedful.models.language_model import LanguageModel
from heedful.models.mixers import (
    AttentionConfig,
    FourierConfig,
    MixerSection,
    PositionMLPConfig,
    SeparableConvolutionConfig,
)
from heedful.models.sections import FeedForwardConfig
from heedful.models.stacks import LayerConfig, embedding_table
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderStack
from heedful.nn.cells import LSTMCell
from heedful.nn.layout import Layout
from heedful.nn.mixers import Convolution, DepthwiseSeparableConvolution, FourierMixer, PositionMLP
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import NoPositions
from heedful.nn.recurrent import Recurrence
from heedful.objectives.classification import SequenceClass
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant, Cosine

# Depthwise separable and full convolution


@measures("separable-convolution", kernel=(5, 1))
def count_cost_of_convolutions(size: Size, kernel: int) -> Series:
    """Count parameters and operations of both convolutions with one kernel size."""
    d, n = (64, 32) if size == "short" else (512, 512)
    with seeded(0):
        parts: dict[str, nn.Module] = {
            "separable": DepthwiseSeparableConvolution(d, kernel, bias=False),
            "full": Convolution(d, kernel, bias=False),
        }
    rows = [
        {"k": k, "separable": k * d + d**2, "full": k * d**2, "ratio": k * d / (k + d)}
        for k in (1, 3, 5, 9, 15, 31)
    ]
    by_formula = {"separable": kernel * d + d**2, "full": kernel * d**2}
    parameters, flops = {}, {}
    for name, n_parameters_by_formula in by_formula.items():
        n_counted, operations = n_parameters(parts[name]), _flops(parts[name], n, d)
        names = f"parameters, {name}, k = {kernel}", f"operations for each token, {name}"
        parameters[f"{name}_parameters"] = Measured(names[0], n_counted, expected=n_parameters_by_formula)
        flops[f"{name}_flops"] = Measured(names[1], operations / n, "FLOPs", 2 * n_parameters_by_formula)
    return Series(
        {**parameters, **flops},
        rows,
        [
            Curves(
                f"Parameters of a convolution, d = {d}",
                "kernel size k",
                "parameters",
                curves_of_columns(rows, "k", {"full: k d²": "full", "separable: k d + d²": "separable"}),
                log="xy",
            )
        ],
    )


@torch.no_grad()
def _flops(part: nn.Module, n: int, d: int) -> int:
    """Count the operations of a mixer for ``n`` tokens of width ``d``."""
    return flops_of(lambda: part(torch.zeros(n, d), Layout.of([n])))


# Mixers with equal budgets

D, SYMBOLS, LENGTH = 32, 16, 11
CLASSIFY, SEPARATE, FIRST = 0, 1, 2  # ids
KINDS = 2
"""Number of symbols, the lowest ids, that occur at the ends; all others occur in between."""


def draw_sequences_with_ends(n: int, generator: torch.Generator) -> Batch:
    """Draw sequences of symbols; the class tells whether the first and the last symbol are the same.

    Neither of the two is informative without the other, nor are the symbols between them, which differ.
    """
    rows = torch.randint(KINDS, SYMBOLS, (n, LENGTH), generator=generator)
    outer = torch.randint(KINDS, (n, 2), generator=generator)
    rows[:, 0], rows[:, -1] = outer.unbind(1)
    parts = [[(row + FIRST).tolist()] for row in rows]
    classes = (outer[:, 0] == outer[:, 1]).long()
    return Batch.labelled(parts, classes.tolist(), classify=CLASSIFY, separate=SEPARATE)


BLOCK_MIXERS: dict[str, MixerSection] = {
    "attention": AttentionConfig(n_heads=4, dropout=0.0),
    "fourier": FourierConfig(),
    "mlp": PositionMLPConfig(),
    "separable": SeparableConvolutionConfig(kernel=3),
}


def config_of(mixer: str, d_ff: int) -> EncoderConfig:
    """Configure two blocks of a mixer and feed-forward layers, with mean pooling.

    The mean covers the whole sequence, whatever the mixer does. But a linear layer on a mean is a sum over
    tokens, so a function of two tokens must be computed before pooling.
    """
    return EncoderConfig(
        d_model=D,
        n_layers=2,
        layer=LayerConfig(
            mixer=BLOCK_MIXERS[mixer], channels=FeedForwardConfig(d_ff=d_ff), norm_placement="pre"
        ),
        max_length=LENGTH + 2,
        dropout=0.0,
        segments=0,
        pooling="mean",
        pooler=False,
    )


def _build_model(mixer: str, d_ff: int) -> Encoder:
    with seeded(0):
        model = encoder.build(config_of(mixer, d_ff), SYMBOLS + FIRST)
        model.heads["class"] = class_head(D, 2, dropout=0.0)
    return model


def build_at_budget(mixer: str, parameters: int) -> Encoder:
    """Build the model whose feed-forward width brings its parameters nearest to a number."""
    at_width_1, at_width_2 = (n_parameters(_build_model(mixer, d_ff)) for d_ff in (1, 2))
    return _build_model(mixer, max(1, 1 + round((parameters - at_width_1) / (at_width_2 - at_width_1))))


@dataclass(frozen=True)
class Learned:
    """A trained model.

    Args:
        model: the model.
        training: losses by update.
        accuracy: accuracy on new sequences.
    """

    model: Encoder
    training: Training
    accuracy: float


@cache
def train_model(mixer: str, parameters: int, size: Size) -> Learned:
    """Train a model with this many parameters."""
    model = build_at_budget(mixer, parameters)
    updates, test = (160, 256) if size == "short" else (600, 2048)
    rate = Cosine(peak=6e-3, warmup=20, updates=updates)
    generator = generator_from(3)
    batches = (draw_sequences_with_ends(32, generator) for _ in range(updates))
    training = train(model, SequenceClass(), batches, AdamConfig(), rate)
    return Learned(model, training, class_accuracy(model, draw_sequences_with_ends(test, generator_from(4))))


@measures("mixers-at-equal-budget", judged=(("fourier", "mlp"), ("separable",)))
def compare_mixers_at_equal_budget(size: Size, judged: tuple[str, ...]) -> Series:
    """Train attention and other mixers with as many parameters on one task."""
    budget = n_parameters(_build_model("attention", 64))
    runs = {mixer: train_model(mixer, budget, size) for mixer in ("attention", *judged)}
    models = [run.model for run in runs.values()]
    accuracies = {mixer: run.accuracy for mixer, run in runs.items()}
    accuracies_in_order = {mixer: accuracies[mixer] for mixer in (*judged, "attention")}
    parameters = n_parameters(runs[judged[0]].model)
    up = "stack.blocks.0.feed_forward.part.up.weight"
    return Series(
        {
            **measured_each("right classes, {}", accuracies_in_order),
            "parameters": Measured(f"parameters, {judged[0]}", parameters, expected=float(budget)),
            "least": min(accuracies[mixer] for mixer in judged),
            "attention": accuracies["attention"],
        },
        table_of(
            {
                "mixer": accuracies,
                "right classes": accuracies.values(),
                "parameters": map(n_parameters, models),
                "of its mixers": [n_parameters(*_mixers(model.stack)) for model in models],
                "d_ff": [len(model.get_parameter(up)) for model in models],
            }
        ),
        [
            Curves(
                "Training loss (task: are both ends the same?)",
                "update",
                "nats per sequence",
                {mixer: run.training.curve for mixer, run in runs.items()},
            ),
            Bars("Accuracy on new sequences", "", "accuracy", accuracies, levels={"chance": 0.5}),
        ],
    )


def _mixers(stack: EncoderStack) -> list[nn.Module]:
    return [block.mixer.part for block in stack.block_list]


# Limits of use

_N = 8
PARTS: dict[str, Callable[[], nn.Module]] = {
    "Fourier": FourierMixer,
    "network along positions": lambda: PositionMLP(D, _N, 2 * _N),
    "causal self-attention": lambda: SelfAttention(D, 4, causal=True),
    "causal separable convolution": lambda: DepthwiseSeparableConvolution(D, 3, causal=True),
}


@torch.no_grad()
def change_of_earlier(part: nn.Module) -> float:
    """Return the largest change of all other tokens if the last one changes."""
    with seeded(1):
        x = torch.randn(_N, D)
    changed = x.clone()
    changed[-1] += 1.0
    layout = Layout.of([_N])
    return largest_difference(part(x, layout)[:-1], part(changed, layout)[:-1])


@torch.no_grad()
def accepts_longer_sequences(part: nn.Module) -> bool:
    """Return whether a part accepts longer sequences than it was built for."""
    try:
        part(torch.zeros(2 * _N, D), Layout.of([2 * _N]))
    except RequestError:
        return False
    return True


@measures(
    "mixers-in-place-of-attention",
    judged=(
        ("Fourier", "network along positions"),
        ("causal separable convolution", "causal self-attention"),
    ),
)
def measure_causality_and_length_limits(size: Size, judged: tuple[str, ...]) -> Series:
    """Measure whether parts leave earlier tokens unchanged and accept sequences of any length."""
    with seeded(0):
        parts = {name: make().eval() for name, make in PARTS.items()}
    change_of_part = {name: change_of_earlier(part) for name, part in parts.items()}
    accepts_longer = {name: accepts_longer_sequences(part) for name, part in parts.items()}
    changes_of_judged, accepts_of_judged = (
        {name: float(by_part[name]) for name in judged} for by_part in (change_of_part, accepts_longer)
    )
    return Series(
        {
            **measured_each("change of earlier tokens by the last, {}", changes_of_judged),
            **measured_each("reads longer sequences, {}", accepts_of_judged),
            "most": max(changes_of_judged.values()),
            "longer": all(accepts_of_judged.values()),
        },
        table_of(
            {
                "part": parts,
                "change of earlier tokens": change_of_part.values(),
                "reads longer sequences": ["yes" if accepts else "no" for accepts in accepts_longer.values()],
                "parameters": map(n_parameters, parts.values()),
            }
        ),
        [Bars("Change of earlier tokens by the last one", "", "largest change", change_of_part)],
    )


# Convolutions over text: language models that differ only in their mixer, on the sentences of the phrasebook

TEXT_WIDTH = 48
LSTM = "LSTM"
TEXT_MIXERS: dict[str, Callable[[], nn.Module]] = {
    LSTM: lambda: Recurrence(LSTMCell(TEXT_WIDTH, TEXT_WIDTH)),
    "convolution of 5": lambda: Convolution(TEXT_WIDTH, 5, causal=True),
    "convolution of 1": lambda: Convolution(TEXT_WIDTH, 1, causal=True),
}


def text_model(mixer: str) -> LanguageModel:
    """Build one block of a mixer and a feed-forward layer; only the mixer can represent word order."""
    with seeded(0):
        table = embedding_table(data().n_ids, TEXT_WIDTH)
        block = pre_norm_block(TEXT_MIXERS[mixer](), TEXT_WIDTH, 2 * TEXT_WIDTH)
        return word_model(table, EncoderStack([block], LayerNorm(TEXT_WIDTH)), NoPositions(TEXT_WIDTH))


TEXT_RATE, TEXT_UPDATES = 0.01, {"short": 150, "long": 600}


@dataclass(frozen=True)
class LearnedText:
    """Results of a training run.

    Args:
        training: losses by update.
        nats: loss per word of new sentences.
        accuracy: share of their words predicted correctly.
    """

    training: Training
    nats: float
    accuracy: float


@cache
def train_text_model(mixer: str, updates: int) -> LearnedText:
    """Train a model, and evaluate it on new sentences."""
    model, generator = text_model(mixer), generator_from(0)
    batches = (sentence_batch(draw_from(data().plain, BATCH, generator)) for _ in range(updates))
    training = train(model, NextToken(), batches, AdamConfig(), Constant(TEXT_RATE, warmup=10))
    tested = sentence_batch([ids for ids, _ in data().tested])
    with torch.no_grad():
        scores = model.heads["token"](model(tested.inputs)).log_softmax(-1)
    nats = -scores.gather(1, tested.targets[:, None]).mean().item()
    return LearnedText(training, nats, (scores.argmax(-1) == tested.targets).float().mean().item())


@measures("convolution-or-lstm", judged=("convolution of 5", "convolution of 1"))
def compare_lstm_and_convolution(size: Size, judged: str) -> Series:
    """Compare an LSTM with a convolution in its place."""
    runs = {mixer: train_text_model(mixer, TEXT_UPDATES[size]) for mixer in (LSTM, judged)}
    parts = {mixer: _mixers(text_model(mixer).stack)[0] for mixer in runs}
    flops = {mixer: _flops(part, 16, TEXT_WIDTH) / 16 for mixer, part in parts.items()}
    accuracies = {mixer: 100 * runs[mixer].accuracy for mixer in (judged, LSTM)}
    return Series(
        {
            "nats": Measured(f"nats a word, {judged}", runs[judged].nats),
            "lstm": Measured(f"nats a word, {LSTM}", runs[LSTM].nats),
            **measured_each("right words, {}", accuracies, "%"),
            **measured_each("operations a word, {}", {mixer: flops[mixer] for mixer in accuracies}, "FLOPs"),
        },
        table_of(
            {
                "mixer": runs,
                "nats a word": [run.nats for run in runs.values()],
                "right words": [run.accuracy for run in runs.values()],
                "operations a word": flops.values(),
                "parameters": map(n_parameters, parts.values()),
            }
        ),
        [
            Curves(
                "Training loss",
                "update",
                "nats per word",
                {mixer: run.training.curve for mixer, run in runs.items()},
            ),
            Bars("Operations of the mixer", "", "FLOPs per word", flops),
        ],
    )
