"""Attention as word alignment: the heat map of rows of target words and columns of source words.

Item 18 of the lectures. Sentences and their gold alignments are those of the built-in phrasebook, English to
Tamil; the model is that of Bahdanau et al. 2015, a few units wide.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch

from heedful.data.batch import Batch
from heedful.data.corpora.grammar import Pair
from heedful.data.corpora.phrasebook import derivations, write
from heedful.evaluation.alignment import Alignment, alignment_error_rate
from heedful.lab.drawing import Bars, Matrix, Panel
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import seeded
from heedful.lab.tiny import train
from heedful.models import recurrent
from heedful.models.recurrent import AdditiveAttention, RecurrentConfig
from heedful.models.recurrent_encoder_decoder import RecurrentEncoderDecoder
from heedful.objectives.cross_entropy import NextToken
from heedful.tasks.forced import forced
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Constant

DERIVATIONS, LONGEST, LEAST, TESTED = 4000, 7, 20, 100
UPDATES, BATCH, RATE = {"short": 250, "long": 1500}, 32, 5e-3
START, END, FIRST = 0, 1, 2  # ids

Link = tuple[int, int]
"""Places of a source word and of a target word, from 0."""


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs, and the ids of their words.

    Args:
        train, test: the pairs.
        source, target: ids by word.
    """

    train: Sequence[Pair]
    test: Sequence[Pair]
    source: dict[str, int]
    target: dict[str, int]

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """The pairs, teacher forced."""
        sources = [[self.source[word] for word in pair.source.split()] for pair in pairs]
        targets = [[self.target[word] for word in pair.target.split()] for pair in pairs]
        return Batch.forced(sources, targets, start=START, end=END)


@cache
def corpus() -> Corpus:
    """Short statements and questions of one clause, of words that occur often."""
    drawn = (s for s in derivations("ta", 0, DERIVATIONS) if s.other is None and not s.address)
    pairs = list({pair.source: pair for pair in (write(s, "ta") for s in drawn)}.values())
    pairs = [pair for pair in pairs if len(pair.source.split()) <= LONGEST]
    while len(kept := _of_frequent_words(pairs)) < len(pairs):
        pairs = kept
    ids = [
        {word: FIRST + i for i, word in enumerate(dict.fromkeys(" ".join(sentences).split()))}
        for sentences in ((pair.source for pair in pairs), (pair.target for pair in pairs))
    ]
    return Corpus(pairs[TESTED:], pairs[:TESTED], *ids)


def _of_frequent_words(pairs: list[Pair]) -> list[Pair]:
    """Those all of whose words stand at least `LEAST` times in them."""
    source = Counter(word for pair in pairs for word in pair.source.split())
    target = Counter(word for pair in pairs for word in pair.target.split())
    return [
        pair
        for pair in pairs
        if min(source[word] for word in pair.source.split()) >= LEAST
        and min(target[word] for word in pair.target.split()) >= LEAST
    ]


def _batches(n: int) -> Iterator[Batch]:
    held, generator = corpus(), torch.Generator().manual_seed(3)
    for _ in range(n):
        chosen = torch.randint(len(held.train), (BATCH,), generator=generator).tolist()
        yield held.batch([held.train[i] for i in chosen])


@cache
def _model(updates: int) -> RecurrentEncoderDecoder:
    """A bidirectional encoder and a decoder with additive attention, after so many updates."""
    held = corpus()
    score = AdditiveAttention(score="additive")
    config = RecurrentConfig(d_embedding=32, d_hidden=48, attention=score)
    with seeded(0):
        model = recurrent.build(config, FIRST + len(held.source), FIRST + len(held.target))
    train(model, NextToken(), _batches(updates), AdamConfig(), Constant(RATE, warmup=20))
    return model


def weights(model: RecurrentEncoderDecoder, pairs: Sequence[Pair]) -> list[torch.Tensor]:
    """Of each pair what every target word gives to every source word, ``[target, source]``.

    What the end tokens give and get is left out, so a row may sum to less than 1.
    """
    found = forced(model.eval(), corpus().batch(pairs), alignment=True)
    return [each.alignment[-1, 0, :-1, :-1] for each in found if each.alignment is not None]


def heaviest(of: torch.Tensor) -> frozenset[Link]:
    """A link from each target word to the source word that has most of its ``[target, source]`` weights."""
    return frozenset((source, target) for target, source in enumerate(of.argmax(-1).tolist()))


def in_order(pair: Pair) -> frozenset[Link]:
    """A link from each target word to the source word at the same share of its sentence."""
    n, m = len(pair.source.split()), len(pair.target.split())
    return frozenset((min(n - 1, round(j * (n - 1) / max(1, m - 1))), j) for j in range(m))


def error_rate(found: Sequence[frozenset[Link]], pairs: Sequence[Pair]) -> float:
    """Held against the gold alignments, all of which are sure."""
    gold = [Alignment(frozenset(pair.alignment), frozenset()) for pair in pairs]
    return alignment_error_rate(found, gold).value


def _aligned(size: Size, judged: str) -> Outcome:
    """How well the heaviest weights agree with the gold alignment, after training and before."""
    pairs = corpus().test
    models = {"trained": _model(UPDATES[size]), "untrained": _model(0)}
    seen = {name: weights(model, pairs) for name, model in models.items()}
    rates = {name: error_rate([heaviest(each) for each in own], pairs) for name, own in seen.items()}
    rates["in order"] = error_rate([in_order(pair) for pair in pairs], pairs)
    rate = rates[judged]
    verdict: Verdict = "holds" if rate < 0.05 else "holds with conditions"
    return Outcome(
        verdict if rate < 0.6 * rates["in order"] else "is wrong",
        "Nobody tells the model which words belong together. To write the next word it has to look at the "
        "word that it translates, so most of the heaviest weights are where a person would draw a link, "
        "across the order of the words. Not all: a word that has no counterpart looks somewhere too, and "
        "what a word needs can be had from its neighbours, whose annotations know of it.",
        [
            Measured(f"alignment error rate, {judged} weights", rate),
            Measured("alignment error rate, word by word in order", rates["in order"]),
            *(Measured(f"the same, {name} weights", rates[name]) for name in seen if name != judged),
            Measured("sentence pairs", len(pairs)),
        ],
        panels=[
            _heat_map(pairs, seen[judged]),
            Bars("Alignment error rate", "", "of 1", rates, inches=(4.2, 3.6)),
        ],
    )


def _heat_map(pairs: Sequence[Pair], seen: Sequence[torch.Tensor]) -> Panel:
    """Of the longest sentence."""
    at = max(range(len(pairs)), key=lambda i: len(pairs[i].target.split()))
    source, target = pairs[at].source.split(), pairs[at].target.split()
    limits = (0.0, 1.0)
    return Matrix(
        "Weights of a sentence", "", "", seen[at].tolist(), limits, source, target, inches=(5.0, 4.0)
    )


EXPERIMENTS = [
    Experiment(
        "attention-as-alignment",
        "Attention finds which words belong together",
        "α_ti tells how much the source word i matters for the target word t: attention aligns the words.",
        "S0, attention: a quick tour; S4, section 5 and figure 3; Bahdanau et al. 2015, section 5.2.1",
        (10, 18),
        run=partial(_aligned, judged="trained"),
        control=partial(_aligned, judged="untrained"),
        changed="The weights are those of the model before its training.",
        expected=("holds with conditions", "is wrong"),
    ),
]
