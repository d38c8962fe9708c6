"""Mixing positions without attention: its cost, its abilities and its limits; convolutions over text.

Items 84 (depthwise separable convolution), 86 (FNet), 87 (MLP-Mixer) and 88 (convolutions over text) of the
lectures.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.lab.drawing import Bars, Curves, of_rows
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures
from heedful.lab.experiments.transfer import BATCH, END, START, data
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import Training, flops_of, n_parameters, train
from heedful.models import encoder
from heedful.models.encoder import EncoderConfig, class_head
from heedful.models.language_model import LanguageModel
from heedful.models.mixers import (
    AttentionConfig,
    FourierConfig,
    MixerSection,
    PositionMLPConfig,
    SeparableConvolutionConfig,
)
from heedful.models.sections import FeedForwardConfig
from heedful.models.stacks import LayerConfig, embedding_table, token_head
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.cells import LSTMCell
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.mixers import Convolution, DepthwiseSeparableConvolution, FourierMixer, PositionMLP
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Added, NoPositions
from heedful.nn.recurrent import Recurrence
from heedful.nn.residual import PreNorm
from heedful.objectives.classification import SequenceClass, class_logits
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant, Cosine

# Depthwise separable and full convolution


@measures("separable-convolution", kernel=(5, 1))
def cost(size: Size, kernel: int) -> Series:
    """Count parameters and operations of both convolutions with one kernel size."""
    d, n = (64, 32) if size == "short" else (512, 512)
    with seeded(0):
        parts: dict[str, nn.Module] = {
            "separable": DepthwiseSeparableConvolution(d, kernel, bias=False),
            "full": Convolution(d, kernel, bias=False),
        }
    parameters = {name: n_parameters(part) for name, part in parts.items()}
    flops = {name: _flops(part, torch.zeros(n, d)) for name, part in parts.items()}
    rows = [
        {"k": k, "separable": k * d + d**2, "full": k * d**2, "ratio": k * d / (k + d)}
        for k in (1, 3, 5, 9, 15, 31)
    ]
    by_formula = {"separable": kernel * d + d**2, "full": kernel * d**2}
    return Series(
        {
            **{
                f"{name}_parameters": Measured(
                    f"parameters, {name}, k = {kernel}", parameters[name], expected=number
                )
                for name, number in by_formula.items()
            },
            **{
                f"{name}_flops": Measured(
                    f"operations for each token, {name}", flops[name] / n, "FLOPs", 2 * number
                )
                for name, number in by_formula.items()
            },
        },
        rows,
        [
            Curves(
                f"Parameters of a convolution, d = {d}",
                "kernel size k",
                "parameters",
                of_rows(rows, "k", {"full: k d²": "full", "separable: k d + d²": "separable"}),
                log="xy",
            )
        ],
    )


@torch.no_grad()
def _flops(part: nn.Module, x: Float[Tensor, "n d"]) -> int:
    return flops_of(lambda: part(x, Layout.of([len(x)])))


# Mixers with equal budgets

D, SYMBOLS, LENGTH = 32, 16, 11
CLASSIFY, SEPARATE, FIRST = 0, 1, 2  # ids
KINDS = 2
"""Number of symbols, the lowest ids, that occur at the ends; all others occur in between."""


def ends(n: int, generator: torch.Generator) -> Batch:
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


def _model(mixer: str, d_ff: int) -> Any:
    with seeded(0):
        model = encoder.build(config_of(mixer, d_ff), SYMBOLS + FIRST)
        model.heads["class"] = class_head(D, 2, dropout=0.0)
    return model


def at_budget(mixer: str, parameters: int) -> Any:
    """Build the model whose feed-forward width brings its parameters nearest to a number."""
    one, two = (n_parameters(_model(mixer, d_ff)) for d_ff in (1, 2))
    return _model(mixer, max(1, 1 + round((parameters - one) / (two - one))))


@dataclass(frozen=True)
class Learned:
    """A trained model.

    Args:
        model: the model.
        training: losses by update.
        right: accuracy on new sequences.
    """

    model: Any
    training: Training
    right: float


@cache
def learned(mixer: str, parameters: int, size: Size) -> Learned:
    """Train a model with this many parameters."""
    model = at_budget(mixer, parameters)
    updates, test = (160, 256) if size == "short" else (600, 2048)
    rate = Cosine(peak=6e-3, warmup=20, updates=updates)
    generator = generator_from(3)
    batches = (ends(32, generator) for _ in range(updates))
    training = train(model, SequenceClass(), batches, AdamConfig(), rate)
    batch = ends(test, generator_from(4))
    assert batch.classes is not None
    with torch.no_grad():
        layout = batch.inputs.layout
        logits = class_logits(model(batch.inputs), model.heads, layout)
    return Learned(model, training, (logits.argmax(-1) == batch.classes).float().mean().item())


@measures("mixers-at-equal-budget", judged=(("fourier", "mlp"), ("separable",)))
def compared(size: Size, judged: tuple[str, ...]) -> Series:
    """Train attention and other mixers with as many parameters on one task."""
    budget = n_parameters(_model("attention", 64))
    results = {mixer: learned(mixer, budget, size) for mixer in ("attention", *judged)}
    right = {mixer: each.right for mixer, each in results.items()}
    ordered = {mixer: right[mixer] for mixer in (*judged, "attention")}
    parameters = n_parameters(results[judged[0]].model)
    return Series(
        {
            **measured_each("right classes, {}", ordered),
            "parameters": Measured(f"parameters, {judged[0]}", parameters, expected=float(budget)),
            "least": min(right[mixer] for mixer in judged),
            "attention": right["attention"],
        },
        [
            {
                "mixer": mixer,
                "right classes": right[mixer],
                "parameters": n_parameters(each.model),
                "of its mixers": n_parameters(*(block.mixer.part for block in each.model.stack.blocks)),
                "d_ff": each.model.stack.blocks[0].feed_forward.part.up.out_features,
            }
            for mixer, each in results.items()
        ],
        [
            Curves(
                "Training loss (task: are both ends the same?)",
                "update",
                "nats per sequence",
                {mixer: each.training.curve for mixer, each in results.items()},
            ),
            Bars("Accuracy on new sequences", "", "accuracy", right, levels={"chance": 0.5}),
        ],
    )


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
    other = x.clone()
    other[-1] += 1.0
    layout = Layout.of([_N])
    return (part(x, layout) - part(other, layout))[:-1].abs().max().item()


@torch.no_grad()
def takes_longer(part: nn.Module) -> bool:
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
def stands(size: Size, judged: tuple[str, ...]) -> Series:
    """Measure whether parts leave earlier tokens unchanged and accept sequences of any length."""
    with seeded(0):
        parts = {name: make().eval() for name, make in PARTS.items()}
    change = {name: change_of_earlier(part) for name, part in parts.items()}
    longer = {name: takes_longer(part) for name, part in parts.items()}
    changes, reads = ({name: float(each[name]) for name in judged} for each in (change, longer))
    return Series(
        {
            **measured_each("change of earlier tokens by the last, {}", changes),
            **measured_each("reads longer sequences, {}", reads),
            "most": max(changes.values()),
            "longer": all(reads.values()),
        },
        [
            {
                "part": name,
                "change of earlier tokens": change[name],
                "reads longer sequences": "yes" if longer[name] else "no",
                "parameters": n_parameters(part),
            }
            for name, part in parts.items()
        ],
        [Bars("Change of earlier tokens by the last one", "", "largest change", change)],
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
        block = EncoderBlock(
            PreNorm(TEXT_MIXERS[mixer](), LayerNorm(TEXT_WIDTH)),
            PreNorm(FeedForward(TEXT_WIDTH, 2 * TEXT_WIDTH), LayerNorm(TEXT_WIDTH)),
        )
        embedding = TokenEmbedding(table, Added(NoPositions(TEXT_WIDTH)), scale=math.sqrt(TEXT_WIDTH))
        return LanguageModel(
            embedding,
            EncoderStack([block], LayerNorm(TEXT_WIDTH)),
            token_head(TEXT_WIDTH, data().n_ids, table),
        )


def part_of(model: LanguageModel) -> nn.Module:
    """Return the mixer of the model."""
    blocks: Any = model.stack.blocks
    part: nn.Module = blocks[0].mixer.part
    return part


@torch.no_grad()
def operations(mixer: str, n: int) -> float:
    """Count the FLOPs per word of the mixer alone, for ``n`` words."""
    return flops_of(lambda: part_of(text_model(mixer))(torch.zeros(n, TEXT_WIDTH), Layout.of([n]))) / n


TEXT_RATE, TEXT_UPDATES = 0.01, {"short": 150, "long": 600}


@dataclass(frozen=True)
class LearnedText:
    """Results of a training run.

    Args:
        training: losses by update.
        nats: loss per word of new sentences.
        right: share of their words predicted correctly.
    """

    training: Training
    nats: float
    right: float


@cache
def learned_text(mixer: str, updates: int) -> LearnedText:
    """Train a model, and evaluate it on new sentences."""
    model, generator = text_model(mixer), generator_from(0)
    known = data().plain
    chosen = (torch.randint(len(known), (BATCH,), generator=generator).tolist() for _ in range(updates))
    batches = (Batch.teacher_forced(None, [known[i] for i in each], start=START, end=END) for each in chosen)
    training = train(model, NextToken(), batches, AdamConfig(), Constant(TEXT_RATE, warmup=10))
    new = Batch.teacher_forced(None, [ids for ids, _ in data().tested], start=START, end=END)
    with torch.no_grad():
        scores = model.heads["token"](model(new.inputs)).log_softmax(-1)
    nats = -scores.gather(1, new.targets[:, None]).mean().item()
    return LearnedText(training, nats, (scores.argmax(-1) == new.targets).float().mean().item())


@measures("convolution-or-lstm", judged=("convolution of 5", "convolution of 1"))
def text_compared(size: Size, judged: str) -> Series:
    """Compare an LSTM with a convolution in its place."""
    found = {mixer: learned_text(mixer, TEXT_UPDATES[size]) for mixer in (LSTM, judged)}
    flops = {mixer: operations(mixer, 16) for mixer in found}
    right = {mixer: 100 * found[mixer].right for mixer in (judged, LSTM)}
    return Series(
        {
            "nats": Measured(f"nats a word, {judged}", found[judged].nats),
            "lstm": Measured(f"nats a word, {LSTM}", found[LSTM].nats),
            **measured_each("right words, {}", right, "%"),
            **measured_each("operations a word, {}", {mixer: flops[mixer] for mixer in right}, "FLOPs"),
        },
        [
            {
                "mixer": mixer,
                "nats a word": each.nats,
                "right words": each.right,
                "operations a word": flops[mixer],
                "parameters": n_parameters(part_of(text_model(mixer))),
            }
            for mixer, each in found.items()
        ],
        [
            Curves(
                "Training loss",
                "update",
                "nats per word",
                {mixer: each.training.curve for mixer, each in found.items()},
            ),
            Bars("Operations of the mixer", "", "FLOPs per word", flops),
        ],
    )
