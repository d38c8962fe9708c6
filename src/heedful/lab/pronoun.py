"""The pronoun "it" of the lectures: the table of its weights, and its attention with one and two heads.

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
"""Largest distance from 1 of the sum of a row of weights that are rounded to hundredths, as printed."""


def _table(size: Size, *, printed: bool) -> Outcome:
    """Sum the printed rows, or rows of heedful's attention, rounded in the same way."""
    rows = torch.tensor(list(TABLE.values()), dtype=torch.float64) if printed else _rounded_weights()
    sums = dict(zip(TABLE, rows.sum(-1).tolist(), strict=True))
    apart = {word: abs(total - 1) for word, total in sums.items()}
    worst = max(apart, key=lambda word: apart[word])
    right = apart[worst] <= ROUNDED + 1e-9
    return Outcome(
        "holds" if right else "is wrong",
        "As scores before a softmax, any numbers are possible. As weights, which the table appears to show, "
        "these are not. Weights are the result of a softmax, so the row of every word sums to 1, and eight "
        f"weights rounded to hundredths sum to at least {1 - ROUNDED:.2f}. The printed rows sum to 0.96, "
        "0.93, 0.98 and 0.96: the row of “animal” cannot be a rounded row, whatever the others are.",
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
    """Return the weights of one head of heedful's attention for the table's words, rounded to hundredths."""
    d, layout = 16, Layout.of([len(SENTENCE)])
    part, words = SelfAttention(d, 1, score=DotScore()), torch.randn(len(SENTENCE), d)
    with recording(part, ["weights"]) as seen:
        part(words, layout)
    chosen = [SENTENCE.index(word) for word in TABLE]
    return seen["weights"][0][0, 0, chosen].double().mul(100).round() / 100


# One head and two heads

NOUNS, ADJECTIVES, WIDTH = 12, 6, 32
ANSWERS = NOUNS + ADJECTIVES
WORDS = ["the", "animal", "didn't", "cross", "the", "street", "because", "it", "was", "too", "tired"]
FIRST, SECOND, IT, LAST = (WORDS.index(word) for word in ("animal", "street", "it", "tired"))
BATCH, RATE = 64, 0.005
UPDATES = {"short": 600, "long": 3000}
SEEDS = {"short": range(10), "long": range(24)}
TESTED, LAST_LOSSES, SURE = 500, 20, 0.1
MORE = 0.08
"""Increase in the weight on the least attended word above which a second head counts as a help."""


def sentences(n: int) -> Int[Tensor, "n words"]:
    """Draw sentences like `WORDS`, with two different nouns and an adjective drawn at random.

    Ids are those of nouns, then adjectives, then the other words.
    """
    others = {word: ANSWERS + i for i, word in enumerate(dict.fromkeys(WORDS))}
    ids = torch.tensor([others[word] for word in WORDS]).repeat(n, 1)
    ids[:, FIRST] = torch.randint(NOUNS, (n,))
    ids[:, SECOND] = (ids[:, FIRST] + torch.randint(1, NOUNS, (n,))) % NOUNS
    ids[:, LAST] = NOUNS + torch.randint(ADJECTIVES, (n,))
    return ids


class Reader(nn.Module):
    """Words and positions, one attention layer, and a linear classifier on "it" for each word to predict.

    Args:
        n_heads: number of heads, which share the width.
        n_asked: number of words to predict from the output for "it".
    """

    def __init__(self, n_heads: int, n_asked: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ANSWERS + len(WORDS), WIDTH)
        self.positions = Added(SinusoidalPositions(WIDTH))
        self.attention = SelfAttention(WIDTH, n_heads, qkv_bias=True)
        self.answers = nn.ModuleList(nn.Linear(WIDTH, ANSWERS) for _ in range(n_asked))

    def forward(self, ids: Int[Tensor, "n words"]) -> Float[Tensor, "n asked answers"]:
        """Return the logits of each word to predict."""
        layout = Layout.of([ids.shape[1]] * len(ids))
        x = self.positions(self.embedding(ids.flatten()), layout.positions)
        it = self.attention(x, layout).view(*ids.shape, -1)[:, IT]
        return torch.stack([answer(it) for answer in self.answers], 1)


@dataclass(frozen=True)
class Read:
    """Results of a trained reader.

    Args:
        right: share of new sentences for which all words are predicted correctly.
        weights: weights of "it" in each head, ``[H, words]``, averaged over those sentences.
        losses: loss by update, in nats per word to predict.
    """

    right: float
    weights: Float[Tensor, "H words"]
    losses: list[float]

    @property
    def sure(self) -> bool:
        """Whether the mean of the last losses is below `SURE`."""
        return fmean(self.losses[-LAST_LOSSES:]) < SURE

    def least_seen(self, asked: tuple[int, ...]) -> float:
        """Return the smallest weight on the words of ``asked``, each in the head that attends to it most."""
        return self.weights[:, list(asked)].amax(0).min().item()


def read(n_heads: int, asked: tuple[int, ...], updates: int) -> Read:
    """Train a reader to predict the words at the positions ``asked`` until it is sure, and capture weights.

    Args:
        n_heads: number of heads of the reader.
        asked: positions of words.
        updates: largest number of updates, sure or not.
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
    weights = seen["attention.weights"][0].mean(0)[:, IT]
    return Read(right.double().mean().item(), weights, losses)


def _readings(n_heads: int, asked: tuple[int, ...], size: Size) -> list[Read]:
    """Train a reader for each seed."""
    found = []
    for seed in SEEDS[size]:
        with seeded(seed):
            found.append(read(n_heads, asked, UPDATES[size]))
    return found


def _heads(size: Size, asked: tuple[int, ...]) -> Outcome:
    """Test whether two heads attend more to the words to predict than one."""
    readings = {"one head": _readings(1, asked, size), "two heads": _readings(2, asked, size)}
    least = {name: fmean([each.least_seen(asked) for each in own]) for name, own in readings.items()}
    helps = least["two heads"] - least["one head"] > MORE
    one, two = (own[0] for own in readings.values())
    rows = {"one head": one.weights[0], "first of two": two.weights[0], "second of two": two.weights[1]}
    return Outcome(
        "holds with conditions" if helps else "is wrong",
        (
            "It helps to attend to several words, but it is not required. The weights of one head sum to 1: "
            "it passes on one mixture of two words, and cannot give both of them more than half. Two heads "
            "can attend to one word each, and need fewer updates. But the noun and the adjective can be "
            "recovered from a mixture, since no word is both, so one head learns the task too. (If values "
            "cannot hold both, one head fails: two-lookups.)"
            if helps
            else "For a single word of the sentence, one head is enough: it attends to that word as much as "
            "two."
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
                Measured(f"weight of “it” on “{WORDS[place]}”, {name}", weights[place].item())
                for name, weights in rows.items()
                for place in asked
            ),
        ],
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
        "Attention of “it” with one head and with two",
        "Adding more than one attention helps in capturing different contextual information of the sentence.",
        "S0, motivation for multi-head attention (single-head and two-head); Vaswani et al. 2017, section "
        "3.2.2",
        (29,),
        run=partial(_heads, asked=(FIRST, LAST)),
        control=partial(_heads, asked=(FIRST,)),
        changed="Only the first noun must be predicted from “it”, not the noun and the adjective.",
        expected=("holds with conditions", "is wrong"),
    ),
]
