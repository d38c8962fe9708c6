"""Capacity of a single context vector for sentences, compared with attention.

Items 4 and 10 of the lectures. Sentences of random symbols must be generated in reverse order, so that the
first word read is the last one generated: it has the longest path of all words, as the lecture says of "She"
in its figure of an encoder and a decoder.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.data.batch import Batch
from heedful.lab.drawing import Curves, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import cache, generator_from, seeded
from heedful.lab.tiny import n_parameters, train
from heedful.models import recurrent
from heedful.models.recurrent import RecurrentConfig
from heedful.models.recurrent_attention import DotAttention
from heedful.models.recurrent_encoder_decoder import RecurrentEncoderDecoder
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import AdamConfig
from heedful.training.schedules import Cosine

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
        cell="rnn",
        d_embedding=16,
        d_hidden=setting.d,
        direction="left-to-right",
        attention=DotAttention(score="dot") if setting.attends else None,
        bridge="copy",
    )
    with seeded(seed):
        return recurrent.build(config, FIRST + SYMBOLS, FIRST + SYMBOLS)


# Sentences


def _sentence(length: int, generator: torch.Generator) -> Words:
    return tuple((FIRST + torch.randint(SYMBOLS, (length,), generator=generator)).tolist())


@cache
def tested(length: int) -> tuple[Words, ...]:
    """Draw distinct sentences of one length, which are excluded from training."""
    generator = generator_from(100 + length)
    found: dict[Words, None] = {}
    while len(found) < min(TESTED, SYMBOLS**length // 10):
        found[_sentence(length, generator)] = None
    return tuple(found)


def drawn(n: int, longest: int, generator: torch.Generator) -> list[Words]:
    """Draw training sentences, with uniformly distributed lengths."""
    found: list[Words] = []
    while len(found) < n:
        length = int(torch.randint(SHORTEST, longest + 1, (), generator=generator))
        sentence = _sentence(length, generator)
        if sentence not in tested(length):
            found.append(sentence)
    return found


def batch_of(sentences: Sequence[Words], in_order: bool) -> Batch:
    """Build a teacher-forced batch of sentences and their targets."""
    written = sentences if in_order else [sentence[::-1] for sentence in sentences]
    return Batch.forced(sentences, written, start=START, end=END)


# Training


@cache
def trained(setting: Setting, longest: int, updates: int, seed: int) -> RecurrentEncoderDecoder:
    """Train a model for this many updates on sentences of at most ``longest`` words."""
    model, generator = model_of(setting, seed), generator_from(1000 + seed)

    def batches() -> Iterator[Batch]:
        for _ in range(updates):
            yield batch_of(drawn(BATCH, longest, generator), setting.in_order)

    train(model, NextToken(), batches(), AdamConfig(), Cosine(RATE, updates, 20))
    return model


@torch.no_grad()
def right(
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
    found = (logits.argmax(-1) == batch.targets).float().view(len(sentences), -1)[:, :-1]
    return found if in_order else found.flip(1)


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of predicted words.

    Args:
        by_length: accuracy on sentences of `SHORTEST` words and more.
        by_place: accuracy on the longest sentences, by position in the source sentence.
    """

    by_length: Sequence[float]
    by_place: Sequence[float]

    @property
    def fall(self) -> float:
        """Decrease in accuracy from the shortest sentences to the longest."""
        return self.by_length[0] - self.by_length[-1]


def accuracy(setting: Setting, longest: int, updates: int, seeds: int) -> Accuracy:
    """Return the mean accuracy over models with different initial weights and training data."""
    found = []
    for length in range(SHORTEST, longest + 1):
        models = (trained(setting, longest, updates, seed) for seed in range(seeds))
        found.append(torch.cat([right(model, tested(length), setting.in_order) for model in models]))
    return Accuracy([each.mean().item() for each in found], found[-1].mean(0).tolist())


# The experiment

LONGEST, UPDATES, SEEDS = {"short": 8, "long": 12}, {"short": 150, "long": 400}, {"short": 1, "long": 2}
FALLS = 0.2
"""Decrease in accuracy above which longer sentences count as worse."""
CLEARLY = 0.05
"""Difference in accuracy above which a model counts as better than another."""


def _held(size: Size, longest: int | None = None) -> Outcome:
    """Measure accuracy by sentence length, and by position in the longest sentences."""
    longest = longest or LONGEST[size]
    settings = SETTINGS | (FURTHER if size == "long" else {})
    found = {name: accuracy(each, longest, UPDATES[size], SEEDS[size]) for name, each in settings.items()}
    lengths, places = list(range(SHORTEST, longest + 1)), list(range(1, longest + 1))
    return Outcome(
        _verdict(found),
        (
            "Trained on the same sentences and with as many parameters, a decoder that reads only the last "
            "state predicts fewer words correctly the longer the sentence is, and loses the first ones, "
            "which have the longest path to their position in the output. With attention, every word is one "
            "step away, and early words are kept as well as late ones. "
            if found[FIXED].fall > FALLS
            else "Sentences of a few words fit into one vector: attention adds nothing there. "
        )
        + f"{_remarks(found)}(Words are predicted after the correct ones: this measures what the decoder "
        "knows of the source.)",
        [
            *(
                Measured(
                    f"fewer right words of {longest} than of {SHORTEST}, {name}", 100 * own.fall, "points"
                )
                for name, own in found.items()
            ),
            *(
                Measured(f"first of {longest} words right, {name}", 100 * own.by_place[0], "%")
                for name, own in found.items()
            ),
            *(
                Measured(f"last of {longest} words right, {name}", 100 * own.by_place[-1], "%")
                for name, own in found.items()
            ),
            Measured("right by chance", 100 / SYMBOLS, "%"),
            *(
                Measured(f"parameters, {name}", n_parameters(model_of(each, 0)))
                for name, each in settings.items()
            ),
        ],
        [
            {"words": n, **{name: own.by_length[i] for name, own in found.items()}}
            for i, n in enumerate(lengths)
        ],
        [
            _curves(
                "Accuracy by sentence length",
                "words in the sentence",
                lengths,
                {name: own.by_length for name, own in found.items()},
            ),
            _curves(
                f"Accuracy in sentences of {longest} words",
                "position in the source sentence",
                places,
                {name: own.by_place for name, own in found.items() if name != IN_ORDER},
            ),
        ],
    )


def _curves(title: str, x: str, xs: Sequence[int], lines: Mapping[str, Sequence[float]]) -> Curves:
    return Curves(title, x, "share of correct words", over(xs, lines), limits=(0.0, 1.04), inches=(4.8, 3.8))


def _remarks(found: Mapping[str, Accuracy]) -> str:
    """Return remarks on the additional settings, if they were trained and the remark applies."""
    remarks = ""
    if WIDER in found and found[WIDER].by_length[-1] > found[FIXED].by_length[-1] + CLEARLY:
        remarks += "A vector twice as wide holds more of a long sentence, but not all. "
    if IN_ORDER in found and found[IN_ORDER].by_length[-1] < found[FIXED].by_length[-1] - CLEARLY:
        remarks += (
            "If words are generated in the order in which they are read, even fewer are correct: then the "
            "last words also have a long path (Sutskever et al. 2014, section 3.3, reversed the source). "
        )
    return remarks


def _verdict(found: Mapping[str, Accuracy]) -> Verdict:
    """Judge: one vector is too little for long sentences, and attention keeps early words."""
    fixed, attention = found[FIXED], found[ATTENTION]
    if fixed.fall <= FALLS:
        return "is wrong"
    kept = attention.by_place[0] > attention.by_place[-1] - FALLS
    lost = fixed.by_place[0] < fixed.by_place[-1] - FALLS
    return "holds" if attention.fall <= FALLS and kept and lost else "holds with conditions"


EXPERIMENTS = [
    Experiment(
        "one-vector",
        "What a single vector holds of a sentence",
        "An encoder compresses a sentence into one vector, which limits long sentences; attention keeps the "
        "first words from being lost.",
        "S4, sections 5 and 5.1 with figure 1; S0, sequence to sequence; Bahdanau et al. 2015, section 5.1 "
        "and figure 2",
        (4, 10),
        run=_held,
        control=partial(_held, longest=3),
        changed="No sentence is longer than three words.",
    ),
]
