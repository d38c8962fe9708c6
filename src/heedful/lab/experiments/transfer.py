"""Shared and transferred weights: tied embeddings, weights tied over time, and pretraining.

Items 1 and 9 (weights tied over time), 35 (the whole model's parameters), 51 (embeddings) and 73
(pretraining) of the lectures.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.data.corpora import english
from heedful.data.corpora.derivations import derivations
from heedful.data.corpora.grammar import Sentence
from heedful.data.corpora.lexicon import NOUNS
from heedful.lab.drawing import Bars, Curves, curves_over
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.experiments.arithmetic import BASE, summary
from heedful.lab.seeds import cache, generator_from, seed_of, seeded
from heedful.lab.tiny import (
    class_accuracy,
    draw_from,
    largest_difference,
    operations_behind,
    pre_norm_block,
    relative_difference,
    train,
    word_model,
)
from heedful.models.encoder import class_head
from heedful.models.language_model import LanguageModel
from heedful.models.stacks import embedding_table
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderStack
from heedful.nn.cells import Cell, ElmanCell, LSTMCell
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.layout import Layout, Tokens
from heedful.nn.norms import LayerNorm
from heedful.nn.pooling import MeanPooling
from heedful.nn.positions import Added, SinusoidalPositions
from heedful.nn.recurrent import Recurrence
from heedful.objectives.classification import SequenceClass
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# Embeddings and the output layer

TIES = ("three-way", "target", "none")


@measures("tied-embeddings", tie=("none", "three-way"))
def count_parameters_by_tying(size: Size, tie: str) -> Series:
    """Compare the parameters of the base model with the 65 million of paper and lecture."""
    parameters = {tying: summary(BASE, f"tie={tying}").parameters for tying in TIES}
    three_way, target, none = parameters.values()
    matrix = 37_000 * 512
    title = "Parameters of the base model, V = 37,000"
    millions = {tying: n / 1e6 for tying, n in parameters.items()}
    return Series(
        {
            "total": Measured("parameters of the base model", parameters[tie], expected=65e6),
            "matrix": Measured("of which one matrix of 37,000 tokens has", matrix),
            "saved": Measured("saved by tying three ways", none - three_way, "", 2.0 * matrix),
            "saved_by_target": Measured("saved by tying the target's two", none - target, "", 1.0 * matrix),
        },
        table_of({"tied": parameters, "parameters": parameters.values()}),
        [Bars(title, "tying", "millions", millions, levels={"printed: 65 million": 65.0})],
    )


# Weights tied over time

RNN_WIDTH = 32


class Unrolled:
    """An RNN with a separate cell for each of ``n`` steps; all cells start with the same weights."""

    def __init__(self, cell: Cell, n: int) -> None:
        self.cells = [copy.deepcopy(cell) for _ in range(n)]

    def __call__(self, x: Float[Tensor, "n d"], layout: Layout) -> Float[Tensor, "n d"]:
        """Compute the states for one sequence."""
        state, states = self.cells[0].initial(1, x), []
        for cell, token in zip(self.cells, x, strict=True):
            state = cell(cell.project(token[None]), state)
            states.append(cell.output(state))
        return torch.cat(states)


TIED, OWN = "one cell for all steps", "a cell for each step"


def _parameters_behind(result: Tensor) -> int:
    """Count the parameters that ``result`` depends on, by its graph; each is counted once."""
    leaves = {getattr(node, "variable", None) for node in operations_behind(result)}
    return sum(leaf.numel() for leaf in leaves if leaf is not None)


@measures("tied-over-time", tied=(True, False))
def count_parameters_behind_last_state(size: Size, *, tied: bool) -> Series:
    """Count the parameters behind the last state of an RNN with one cell, or with a cell per step."""
    lengths = [1, 5, 25] if size == "short" else [1, 5, 25, 125]
    with seeded(0):
        cell = ElmanCell(RNN_WIDTH, RNN_WIDTH)
        x = torch.randn(lengths[-1], RNN_WIDTH)
    last_states = {
        TIED: [Recurrence(copy.deepcopy(cell))(x[:n], Layout.of([n]))[-1] for n in lengths],
        OWN: [Unrolled(cell, n)(x[:n], Layout.of([n]))[-1] for n in lengths],
    }
    counts = {name: [_parameters_behind(state) for state in states] for name, states in last_states.items()}
    differences, judged_counts = map(largest_difference, *last_states.values()), counts[TIED if tied else OWN]
    sums = _gradient_difference(cell, x[:5])
    one_cell = float(2 * RNN_WIDTH * RNN_WIDTH + RNN_WIDTH)
    y = "parameters behind the last state"
    name_of_sums = "largest difference of the tied gradient to the sum over steps, relative"
    return Series(
        {
            "last": Measured(f"parameters behind state {lengths[-1]}", judged_counts[-1], expected=one_cell),
            "first": Measured("parameters behind state 1", judged_counts[0], expected=one_cell),
            "apart": Measured("largest difference of tied and untied states", max(differences), expected=0.0),
            "sums": Measured(name_of_sums, sums, expected=0.0),
        },
        table_of({"steps": lengths, **counts}),
        [
            Curves(
                "Parameters of an RNN by sequence length", "steps", y, curves_over(lengths, counts), log="xy"
            )
        ],
    )


def _gradient_difference(cell: Cell, x: Float[Tensor, "n d"]) -> float:
    """Return the relative difference of the gradients of one cell and the sums over a cell per step."""
    tied, layout = Recurrence(copy.deepcopy(cell)), Layout.of([len(x)])
    untied = Unrolled(cell, len(x))
    tied(x, layout)[-1].sum().backward()
    untied(x, layout)[-1].sum().backward()
    parameters_by_step = [dict(step_cell.named_parameters()) for step_cell in untied.cells]
    differences = []
    for name, weight in tied.cell.named_parameters():
        gradients = [cell_parameters[name].grad for cell_parameters in parameters_by_step]
        assert weight.grad is not None
        total = torch.stack([gradient for gradient in gradients if gradient is not None]).sum(0)
        differences.append(relative_difference(weight.grad, total))
    return max(differences)


# The factor before the positions


@measures("embedding-scale", scaled=(False, True))
def measure_identified_words(size: Size, *, scaled: bool) -> Series:
    """Measure whether a word can be identified from its embedding plus position, with the shared table."""
    d, n_words = (64, 1000) if size == "short" else (512, 10_000)
    scale = math.sqrt(d) if scaled else 1.0
    with seeded(0):
        table = embedding_table(n_words, d)
        words = torch.randint(n_words, (256,))
    embedding = TokenEmbedding(table, Added(SinusoidalPositions(d)), scale=scale)
    with torch.no_grad():
        x = embedding(Tokens(words, Layout.of([64] * 4)))
        predictions = (x @ table.T).argmax(-1)
        positions = SinusoidalPositions(d)(torch.arange(64))
        sizes = {
            "positions": positions.square().mean().sqrt().item(),
            "embeddings": table.square().mean().sqrt().item(),
            f"embeddings x √{d}": math.sqrt(d) * table.square().mean().sqrt().item(),
        }
    share = (predictions == words).float().mean().item()
    return Series(
        {
            "share": Measured("words that can be told from their sums", share, expected=1.0),
            "embeddings": Measured("size of the embeddings' entries", sizes["embeddings"], expected=d**-0.5),
            "positions": Measured("size of the positions' entries", sizes["positions"], expected=0.5**0.5),
        },
        panels=[Bars("Size of the summands", "", "root mean square of the entries", sizes)],
    )


# Pretraining
#
# Sentences are the English side of the built-in phrasebook. A model pretrained to predict their next words is
# fine-tuned to classify the object of a sentence, and so is one that was not pretrained.

DERIVATIONS, TESTED = 4000, 400
START, END, FIRST = 0, 1, 2  # ids
CLASSES: tuple[tuple[str, ...], ...] = (
    ("person", "kin"),
    ("animal",),
    ("food", "drink"),
    ("text", "art"),
    ("vehicle", "cloth", "thing", "opening", "game", "instrument"),
)
"""Noun categories that form one class; a noun belongs to the first class that has one of its categories."""


@dataclass(frozen=True)
class Data:
    """Sentences as ids.

    Args:
        plain: sentences without labels, for pretraining; test sentences are excluded.
        labelled, tested: other sentences, each with its class.
        n_ids: number of ids.
    """

    plain: Sequence[Sequence[int]]
    labelled: Sequence[tuple[Sequence[int], int]]
    tested: Sequence[tuple[Sequence[int], int]]
    n_ids: int


def class_of(sentence: Sentence) -> int | None:
    """Return the class of the object of a sentence, or None if there is none."""
    thing = sentence.main.object
    if sentence.other is not None or thing is None or thing.noun not in NOUNS:
        return None
    categories = set(NOUNS[thing.noun].classes)
    return next(
        (label for label, class_categories in enumerate(CLASSES) if categories & set(class_categories)), None
    )


@cache
def data() -> Data:
    """Derive sentences from the phrasebook; the first of those that have a class form the test set."""
    words: dict[str, int] = {}
    plain: list[list[int]] = []
    labelled_sentences: list[tuple[list[int], int]] = []
    for sentence in derivations("ta", seed_of(1), DERIVATIONS):
        ids = [words.setdefault(token.text, FIRST + len(words)) for token in english.sentence(sentence)]
        label = class_of(sentence)
        if label is None:
            plain.append(ids)
        else:
            labelled_sentences.append((ids, label))
    tested, labelled = labelled_sentences[:TESTED], labelled_sentences[TESTED:]
    return Data([*plain, *(ids for ids, _ in labelled)], labelled, tested, FIRST + len(words))


D, N_LAYERS = 48, 1
MIXERS: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: SelfAttention(D, 4, causal=True),
    "LSTM": lambda: Recurrence(LSTMCell(D, D)),
}


def model_of(mixer: str, seed: int) -> LanguageModel:
    """Build a language model with an additional classification head; only the mixer differs."""
    with seeded(seed):
        table = embedding_table(data().n_ids, D)
        blocks = [pre_norm_block(MIXERS[mixer](), D, 2 * D) for _ in range(N_LAYERS)]
        model = word_model(table, EncoderStack(blocks, LayerNorm(D)), SinusoidalPositions(D))
        model.heads["pooled"] = MeanPooling()
        model.heads["class"] = class_head(D, len(CLASSES), dropout=0.0)
    return model


BATCH, RATE = 32, 3e-3
PRETRAINED = {"short": 600, "long": 1000}


def _shuffle_words(sentences: Sequence[Sequence[int]], generator: torch.Generator) -> list[list[int]]:
    """Redistribute the words at random among all sentences, whose lengths stay the same."""
    words = [word for sentence in sentences for word in sentence]
    dealt = iter([words[i] for i in torch.randperm(len(words), generator=generator).tolist()])
    return [[next(dealt) for _ in sentence] for sentence in sentences]


@cache
def pretrained_model(mixer: str, shuffled: bool, updates: int) -> LanguageModel:
    """Pretrain a model on the sentences or on shuffled ones."""
    generator = generator_from(5)
    sentences = _shuffle_words(data().plain, generator) if shuffled else data().plain
    model = model_of(mixer, seed=0)
    batches = (sentence_batch(draw_from(sentences, BATCH, generator)) for _ in range(updates))
    train(model, NextToken(), batches, AdamConfig(), Constant(RATE, warmup=20))
    return model


def sentence_batch(sentences: Sequence[Sequence[int]]) -> Batch:
    """Build a batch whose targets are the next words of the sentences."""
    return Batch.teacher_forced(None, sentences, start=START, end=END)


def _labelled_batch(rows: Sequence[tuple[Sequence[int], int]]) -> Batch:
    texts, labels = [[ids] for ids, _ in rows], [label for _, label in rows]
    return Batch.labelled(texts, labels, classify=START, separate=END)


def fine_tuned_accuracy(model: LanguageModel, n_labels: int, seed: int) -> float:
    """Fine-tune a copy on ``n_labels`` sentences drawn by the seed; return its accuracy on new ones."""
    generator = generator_from(seed)
    pool = data().labelled
    rows = [pool[i] for i in torch.randperm(len(pool), generator=generator)[:n_labels].tolist()]
    batches = (_labelled_batch(draw_from(rows, BATCH, generator)) for _ in range(60 + n_labels // 4))
    fine_tuned = copy.deepcopy(model)
    train(fine_tuned, SequenceClass(), batches, AdamConfig(), Constant(RATE, warmup=10))
    return class_accuracy(fine_tuned, _labelled_batch(data().tested))


@cache
def accuracy_from_scratch(mixer: str, n_labels: int, repeats: int) -> float:
    """Return the mean accuracy over runs with different initial weights and labelled sentences."""
    return fmean(
        [fine_tuned_accuracy(model_of(mixer, seed), n_labels, seed) for seed in range(1, repeats + 1)]
    )


LABELS = {"short": (64, 512), "long": (16, 32, 64, 128, 256, 512)}
REPEATS = {"short": 3, "long": 4}


@measures("pretrained-or-scratch", shuffled=(False, True))
def measure_accuracy_by_labels(size: Size, shuffled: bool) -> Series:
    """Measure accuracy by the number of labels, pretrained and from scratch."""
    counts = LABELS[size]
    accuracies: dict[str, list[float]] = {}
    gains: dict[str, list[float]] = {}
    for mixer in MIXERS:
        by_count = counts if size == "long" or mixer == "attention" else counts[:1]
        model = pretrained_model(mixer, shuffled, PRETRAINED[size])
        pretrained = [
            fmean(fine_tuned_accuracy(model, n, seed) for seed in range(1, REPEATS[size] + 1))
            for n in by_count
        ]
        from_scratch = [accuracy_from_scratch(mixer, n, REPEATS[size]) for n in by_count]
        accuracies |= {f"{mixer}, pretrained": pretrained, f"{mixer}, from scratch": from_scratch}
        gains[mixer] = [a - b for a, b in zip(pretrained, from_scratch, strict=True)]
    fewest, most = counts[0], counts[-1]
    accuracies_of_fewest = {name: 100 * by_count[0] for name, by_count in accuracies.items()}
    first, last = ({mixer: 100 * by_count[i] for mixer, by_count in gains.items()} for i in (0, -1))
    gain_of_many = f"gain of the attention model with {most} labels"
    return Series(
        {
            **measured_each(f"gain of the {{}} model with {fewest} labels", first, "points"),
            "gain_of_many": Measured(gain_of_many, last["attention"], "points"),
            **measured_each(f"right with {fewest} labels, {{}}", accuracies_of_fewest, "%"),
            "sentences": Measured("new sentences", len(data().tested)),
            "first": gains["attention"][0],
            "last": gains["attention"][-1],
            "of_lstm": gains["LSTM"][0],
        },
        [
            {"labels": n, **{name: by_count[i] for name, by_count in accuracies.items() if i < len(by_count)}}
            for i, n in enumerate(counts)
        ],
        [
            Curves(
                "Accuracy by number of labels",
                "labelled sentences",
                "accuracy on new sentences",
                {name: (counts[: len(by_count)], by_count) for name, by_count in accuracies.items()},
                log="x",
                inches=(5.6, 3.8),
            )
        ],
    )
