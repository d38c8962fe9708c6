"""Attention between words: word alignment by cross-attention, and the pronoun "it" with one and two heads.

Items 18, 28 and 29 of the lectures. Sentences and gold alignments are from the built-in phrasebook, English
to Tamil. A small Transformer learns to translate them; the long form adds a model as in Bahdanau et al. 2015.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.data.corpora.grammar import Clause, Nominal, Pair, Sentence
from heedful.data.corpora.lexicon import TITLES, VERBS
from heedful.data.corpora.phrasebook import LECTURE_SENTENCE, write
from heedful.lab.drawing import Bars, Curves, Matrix, Panel, numbered_curves
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import draw_from, minimise, train
from heedful.models.base import Model
from heedful.models.mixers import AttentionConfig
from heedful.models.recurrent import RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.sections import AdditiveConfig, FeedForwardConfig
from heedful.models.stacks import LayerConfig
from heedful.models.transformer import TransformerConfig
from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.positions import Added, SinusoidalPositions
from heedful.nn.taps import recording
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.generation.generator import score_targets
from heedful.tasks.metrics.alignment import Alignment, alignment_error_rate
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

# Word alignment

SUBJECTS = ("i", "we", "he", "she")
ACTIONS = ("enjoy", "see", "read", "buy", "write", "hear")
THINGS = ("film", "song", "book", "letter", "newspaper", "picture", "house", "story", "chair", "bird")
TESTED = 60
UPDATES, BATCH, RATE = {"short": 200, "long": 800}, 32, 5e-3
START, END, FIRST = 0, 1, 2  # ids
Link = tuple[int, int]
"""Positions of a source word and of a target word, from 0."""


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, and the ids of their words.

    Args:
        train, test: sentence pairs.
        source, target: ids by word.
    """

    train: Sequence[Pair]
    test: Sequence[Pair]
    source: dict[str, int]
    target: dict[str, int]

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """Build a teacher-forced batch of the pairs."""
        sources = [[self.source[word] for word in pair.source.split()] for pair in pairs]
        targets = [[self.target[word] for word in pair.target.split()] for pair in pairs]
        return Batch.teacher_forced(sources, targets, start=START, end=END)


@cache
def corpus() -> Corpus:
    """Generate all sentences over a small vocabulary; the test set includes the lecture's sentence."""
    pairs = [write(Sentence("plain", clause), "ta") for clause in clauses()]
    order = torch.randperm(len(pairs), generator=generator_from(1)).tolist()
    pairs = [LECTURE_SENTENCE, *(pairs[i] for i in order if pairs[i] != LECTURE_SENTENCE)]
    ids = [
        {word: FIRST + i for i, word in enumerate(sorted(set(" ".join(sentences).split())))}
        for sentences in ((pair.source for pair in pairs), (pair.target for pair in pairs))
    ]
    return Corpus(pairs[TESTED:], pairs[:TESTED], *ids)


def clauses() -> Iterator[Clause]:
    """Generate clauses in the past tense, with the time expression at the end or at the start."""
    for subject, verb, noun in product(SUBJECTS, ACTIONS, THINGS):
        if noun not in VERBS[verb].objects:
            continue
        titles = [Nominal(noun, "the", title=title) for title in TITLES] if noun == "film" else []
        for thing in (Nominal(noun, "the"), Nominal(noun, "a"), *titles):
            for time, early in (("", False), ("yesterday", True), ("yesterday", False)):
                yield Clause(Nominal(subject), verb, thing, tense="past", time=time, early=early)


def _batches(n: int) -> Iterator[Batch]:
    dataset, generator = corpus(), generator_from(3)
    for _ in range(n):
        yield dataset.batch(draw_from(dataset.train, BATCH, generator))


WIDTH = 32
CONFIGS: dict[str, TransformerConfig | RecurrentConfig] = {
    "Transformer": TransformerConfig(
        d_model=WIDTH,
        n_layers=1,
        layer=LayerConfig(
            mixer=AttentionConfig(n_heads=1),
            channels=FeedForwardConfig(d_ff=2 * WIDTH),
            norm_placement="pre",
        ),
        dropout=0.0,
        tie="none",
    ),
    "recurrent": RecurrentConfig(d_embedding=WIDTH, d_hidden=WIDTH, attention=AdditiveConfig()),
}


@cache
def translator(name: str, updates: int, seed: int) -> Model:
    """Return one of `CONFIGS` after this many updates."""
    dataset = corpus()
    with seeded(seed):
        model = build_model(CONFIGS[name], FIRST + len(dataset.source), FIRST + len(dataset.target))
    train(model, NextToken(), _batches(updates), AdamConfig(), Constant(RATE, warmup=20))
    return model


def cross_attention_weights(model: Model, pairs: Sequence[Pair]) -> list[torch.Tensor]:
    """Return the cross-attention weights of each pair, ``[target, source]``.

    The end tokens of both sides are left out, so a row may sum to less than 1.
    """
    outputs = score_targets(model.eval(), corpus().batch(pairs), attention=True)
    return [output.attention[-1, 0, :-1, :-1] for output in outputs if output.attention is not None]


def links_of_largest_weights(weights: torch.Tensor) -> frozenset[Link]:
    """Link each target word to the source word with its largest weight, given ``[target, source]``."""
    return frozenset((source, target) for target, source in enumerate(weights.argmax(-1).tolist()))


def links_in_order(pair: Pair) -> frozenset[Link]:
    """Link each target word to the source word at the same relative position of its sentence."""
    n, m = len(pair.source.split()), len(pair.target.split())
    return frozenset((min(n - 1, round(j * (n - 1) / max(1, m - 1))), j) for j in range(m))


def error_rate(links: Sequence[frozenset[Link]], pairs: Sequence[Pair]) -> float:
    """Compute the alignment error rate against the gold alignments, all of which are sure links."""
    gold = [Alignment(frozenset(pair.alignment), frozenset()) for pair in pairs]
    return alignment_error_rate(links, gold).value


SEEDS = 4
"""Number of models with different initial weights. Of a single model, 5 % to 50 % of the links are wrong."""
TRAINED, UNTRAINED, IN_ORDER = "Transformer", "before training", "word by word in order"


@measures("attention-as-alignment", judged=(TRAINED, UNTRAINED))
def measure_alignment_error_rates(size: Size, judged: str) -> Series:
    """Measure how well the largest weights agree with the gold alignment, after training and before."""
    pairs = corpus().test
    updates = UPDATES[size]
    trainings = {TRAINED: ("Transformer", updates), UNTRAINED: ("Transformer", 0)}
    if size == "long":
        trainings["recurrent"] = "recurrent", updates
    weights = {
        name: [cross_attention_weights(translator(*training, seed), pairs) for seed in range(SEEDS)]
        for name, training in trainings.items()
    }
    rates = {
        name: fmean(
            [
                error_rate([links_of_largest_weights(matrix) for matrix in matrices], pairs)
                for matrices in by_seed
            ]
        )
        for name, by_seed in weights.items()
    }
    rates[IN_ORDER] = error_rate([links_in_order(pair) for pair in pairs], pairs)
    rate = rates[judged]
    others = {name: rate for name, rate in rates.items() if name != judged}
    return Series(
        {
            "rate": Measured(f"alignment error rate, {judged}", rate),
            **measured_each("alignment error rate, {}", others),
            "pairs": Measured("sentence pairs", len(pairs)),
            "models": Measured("models, of which the mean is given", SEEDS),
            "in_order": rates[IN_ORDER],
        },
        panels=[
            _heat_map(pairs[0], weights[judged][0][0]),
            Bars("Alignment error rate", "", "of 1", rates, inches=(4.2, 3.6)),
        ],
    )


def _heat_map(pair: Pair, weights: torch.Tensor) -> Panel:
    source, target = pair.source.split(), pair.target.split()
    title, limits = "The lecture's sentence", (0.0, 1.0)
    return Matrix(title, "", "", weights.tolist(), limits, source, target, inches=(5.0, 4.0))


# The table of "it"

TABLE = {
    "The": (0.6, 0.1, 0.05, 0.05, 0.02, 0.02, 0.02, 0.1),
    "animal": (0.02, 0.5, 0.06, 0.15, 0.02, 0.05, 0.01, 0.12),
    "didn't": (0.01, 0.35, 0.45, 0.1, 0.01, 0.02, 0.01, 0.03),
    "it": (0.01, 0.6, 0.02, 0.1, 0.01, 0.2, 0.01, 0.01),
}
"""Lecture S0's weights of four words over the eight of "The animal didn't cross the street because it"."""
SENTENCE = ("The", "animal", "didn't", "cross", "the", "street", "because", "it")
ROUNDED = len(SENTENCE) * 0.005
"""Largest distance from 1 of the sum of a row of weights that are rounded to hundredths, as printed."""


@measures("table-of-it", printed=(True, False))
def measure_row_sums(size: Size, *, printed: bool) -> Series:
    """Sum the printed rows, or rows of heedful's attention, rounded in the same way."""
    rows = torch.tensor(list(TABLE.values()), dtype=torch.float64) if printed else _rounded_weights()
    sums = dict(zip(TABLE, rows.sum(-1).tolist(), strict=True))
    deviations = {word: abs(total - 1) for word, total in sums.items()}
    worst = max(deviations, key=lambda word: deviations[word])
    return Series(
        {
            "furthest": Measured(f"furthest from 1: the row of “{worst}”", deviations[worst]),
            "rounding": Measured("what rounding can do", ROUNDED),
            **measured_each("sum of the row of “{}”", sums, expected=1.0),
            "least": 1 - ROUNDED,
        },
        panels=[
            Bars("Sums of the rows", "word", "sum of its weights", sums, levels={"1": 1.0}),
            Matrix("The rows", "", "", rows.tolist(), (0.0, 1.0), SENTENCE, tuple(TABLE)),
        ],
    )


@seeded()
@torch.no_grad()
def _rounded_weights() -> Float[Tensor, "words eight"]:
    """Return the weights of one head of heedful's attention for the table's words, rounded to hundredths."""
    d, layout = 16, Layout.of([len(SENTENCE)])
    part, words = SelfAttention(d, 1, score=DotScore()), torch.randn(len(SENTENCE), d)
    with recording(part, ["weights"]) as activations:
        part(words, layout)
    rows = [SENTENCE.index(word) for word in TABLE]
    return activations["weights"][0][0, 0, rows].double().mul(100).round() / 100


# One head and two heads

NOUNS, ADJECTIVES, READER_WIDTH = 12, 6, 32
ANSWERS = NOUNS + ADJECTIVES
WORDS = ["the", "animal", "didn't", "cross", "the", "street", "because", "it", "was", "too", "tired"]
NOUN, SECOND_NOUN, IT, ADJECTIVE = (WORDS.index(word) for word in ("animal", "street", "it", "tired"))
SENTENCES, READER_RATE = 64, 0.005
READER_UPDATES = {"short": 600, "long": 3000}
READER_SEEDS = {"short": range(10), "long": range(24)}
TESTED_SENTENCES, LAST_LOSSES, SURE = 500, 20, 0.1


def draw_sentences(n: int) -> Int[Tensor, "n words"]:
    """Draw sentences like `WORDS`, with two different nouns and an adjective drawn at random.

    Ids are those of nouns, then adjectives, then the other words.
    """
    vocabulary = {word: ANSWERS + i for i, word in enumerate(dict.fromkeys(WORDS))}
    ids = torch.tensor([vocabulary[word] for word in WORDS]).repeat(n, 1)
    ids[:, NOUN] = torch.randint(NOUNS, (n,))
    ids[:, SECOND_NOUN] = (ids[:, NOUN] + torch.randint(1, NOUNS, (n,))) % NOUNS
    ids[:, ADJECTIVE] = NOUNS + torch.randint(ADJECTIVES, (n,))
    return ids


class Reader(nn.Module):
    """Words and positions, one attention layer, and a linear classifier on "it" for each word to predict.

    Args:
        n_heads: number of heads, which share the width.
        n_predicted: number of words to predict from the output for "it".
    """

    def __init__(self, n_heads: int, n_predicted: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ANSWERS + len(WORDS), READER_WIDTH)
        self.positions = Added(SinusoidalPositions(READER_WIDTH))
        self.attention = SelfAttention(READER_WIDTH, n_heads, qkv_bias=True)
        self.answers = nn.ModuleList(nn.Linear(READER_WIDTH, ANSWERS) for _ in range(n_predicted))

    def forward(self, ids: Int[Tensor, "n words"]) -> Float[Tensor, "n predicted answers"]:
        """Return the logits of each word to predict."""
        layout = Layout.of([ids.shape[1]] * len(ids))
        x = self.positions(self.embedding(ids.flatten()), layout.positions)
        output = self.attention(x, layout).view(*ids.shape, -1)[:, IT]
        return torch.stack([answer(output) for answer in self.answers], 1)


@dataclass(frozen=True)
class TrainedReader:
    """Results of a trained reader.

    Args:
        accuracy: share of new sentences for which all words are predicted correctly.
        weights: weights of "it" in each head, ``[H, words]``, averaged over those sentences.
        losses: loss by update, in nats per word to predict.
    """

    accuracy: float
    weights: Float[Tensor, "H words"]
    losses: list[float]

    @property
    def sure(self) -> bool:
        """Whether the training ended because the reader was sure."""
        return is_sure(self.losses)

    def least_weight(self, positions: tuple[int, ...]) -> float:
        """Return the smallest weight on the words at these positions, each in its strongest head."""
        return self.weights[:, list(positions)].amax(0).min().item()


def is_sure(losses: Sequence[float]) -> bool:
    """Return whether the mean of the last losses is below `SURE`."""
    return fmean(losses[-LAST_LOSSES:]) < SURE


def train_reader(n_heads: int, positions: tuple[int, ...], updates: int) -> TrainedReader:
    """Train a reader to predict the words at these positions until it is sure, and capture its weights.

    Args:
        n_heads: number of heads of the reader.
        positions: positions of the words to predict.
        updates: largest number of updates, sure or not.
    """
    model, losses = Reader(n_heads, len(positions)), []
    sentences = (draw_sentences(SENTENCES) for _ in range(updates))
    batch_losses = (
        functional.cross_entropy(model(ids).flatten(0, 1), ids[:, [*positions]].flatten())
        for ids in sentences
    )
    for loss in minimise(model, batch_losses, READER_RATE):
        losses.append(loss)
        if len(losses) >= LAST_LOSSES and is_sure(losses):
            break
    ids = draw_sentences(TESTED_SENTENCES)
    with torch.no_grad(), recording(model, ["attention.weights"]) as activations:
        correct = (model(ids).argmax(-1) == ids[:, list(positions)]).all(1)
    weights = activations["attention.weights"][0].mean(0)[:, IT]
    return TrainedReader(correct.double().mean().item(), weights, losses)


def _train_readers(n_heads: int, positions: tuple[int, ...], size: Size) -> list[TrainedReader]:
    """Train a reader for each seed."""
    return [
        seeded(seed)(train_reader)(n_heads, positions, READER_UPDATES[size]) for seed in READER_SEEDS[size]
    ]


@measures("heads-on-it", positions=((NOUN, ADJECTIVE), (NOUN,)))
def compare_attention_of_one_and_two_heads(size: Size, positions: tuple[int, ...]) -> Series:
    """Measure whether two heads attend more to the words to predict than one."""
    readers = {
        "one head": _train_readers(1, positions, size),
        "two heads": _train_readers(2, positions, size),
    }
    least_weights = {
        name: fmean([reader.least_weight(positions) for reader in trained])
        for name, trained in readers.items()
    }
    one, two = (trained[0] for trained in readers.values())
    rows = {"one head": one.weights[0], "first of two": two.weights[0], "second of two": two.weights[1]}
    weights_on_words = {
        f"weight of “it” on “{WORDS[position]}”, {name}": weights[position].item()
        for name, weights in rows.items()
        for position in positions
    }
    updates_name = f"updates until sure (at most {READER_UPDATES[size]}), {{}}"
    updates = {name: median(len(reader.losses) for reader in trained) for name, trained in readers.items()}
    sure, right = (
        {
            name: 100 * fmean([getattr(reader, field) for reader in trained])
            for name, trained in readers.items()
        }
        for field in ("sure", "accuracy")
    )
    return Series(
        {
            **measured_each("weight of the word that is seen least, {}", least_weights),
            **measured_each(updates_name, updates),
            **measured_each("trainings that became sure, {}", sure, "%"),
            **measured_each("sentences with all words predicted correctly, {}", right, "%"),
            **measured_each("{}", weights_on_words),
            "one_head": least_weights["one head"],
            "two_heads": least_weights["two heads"],
            "one_sure": sure["one head"],
        },
        panels=[
            Matrix(
                "Attention of “it”",
                "",
                "",
                [weights.tolist() for weights in rows.values()],
                (0.0, 1.0),
                columns=WORDS,
                rows=list(rows),
                inches=(6.4, 3.2),
            ),
            Curves(
                "Training loss, until sure",
                "update",
                "nats per word",
                numbered_curves({name: trained[0].losses for name, trained in readers.items()}),
                levels={"sure": SURE},
                inches=(3.8, 3.2),
            ),
        ],
    )
