"""Convolutions over text compared with an LSTM: their predictions and their cost.

Item 88 of the lectures. Texts are the English side of the built-in phrasebook (`heedful.lab.transfer`).
Language models that differ only in their mixer learn to predict its next words.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.lab.costs import flops_of
from heedful.lab.drawing import Bars, Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import Training, n_parameters, train
from heedful.lab.transfer import BATCH, END, START, data
from heedful.models.encoder_decoder import embedding_table, token_head
from heedful.models.language_model import LanguageModel
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.cells import LSTMCell
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.mixers import Convolution
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Added, NoPositions
from heedful.nn.recurrent import Recurrence
from heedful.nn.residual import PreNorm
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# Models

D = 48
LSTM = "LSTM"
MIXERS: dict[str, Callable[[], nn.Module]] = {
    LSTM: lambda: Recurrence(LSTMCell(D, D)),
    "convolution of 5": lambda: Convolution(D, 5, causal=True),
    "convolution of 1": lambda: Convolution(D, 1, causal=True),
}


def model_of(mixer: str) -> LanguageModel:
    """Build one block of a mixer and a feed-forward layer; only the mixer can represent word order."""
    with seeded(0):
        table = embedding_table(data().n_ids, D)
        block = EncoderBlock(
            PreNorm(MIXERS[mixer](), LayerNorm(D)), PreNorm(FeedForward(D, 2 * D), LayerNorm(D))
        )
        embedding = TokenEmbedding(table, Added(NoPositions(D)), scale=math.sqrt(D))
        return LanguageModel(
            embedding, EncoderStack([block], LayerNorm(D)), token_head(D, data().n_ids, table)
        )


def part_of(model: LanguageModel) -> nn.Module:
    """Return the mixer of the model."""
    blocks: Any = model.stack.blocks
    part: nn.Module = blocks[0].mixer.part
    return part


@torch.no_grad()
def operations(mixer: str, n: int) -> float:
    """Count the FLOPs per word of the mixer alone, for ``n`` words."""
    return flops_of(lambda: part_of(model_of(mixer))(torch.zeros(n, D), Layout.of([n]))) / n


# Training

RATE, UPDATES = 0.01, {"short": 150, "long": 600}


@dataclass(frozen=True)
class Learned:
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
def learned(mixer: str, updates: int) -> Learned:
    """Train a model, and evaluate it on new sentences."""
    model, generator = model_of(mixer), generator_from(0)
    known = data().plain
    chosen = (torch.randint(len(known), (BATCH,), generator=generator).tolist() for _ in range(updates))
    batches = (Batch.forced(None, [known[i] for i in each], start=START, end=END) for each in chosen)
    training = train(model, NextToken(), batches, AdamConfig(), Constant(RATE, warmup=10))
    new = Batch.forced(None, [ids for ids, _ in data().tested], start=START, end=END)
    with torch.no_grad():
        scores = model.heads["token"](model(new.inputs)).log_softmax(-1)
    nats = -scores.gather(1, new.targets[:, None]).mean().item()
    return Learned(training, nats, (scores.argmax(-1) == new.targets).float().mean().item())


# The experiment

NEAR = 0.05
"""Relative increase of the loss that still counts as close."""


def _compared(size: Size, judged: str) -> Outcome:
    """Compare an LSTM with a convolution in its place."""
    found = {mixer: learned(mixer, UPDATES[size]) for mixer in (LSTM, judged)}
    flops = {mixer: operations(mixer, 16) for mixer in found}
    near = found[judged].nats < (1 + NEAR) * found[LSTM].nats
    return Outcome(
        "holds with conditions" if near else "is wrong",
        "A convolution that covers a few words predicts the next word about as well as an LSTM, with fewer "
        "operations, none of which waits for the preceding word. These sentences have eight words: a "
        "convolutional layer has no access to words outside its kernel, and a kernel of one word covers only "
        "that word.",
        [
            *(Measured(f"nats a word, {mixer}", found[mixer].nats) for mixer in (judged, LSTM)),
            *(Measured(f"right words, {mixer}", 100 * found[mixer].right, "%") for mixer in (judged, LSTM)),
            *(Measured(f"operations a word, {mixer}", flops[mixer], "FLOPs") for mixer in (judged, LSTM)),
        ],
        [
            {
                "mixer": mixer,
                "nats a word": each.nats,
                "right words": each.right,
                "operations a word": flops[mixer],
                "parameters": n_parameters(part_of(model_of(mixer))),
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


EXPERIMENTS = [
    Experiment(
        "convolution-or-lstm",
        "A convolution over text in place of an LSTM",
        "One-dimensional ConvNets are a natural way to process sequences of vectors; on text their "
        "performance is close to that of LSTMs.",
        "S1, ways of processing sequences of vectors; Kim 2014; Gehring et al. 2017",
        (88,),
        run=partial(_compared, judged="convolution of 5"),
        control=partial(_compared, judged="convolution of 1"),
        changed="The kernel is one word wide.",
        expected=("holds with conditions", "is wrong"),
    ),
]
