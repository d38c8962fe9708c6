"""Pretraining compared with training from scratch, by the number of labels.

Item 73 of the lectures. Sentences are the English side of the built-in phrasebook. A model pretrained to
predict their next words is fine-tuned to classify the object of a sentence, and so is one that was not
pretrained.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.data.corpora import english
from heedful.data.corpora.derivations import derivations
from heedful.data.corpora.grammar import Sentence
from heedful.data.corpora.lexicon import NOUNS
from heedful.lab.drawing import Curves
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import cache, generator_from, seed_of, seeded
from heedful.lab.tiny import train
from heedful.models.encoder import class_head
from heedful.models.encoder_decoder import embedding_table, token_head
from heedful.models.language_model import LanguageModel
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock, EncoderStack
from heedful.nn.cells import LSTMCell
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward
from heedful.nn.norms import LayerNorm
from heedful.nn.pooling import MeanPooling
from heedful.nn.positions import Added, SinusoidalPositions
from heedful.nn.recurrent import Recurrence
from heedful.nn.residual import PreNorm
from heedful.objectives.classification import SequenceClass, class_logits
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# Sentences

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
    return next((label for label, own in enumerate(CLASSES) if categories & set(own)), None)


@cache
def data() -> Data:
    """Derive sentences from the phrasebook; the first of those that have a class form the test set."""
    words: dict[str, int] = {}
    plain: list[list[int]] = []
    known: list[tuple[list[int], int]] = []
    for sentence in derivations("ta", seed_of(1), DERIVATIONS):
        ids = [words.setdefault(token.text, FIRST + len(words)) for token in english.sentence(sentence)]
        label = class_of(sentence)
        if label is None:
            plain.append(ids)
        else:
            known.append((ids, label))
    tested, labelled = known[:TESTED], known[TESTED:]
    return Data([*plain, *(ids for ids, _ in labelled)], labelled, tested, FIRST + len(words))


# Models

D, N_LAYERS = 48, 1
MIXERS: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: SelfAttention(D, 4, causal=True),
    "LSTM": lambda: Recurrence(LSTMCell(D, D)),
}


def model_of(mixer: str, seed: int) -> LanguageModel:
    """Build a language model with an additional classification head; only the mixer differs."""
    with seeded(seed):
        table = embedding_table(data().n_ids, D)
        blocks = [
            EncoderBlock(PreNorm(MIXERS[mixer](), LayerNorm(D)), PreNorm(FeedForward(D, 2 * D), LayerNorm(D)))
            for _ in range(N_LAYERS)
        ]
        embedding = TokenEmbedding(table, Added(SinusoidalPositions(D)), scale=math.sqrt(D))
        head = token_head(D, data().n_ids, table)
        model = LanguageModel(embedding, EncoderStack(blocks, LayerNorm(D)), head)
        model.heads["pooled"] = MeanPooling()
        model.heads["class"] = class_head(D, len(CLASSES), dropout=0.0)
    return model


# Training

BATCH, RATE = 32, 3e-3
PRETRAINED = {"short": 600, "long": 1000}


def _shuffled(sentences: Sequence[Sequence[int]], generator: torch.Generator) -> list[list[int]]:
    """Redistribute the words at random among all sentences, whose lengths stay the same."""
    words = [word for sentence in sentences for word in sentence]
    dealt = iter([words[i] for i in torch.randperm(len(words), generator=generator).tolist()])
    return [[next(dealt) for _ in sentence] for sentence in sentences]


@cache
def pretrained(mixer: str, shuffled: bool, updates: int) -> LanguageModel:
    """Pretrain a model on the sentences or on shuffled ones."""
    generator = generator_from(5)
    sentences = _shuffled(data().plain, generator) if shuffled else data().plain
    model = model_of(mixer, seed=0)
    batches = (
        Batch.forced(None, [sentences[i] for i in chosen], start=START, end=END)
        for chosen in _chosen(len(sentences), updates, generator)
    )
    train(model, NextToken(), batches, AdamConfig(), Constant(RATE, warmup=20))
    return model


def _chosen(n: int, updates: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Draw the indices of samples for each update."""
    for _ in range(updates):
        yield torch.randint(n, (BATCH,), generator=generator).tolist()


def _batch(rows: Sequence[tuple[Sequence[int], int]]) -> Batch:
    texts, labels = [[ids] for ids, _ in rows], [label for _, label in rows]
    return Batch.labelled(texts, labels, classify=START, separate=END)


def tuned(model: LanguageModel, n_labels: int, seed: int) -> float:
    """Fine-tune a copy on ``n_labels`` sentences drawn by the seed; return its accuracy on new ones."""
    generator = generator_from(seed)
    pool = data().labelled
    rows = [pool[i] for i in torch.randperm(len(pool), generator=generator)[:n_labels].tolist()]
    batches = (
        _batch([rows[i] for i in chosen]) for chosen in _chosen(n_labels, 60 + n_labels // 4, generator)
    )
    own = copy.deepcopy(model)
    train(own, SequenceClass(), batches, AdamConfig(), Constant(RATE, warmup=10))
    test = _batch(data().tested)
    assert test.classes is not None
    with torch.no_grad():
        logits = class_logits(own(test.inputs), own.heads, test.inputs.layout)
    return (logits.argmax(-1) == test.classes).float().mean().item()


@cache
def from_scratch(mixer: str, n_labels: int, repeats: int) -> float:
    """Return the mean accuracy over runs with different initial weights and labelled sentences."""
    return fmean([tuned(model_of(mixer, seed), n_labels, seed) for seed in range(1, repeats + 1)])


def _after(model: LanguageModel, n_labels: int, repeats: int) -> float:
    """Return the mean accuracy of a pretrained model after fine-tuning."""
    return fmean([tuned(model, n_labels, seed) for seed in range(1, repeats + 1)])


# The experiment

LABELS = {"short": (64, 512), "long": (16, 32, 64, 128, 256, 512)}
REPEATS = {"short": 3, "long": 4}
HELPS = 0.05
"""Gain in accuracy above which pretraining counts as a help."""


def _transferred(size: Size, shuffled: bool) -> Outcome:
    """Measure accuracy by the number of labels, pretrained and from scratch."""
    counts = LABELS[size]
    right = _right("attention", counts, shuffled, size)
    of_lstm = _right("LSTM", counts if size == "long" else counts[:1], shuffled, size)
    gains = {"attention": _gains(right), "LSTM": _gains(of_lstm)}
    right |= of_lstm
    return Outcome(
        _verdict(gains),
        "With few labels, a model pretrained on unlabelled text is more accurate than one trained from "
        f"scratch; with many labels both are equal. {_of_lstms(gains)}Pretraining on text whose words are "
        "shuffled at random does not help.",
        [
            *(
                Measured(
                    f"gain of the {mixer} model with {counts[0]} labels", 100 * gains[mixer][0], "points"
                )
                for mixer in gains
            ),
            Measured(
                f"gain of the attention model with {counts[-1]} labels",
                100 * gains["attention"][-1],
                "points",
            ),
            *(
                Measured(f"right with {counts[0]} labels, {mixer}, {how}", 100 * own[0], "%")
                for (mixer, how), own in right.items()
            ),
            Measured("new sentences", len(data().tested)),
        ],
        _table(counts, right),
        [
            Curves(
                "Accuracy by number of labels",
                "labelled sentences",
                "accuracy on new sentences",
                {f"{mixer}, {how}": (counts[: len(own)], own) for (mixer, how), own in right.items()},
                log="x",
                inches=(5.6, 3.8),
            )
        ],
    )


def _of_lstms(gains: Mapping[str, Sequence[float]]) -> str:
    """Return a remark on LSTMs, if one gains."""
    if gains["LSTM"][0] <= HELPS:
        return ""
    return (
        "This is not specific to Transformers: an LSTM of the same width in the same place also gains from "
        "pretraining. (A recurrence cannot process the tokens of a text in parallel during pretraining, so "
        "it was not scaled as far.) "
    )


Right = dict[tuple[str, str], list[float]]
"""Accuracy by number of labels, for each mixer, pretrained or from scratch."""


def _right(mixer: str, counts: Sequence[int], shuffled: bool, size: Size) -> Right:
    model, repeats = pretrained(mixer, shuffled, PRETRAINED[size]), REPEATS[size]
    return {
        (mixer, "pretrained"): [_after(model, n, repeats) for n in counts],
        (mixer, "from scratch"): [from_scratch(mixer, n, repeats) for n in counts],
    }


def _gains(right: Right) -> list[float]:
    """Return the gains of one mixer, by number of labels."""
    return [a - b for a, b in zip(*right.values(), strict=True)]


def _verdict(gains: Mapping[str, Sequence[float]]) -> Verdict:
    """Judge: the Transformer gains, however many labels there are, and an LSTM does not."""
    attention, lstm = gains["attention"], gains["LSTM"]
    if attention[0] <= HELPS:
        return "is wrong"
    lasting = attention[-1] > attention[0] / 2
    return "holds" if lasting and lstm[0] <= HELPS else "holds with conditions"


def _table(counts: Sequence[int], right: Right) -> list[dict[str, str | float]]:
    return [
        {"labels": n, **{f"{mixer}, {how}": own[i] for (mixer, how), own in right.items() if i < len(own)}}
        for i, n in enumerate(counts)
    ]


EXPERIMENTS = [
    Experiment(
        "pretrained-or-scratch",
        "Value of pretraining by the number of labels",
        "Pretrained models can be reused for new data sets while they retain their performance: transfer "
        "works very well with Transformers, unlike with RNNs or LSTMs, and needs little labelled data.",
        "S1, introduction to language models, and pretraining with BERT; S3, pretraining; Howard and Ruder "
        "2018 (for an LSTM), section 4.1 and figure 3",
        (73,),
        run=partial(_transferred, shuffled=False),
        control=partial(_transferred, shuffled=True),
        changed="The words of the pretraining text are redistributed at random among its sentences.",
        expected=("holds with conditions", "is wrong"),
    ),
]
