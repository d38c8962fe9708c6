"""The lectures' word "it": the table of its weights, and where it looks with one head and with two.

Items 28 and 29 of the lectures.
"""

from dataclasses import dataclass
from functools import partial
from statistics import fmean, median

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.lab.drawing import Bars, Curves, Matrix
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import seeded
from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.layout import Layout
from heedful.nn.positions import Added, SinusoidalPositions
from heedful.nn.taps import recording

# The table

TABLE = {
    "The": (0.6, 0.1, 0.05, 0.05, 0.02, 0.02, 0.02, 0.1),
    "animal": (0.02, 0.5, 0.06, 0.15, 0.02, 0.05, 0.01, 0.12),
    "didn't": (0.01, 0.35, 0.45, 0.1, 0.01, 0.02, 0.01, 0.03),
    "it": (0.01, 0.6, 0.02, 0.1, 0.01, 0.2, 0.01, 0.01),
}
"""Lecture S0's weights of four words over the eight of "The animal didn't cross the street because it"."""


SENTENCE = ("The", "animal", "didn't", "cross", "the", "street", "because", "it")
ROUNDED = len(SENTENCE) * 0.005
"""So far from 1 a row of weights can sum that are rounded to hundredths, as they are printed."""


def _table(size: Size, *, printed: bool) -> Outcome:
    """The sums of the printed rows, or of what heedful's attention gives, rounded as they are."""
    rows = torch.tensor(list(TABLE.values()), dtype=torch.float64) if printed else _rounded_weights()
    sums = dict(zip(TABLE, rows.sum(-1).tolist(), strict=True))
    apart = {word: abs(total - 1) for word, total in sums.items()}
    worst = max(apart, key=lambda word: apart[word])
    right = apart[worst] <= ROUNDED + 1e-9
    return Outcome(
        "holds" if right else "is wrong",
        "As scores before a softmax any numbers will do. As weights, which the table looks like, these will "
        "not: weights are a softmax, so the row of every word sums to 1, and of eight that are rounded to "
        f"hundredths to no less than {1 - ROUNDED:.2f}. The printed ones sum to 0.96, 0.93, 0.98 and 0.96: "
        "that of “animal” is no rounded row, whatever the others are.",
        [
            Measured(f"furthest from 1: the row of “{worst}”", apart[worst]),
            Measured("what rounding can do", ROUNDED),
            *(Measured(f"sum of the row of “{word}”", total, expected=1.0) for word, total in sums.items()),
        ],
        panels=[
            Bars("Sums of the rows", "word", "sum of its weights", sums, levels={"1": 1.0}),
            Matrix("The rows", "", "", rows.tolist(), (0.0, 1.0), SENTENCE, tuple(TABLE)),
        ],
    )


@seeded()
@torch.no_grad()
def _rounded_weights() -> Float[Tensor, "words eight"]:
    """Weights of the table's words by a head of heedful's attention, to hundredths."""
    d, layout = 16, Layout.of([len(SENTENCE)])
    part, words = SelfAttention(d, 1, score=DotScore()), torch.randn(len(SENTENCE), d)
    with recording(part, ["weights"]) as seen:
        part(words, layout)
    chosen = [SENTENCE.index(word) for word in TABLE]
    return seen["weights"][0][0, 0, chosen].double().mul(100).round() / 100


# One head and two

NOUNS, ADJECTIVES, WIDTH = 12, 6, 32
ANSWERS = NOUNS + ADJECTIVES
WORDS = ["the", "animal", "didn't", "cross", "the", "street", "because", "it", "was", "too", "tired"]
FIRST, SECOND, IT, LAST = (WORDS.index(word) for word in ("animal", "street", "it", "tired"))
BATCH, RATE = 64, 0.005
UPDATES = {"short": 600, "long": 3000}
SEEDS = {"short": range(10), "long": range(24)}
TESTED, LAST_LOSSES, SURE = 500, 20, 0.1
MORE = 0.08
"""How much more weight a second head must bring to the word that is seen least, to count as a help."""


def sentences(n: int) -> Int[Tensor, "n words"]:
    """Sentences like that of `WORDS`, with two different nouns and an adjective drawn at random.

    Ids are those of nouns, adjectives, then the other words.
    """
    others = {word: ANSWERS + i for i, word in enumerate(dict.fromkeys(WORDS))}
    ids = torch.tensor([others[word] for word in WORDS]).repeat(n, 1)
    ids[:, FIRST] = torch.randint(NOUNS, (n,))
    ids[:, SECOND] = (ids[:, FIRST] + torch.randint(1, NOUNS, (n,))) % NOUNS
    ids[:, LAST] = NOUNS + torch.randint(ADJECTIVES, (n,))
    return ids


class Reader(nn.Module):
    """Words and their places, one attention, and for each thing that is asked of "it" a linear layer.

    Args:
        n_heads: which share the width.
        n_asked: how many words are to be told from what "it" becomes.
    """

    def __init__(self, n_heads: int, n_asked: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ANSWERS + len(WORDS), WIDTH)
        self.positions = Added(SinusoidalPositions(WIDTH))
        self.attention = SelfAttention(WIDTH, n_heads, qkv_bias=True)
        self.answers = nn.ModuleList(nn.Linear(WIDTH, ANSWERS) for _ in range(n_asked))

    def forward(self, ids: Int[Tensor, "n words"]) -> Float[Tensor, "n asked answers"]:
        """Logits of each word that is asked for."""
        layout = Layout.of([ids.shape[1]] * len(ids))
        x = self.positions(self.embedding(ids.flatten()), layout.positions)
        it = self.attention(x, layout).view(*ids.shape, -1)[:, IT]
        return torch.stack([answer(it) for answer in self.answers], 1)


@dataclass(frozen=True)
class Read:
    """What a reader came to.

    Args:
        right: share of new sentences of which all that is asked is told rightly.
        looks: weights of "it" in each head, ``[H, words]``, the mean over those sentences.
        losses: update by update, in nats a word that is asked for.
    """

    right: float
    looks: Float[Tensor, "H words"]
    losses: list[float]

    @property
    def sure(self) -> bool:
        """Whether the mean of the last losses is below `SURE`."""
        return fmean(self.losses[-LAST_LOSSES:]) < SURE

    def least_seen(self, asked: tuple[int, ...]) -> float:
        """The weight of the word of ``asked`` that is seen least, in the head that looks most at it."""
        return self.looks[:, list(asked)].amax(0).min().item()


def read(n_heads: int, asked: tuple[int, ...], updates: int) -> Read:
    """Train a reader to tell the words at the places ``asked`` until it is sure of them, and look at it.

    Args:
        n_heads: of the reader.
        asked: places of words.
        updates: after which it ends, sure or not.
    """
    model = Reader(n_heads, len(asked))
    optimizer = torch.optim.Adam(model.parameters(), RATE, fused=True)
    losses: list[float] = []
    while len(losses) < updates and (len(losses) < LAST_LOSSES or fmean(losses[-LAST_LOSSES:]) >= SURE):
        ids = sentences(BATCH)
        loss = functional.cross_entropy(model(ids).flatten(0, 1), ids[:, list(asked)].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    ids = sentences(TESTED)
    with torch.no_grad(), recording(model, ["attention.weights"]) as seen:
        right = (model(ids).argmax(-1) == ids[:, list(asked)]).all(1)
    looks = seen["attention.weights"][0].mean(0)[:, IT]
    return Read(right.double().mean().item(), looks, losses)


def _readings(n_heads: int, asked: tuple[int, ...], size: Size) -> list[Read]:
    """One for each seed."""
    found = []
    for seed in SEEDS[size]:
        with seeded(seed):
            found.append(read(n_heads, asked, UPDATES[size]))
    return found


def _heads(size: Size, asked: tuple[int, ...]) -> Outcome:
    """Whether two heads see more of what is asked than one."""
    readings = {"one head": _readings(1, asked, size), "two heads": _readings(2, asked, size)}
    least = {name: fmean([each.least_seen(asked) for each in own]) for name, own in readings.items()}
    helps = least["two heads"] - least["one head"] > MORE
    one, two = (own[0] for own in readings.values())
    rows = {"one head": one.looks[0], "first of two": two.looks[0], "second of two": two.looks[1]}
    return Outcome(
        "holds with conditions" if helps else "is wrong",
        (
            "It helps to see several words, and is no need. The weights of one head sum to 1: it hands on "
            "one mixture of two words, and cannot give both of them more than half. Two heads share the "
            "words out, and need fewer updates for it. But a noun and an adjective can be told apart in a "
            "mixture, for no word is both, and so one head learns the task too. (Where values have no room "
            "for both, one head loses: two-lookups.)"
            if helps
            else "For a single word of the sentence one head is enough: it sees that word as well as two."
        ),
        [
            *(
                Measured(f"weight of the word that is seen least, {name}", mean)
                for name, mean in least.items()
            ),
            *(
                Measured(
                    f"updates until sure (at most {UPDATES[size]}), {name}",
                    median(len(each.losses) for each in own),
                )
                for name, own in readings.items()
            ),
            *(
                Measured(
                    f"trainings that became sure, {name}",
                    100 * fmean([each.sure for each in own]),
                    "%",
                )
                for name, own in readings.items()
            ),
            *(
                Measured(
                    f"sentences of which all that is asked is told, {name}",
                    100 * fmean([each.right for each in own]),
                    "%",
                )
                for name, own in readings.items()
            ),
            *(
                Measured(f"weight of “it” on “{WORDS[place]}”, {name}", looks[place].item())
                for name, looks in rows.items()
                for place in asked
            ),
        ],
        panels=[
            Matrix(
                "Where “it” looks",
                "",
                "",
                [looks.tolist() for looks in rows.values()],
                (0.0, 1.0),
                columns=WORDS,
                rows=list(rows),
                inches=(6.4, 3.2),
            ),
            Curves(
                "Loss in training, until sure",
                "update",
                "nats a word",
                {name: (range(1, len(own[0].losses) + 1), own[0].losses) for name, own in readings.items()},
                levels={"sure": SURE},
                inches=(3.8, 3.2),
            ),
        ],
    )


EXPERIMENTS = [
    Experiment(
        "table-of-it",
        "A table of weights whose rows do not sum to 1",
        "The relational scores between words of “The animal didn't cross the street because it”, as printed, "
        "are weights of attention.",
        "S0, the goal of self-attention (it says “relational score”, and leaves open whether the softmax is "
        "still to come)",
        (28,),
        run=partial(_table, printed=True),
        control=partial(_table, printed=False),
        changed="The rows are those of heedful's self-attention over eight words, rounded as the table is.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "heads-on-it",
        "Where “it” looks with one head and with two",
        "Adding more than one attention helps in capturing different contextual information of the sentence.",
        "S0, motivation for multi-head attention (single-head and two-head); Vaswani et al. 2017, section "
        "3.2.2",
        (29,),
        run=partial(_heads, asked=(FIRST, LAST)),
        control=partial(_heads, asked=(FIRST,)),
        changed="The first noun alone is asked of “it”, not the noun and the adjective.",
        expected=("holds with conditions", "is wrong"),
    ),
]
