"""Attention as word alignment: a heat map with a row per target word and a column per source word.

Item 18 of the lectures. Sentences and gold alignments are from the built-in phrasebook, English to Tamil. A
small Transformer learns to translate them; the long form adds a model as in Bahdanau et al. 2015.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean

import torch

from heedful.data.batch import Batch
from heedful.data.corpora.grammar import Clause, Nominal, Pair, Sentence
from heedful.data.corpora.lexicon import TITLES, VERBS
from heedful.data.corpora.phrasebook import LECTURE_SENTENCE, write
from heedful.lab.drawing import Bars, Matrix, Panel
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import train
from heedful.models.base import Model
from heedful.models.recurrent import AdditiveAttention, RecurrentConfig
from heedful.models.registry import build_model
from heedful.models.transformer import TransformerConfig
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.forced import forced
from heedful.tasks.metrics.alignment import Alignment, alignment_error_rate
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

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
        return Batch.forced(sources, targets, start=START, end=END)


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
    held, generator = corpus(), generator_from(3)
    for _ in range(n):
        chosen = torch.randint(len(held.train), (BATCH,), generator=generator).tolist()
        yield held.batch([held.train[i] for i in chosen])


WIDTH = 32
CONFIGS: dict[str, TransformerConfig | RecurrentConfig] = {
    "Transformer": TransformerConfig(
        d_model=WIDTH, d_ff=2 * WIDTH, n_heads=1, n_layers=1, dropout=0.0, tie="none", norm_placement="pre"
    ),
    "recurrent": RecurrentConfig(
        d_embedding=WIDTH, d_hidden=WIDTH, attention=AdditiveAttention(score="additive")
    ),
}


@cache
def translator(name: str, updates: int, seed: int) -> Model:
    """Return one of `CONFIGS` after this many updates."""
    held = corpus()
    with seeded(seed):
        model = build_model(CONFIGS[name], FIRST + len(held.source), FIRST + len(held.target))
    train(model, NextToken(), _batches(updates), AdamConfig(), Constant(RATE, warmup=20))
    return model


def weights(model: Model, pairs: Sequence[Pair]) -> list[torch.Tensor]:
    """Return the cross-attention weights of each pair, ``[target, source]``.

    The end tokens of both sides are left out, so a row may sum to less than 1.
    """
    found = forced(model.eval(), corpus().batch(pairs), alignment=True)
    return [each.alignment[-1, 0, :-1, :-1] for each in found if each.alignment is not None]


def heaviest(of: torch.Tensor) -> frozenset[Link]:
    """Link each target word to the source word with its largest weight, given ``[target, source]``."""
    return frozenset((source, target) for target, source in enumerate(of.argmax(-1).tolist()))


def in_order(pair: Pair) -> frozenset[Link]:
    """Link each target word to the source word at the same relative position of its sentence."""
    n, m = len(pair.source.split()), len(pair.target.split())
    return frozenset((min(n - 1, round(j * (n - 1) / max(1, m - 1))), j) for j in range(m))


def error_rate(found: Sequence[frozenset[Link]], pairs: Sequence[Pair]) -> float:
    """Compute the alignment error rate against the gold alignments, all of which are sure links."""
    gold = [Alignment(frozenset(pair.alignment), frozenset()) for pair in pairs]
    return alignment_error_rate(found, gold).value


SEEDS = 4
"""Number of models with different initial weights. Of a single model, 5 % to 50 % of the links are wrong."""
BETTER = 0.8
"""Largest error rate, relative to links in word order, at which weights count as an alignment."""
TRAINED, UNTRAINED, IN_ORDER = "Transformer", "before training", "word by word in order"


def _aligned(size: Size, judged: str) -> Outcome:
    """Measure how well the largest weights agree with the gold alignment, after training and before."""
    pairs = corpus().test
    updates = UPDATES[size]
    trainings = {TRAINED: ("Transformer", updates), UNTRAINED: ("Transformer", 0)}
    if size == "long":
        trainings["recurrent"] = "recurrent", updates
    seen = {
        name: [weights(translator(*training, seed), pairs) for seed in range(SEEDS)]
        for name, training in trainings.items()
    }
    rates = {
        name: fmean([error_rate([heaviest(each) for each in one], pairs) for one in own])
        for name, own in seen.items()
    }
    rates[IN_ORDER] = error_rate([in_order(pair) for pair in pairs], pairs)
    rate = rates[judged]
    return Outcome(
        "holds with conditions" if rate < BETTER * rates[IN_ORDER] else "is wrong",
        "The model gets no supervision for alignments. To predict the next word, it must attend to the word "
        "it translates, so most of the largest weights are where a person would draw a link, also where the "
        "word order differs. Not all are: information about a word is also available from its neighbours. "
        "The more an encoder mixes neighbours into each word, as a recurrent encoder does, the less its "
        "weights are an alignment.",
        [
            Measured(f"alignment error rate, {judged}", rate),
            *(
                Measured(f"alignment error rate, {name}", own)
                for name, own in rates.items()
                if name != judged
            ),
            Measured("sentence pairs", len(pairs)),
            Measured("models, of which the mean is given", SEEDS),
        ],
        panels=[
            _heat_map(pairs[0], seen[judged][0][0]),
            Bars("Alignment error rate", "", "of 1", rates, inches=(4.2, 3.6)),
        ],
    )


def _heat_map(pair: Pair, seen: torch.Tensor) -> Panel:
    source, target = pair.source.split(), pair.target.split()
    title, limits = "The lecture's sentence", (0.0, 1.0)
    return Matrix(title, "", "", seen.tolist(), limits, source, target, inches=(5.0, 4.0))


EXPERIMENTS = [
    Experiment(
        "attention-as-alignment",
        "Attention finds which words belong together",
        "α_ti is the importance of source word i for target word t: attention aligns the words.",
        "S0, attention: a quick tour; S4, section 5 and figure 3; Bahdanau et al. 2015, section 5.2.1",
        (18,),
        run=partial(_aligned, judged=TRAINED),
        control=partial(_aligned, judged=UNTRAINED),
        changed="The weights are those of the model before training.",
        expected=("holds with conditions", "is wrong"),
    ),
]
