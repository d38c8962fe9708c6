"""What one vector holds of a sentence, and what attention keeps of it.

Items 4 and 10 of the lectures. Sentences of random symbols are to be written from the last one to the first,
so that the first word that is read is the last that is written: of all words it has the longest way, as the
lecture says of "She" in its figure of an encoder and a decoder.
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

SYMBOLS, START, END, FIRST = 10, 0, 1, 2  # how many, and ids
SHORTEST = 2
TESTED = 100  # of each length, and at most a tenth of all there are
BATCH, RATE = 32, 5e-3

Words = tuple[int, ...]


@dataclass(frozen=True)
class Setting:
    """What is trained.

    Args:
        attends: whether the decoder attends, or reads the encoder's last state at each step.
        in_order: whether sentences are written in the order in which they are read.
        d: the width of states.
    """

    attends: bool
    in_order: bool = False
    d: int = 32


FIXED, ATTENTION = "fixed context", "attention"
SETTINGS = {FIXED: Setting(attends=False), ATTENTION: Setting(attends=True)}
WIDER, IN_ORDER = "fixed context, twice as wide", "fixed context, written in order"
FURTHER = {WIDER: Setting(attends=False, d=64), IN_ORDER: Setting(attends=False, in_order=True)}
"""What the long form trains as well."""


def model_of(setting: Setting, seed: int) -> RecurrentEncoderDecoder:
    """An RNN that reads and one that writes, which starts from the last state of the first.

    Scores are dot products, which have no parameters, and annotations are as wide as the last state: with
    and without attention the parameters are the same in number and in shape.
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
    """Different sentences of a length, on which nothing is trained."""
    generator = generator_from(100 + length)
    found: dict[Words, None] = {}
    while len(found) < min(TESTED, SYMBOLS**length // 10):
        found[_sentence(length, generator)] = None
    return tuple(found)


def drawn(n: int, longest: int, generator: torch.Generator) -> list[Words]:
    """Sentences for training, of all lengths alike."""
    found: list[Words] = []
    while len(found) < n:
        length = int(torch.randint(SHORTEST, longest + 1, (), generator=generator))
        sentence = _sentence(length, generator)
        if sentence not in tested(length):
            found.append(sentence)
    return found


def batch_of(sentences: Sequence[Words], in_order: bool) -> Batch:
    """Sentences and what is to be written, teacher forced."""
    written = sentences if in_order else [sentence[::-1] for sentence in sentences]
    return Batch.forced(sentences, written, start=START, end=END)


# Trainings


@cache
def trained(setting: Setting, longest: int, updates: int, seed: int) -> RecurrentEncoderDecoder:
    """A model after so many updates on sentences of up to so many words."""
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
    """1 for each word of sentences of one length that is written rightly, 0 for others; as they are read.

    Every word is written after the right ones before it. These tell nothing of it, for words are drawn
    independently: what is measured is what the decoder knows of the source, not how mistakes add up.
    """
    batch = batch_of(sentences, in_order)
    assert batch.source is not None
    logits = model.heads["token"](model(batch.inputs, batch.source))
    found = (logits.argmax(-1) == batch.targets).float().view(len(sentences), -1)[:, :-1]
    return found if in_order else found.flip(1)


@dataclass(frozen=True)
class Told:
    """Shares of words that are written rightly.

    Args:
        by_length: of sentences of `SHORTEST` words and more.
        by_place: of the longest sentences, by the place of the word in the sentence that is read.
    """

    by_length: Sequence[float]
    by_place: Sequence[float]

    @property
    def fall(self) -> float:
        """How much fewer words are right in the longest sentences than in the shortest."""
        return self.by_length[0] - self.by_length[-1]


def told(setting: Setting, longest: int, updates: int, seeds: int) -> Told:
    """The means over models that differ in their first weights and in what they are trained on."""
    found = []
    for length in range(SHORTEST, longest + 1):
        models = (trained(setting, longest, updates, seed) for seed in range(seeds))
        found.append(torch.cat([right(model, tested(length), setting.in_order) for model in models]))
    return Told([each.mean().item() for each in found], found[-1].mean(0).tolist())


# The experiment

LONGEST, UPDATES, SEEDS = {"short": 8, "long": 12}, {"short": 150, "long": 400}, {"short": 1, "long": 2}
FALLS = 0.2
"""From how much fewer right words on the longer sentences fall behind."""
CLEARLY = 0.05
"""From how many right words on one model is said to be better than another."""


def _held(size: Size, longest: int | None = None) -> Outcome:
    """Right words over the length of sentences, and over the places of the longest."""
    longest = longest or LONGEST[size]
    settings = SETTINGS | (FURTHER if size == "long" else {})
    found = {name: told(each, longest, UPDATES[size], SEEDS[size]) for name, each in settings.items()}
    lengths, places = list(range(SHORTEST, longest + 1)), list(range(1, longest + 1))
    return Outcome(
        _verdict(found),
        (
            "Trained on the same sentences and with as many parameters, a decoder that reads the last state "
            "alone writes fewer words rightly the longer the sentence is, and loses the first ones, which "
            "have the longest way to their place in the output. With attention every word is one step away, "
            "and early ones are kept as well as late ones. "
            if found[FIXED].fall > FALLS
            else "Sentences of a few words fit into one vector: there, attention adds nothing. "
        )
        + f"{_of_further(found)}(Words are written after the right ones: what is measured is what the "
        "decoder knows of the source.)",
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
                "Right words over the length",
                "words in the sentence",
                lengths,
                {name: own.by_length for name, own in found.items()},
            ),
            _curves(
                f"Which of {longest} words are right",
                "place in the sentence that is read",
                places,
                {name: own.by_place for name, own in found.items() if name != IN_ORDER},
            ),
        ],
    )


def _curves(title: str, x: str, xs: Sequence[int], lines: Mapping[str, Sequence[float]]) -> Curves:
    return Curves(title, x, "share of words", over(xs, lines), limits=(0.0, 1.04), inches=(4.8, 3.8))


def _of_further(found: Mapping[str, Told]) -> str:
    """What is to be said of them, where they were trained and it is so."""
    said = ""
    if WIDER in found and found[WIDER].by_length[-1] > found[FIXED].by_length[-1] + CLEARLY:
        said += "A vector twice as wide holds more of a long sentence, not all. "
    if IN_ORDER in found and found[IN_ORDER].by_length[-1] < found[FIXED].by_length[-1] - CLEARLY:
        said += (
            "Written in the order in which they are read, fewer words are right still: then even the last "
            "words have a long way (Sutskever et al. 2014, section 3.3, reversed the source). "
        )
    return said


def _verdict(found: Mapping[str, Told]) -> Verdict:
    """The claim is that one vector is too little for long sentences, and that attention keeps early words."""
    fixed, attention = found[FIXED], found[ATTENTION]
    if fixed.fall <= FALLS:
        return "is wrong"
    kept = attention.by_place[0] > attention.by_place[-1] - FALLS
    lost = fixed.by_place[0] < fixed.by_place[-1] - FALLS
    return "holds" if attention.fall <= FALLS and kept and lost else "holds with conditions"


EXPERIMENTS = [
    Experiment(
        "one-vector",
        "What one vector holds of a sentence",
        "An encoder puts all that a sentence says into one vector, which limits long sentences; attention "
        "keeps the first words from being lost.",
        "S4, sections 5 and 5.1 with figure 1; S0, sequence to sequence; Bahdanau et al. 2015, section 5.1 "
        "and figure 2",
        (4, 10),
        run=_held,
        control=partial(_held, longest=3),
        changed="No sentence is longer than three words.",
    ),
]
