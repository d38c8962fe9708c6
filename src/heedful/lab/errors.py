"""What the lectures print wrongly, as experiments: the formula as printed, and corrected as the control.

Items 14, 22, 24, 28, 32, 42, 43, 44 and 47 of the lectures. Those of 2, 20, 37, 51, 54 and 96 stand beside
the experiments of their subjects. Where only a name or a date is wrong, there is nothing to measure: see
`NAMES`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.panels import Panel, draw
from heedful.lab.seeds import seeded
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.scores import DotScore, ScaledDotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.attention.weights import attention_weights, weighted_sum
from heedful.nn.layout import Layout
from heedful.nn.positions import SinusoidalPositions


@dataclass(frozen=True)
class Slip:
    """A name or a date that a lecture has wrong.

    Args:
        item: its number.
        lecture: S0 to S4.
        printed: what it says.
        correct: what is true, with the source.
    """

    item: int
    lecture: str
    printed: str
    correct: str


NAMES = (
    Slip(
        2,
        "S4",
        "the forget gate is the key addition of the LSTM",
        "the cell of 1997 had none (Hochreiter and Schmidhuber); Gers et al. added it in 2000",
    ),
    Slip(
        2,
        "S4",
        "LSTMs introduced catastrophic forgetting",
        "that is losing an old task while learning a new one (McCloskey and Cohen 1989); what is meant is "
        "the loss of distant context",
    ),
    Slip(
        4,
        "S0",
        "the encoder's final state is called annotation",
        "annotations are all the h_i (Bahdanau et al. 2014, section 3.2)",
    ),
    Slip(
        22,
        "S4",
        "softmax(Q K^T / √d_k) V, of T x d_v, is the attention matrix",
        "that is the result; the attention matrix is that of the weights, T x T",
    ),
    Slip(
        28,
        "S0",
        "the second sentence of the pair ends in “because it was congested”",
        "a Winograd pair differs in one word: “too tired” and “too wide”",
    ),
    Slip(
        32,
        "S2",
        "Press and Wolf are cited for weights that positions share",
        "their paper ties embeddings to the output layer; the feed-forward is Vaswani et al. 2017, section "
        "3.3",
    ),
    Slip(
        51,
        "S4",
        "the input is mapped by a pre-trained matrix",
        "in the paper it is learned with the rest, as S0 says (Vaswani et al. 2017, section 3.4)",
    ),
    Slip(
        74,
        "S1",
        "figure 12 shows a Transformer encoder of 6 layers with 12 heads each",
        "BERT-base has 12 layers with 12 heads each (Devlin et al. 2019, section 3)",
    ),
    Slip(
        74,
        "S1",
        "attention to the previous word, part (b), is diffuse compared to part (b)",
        "compared to part (a), attention to the next word",
    ),
    Slip(86, "S1", "Lee-Thorpe", "Lee-Thorp et al. 2021"),
)
"""What only a sentence can set right."""


# What a score is divided by


def _divided(power: float, name: str, size: Size) -> Outcome:
    """The variance of products of random queries and keys, over their width d_k, divided by d_k ** power."""
    widths, n = [4, 16, 64, 256], 512 if size == "short" else 2048
    variances, heedfuls = [], []
    for d_k in widths:
        generator = torch.Generator().manual_seed(d_k)
        q, k = (torch.randn(n, d_k, generator=generator) for _ in range(2))
        variances.append((DotScore()(q, k) / d_k**power).var().item())
        heedfuls.append(ScaledDotScore()(q, k).var().item())
    right = all(abs(variance - 1) < 0.2 for variance in variances)
    return Outcome(
        "holds" if right else "is wrong",
        "A product of d_k independent numbers of variance 1 has variance d_k: divided by √d_k, where d_k = "
        "d/h, it has variance 1 at every width. Divided by d_k it has variance 1 / d_k, and the softmax of "
        "wide heads is flat.",
        [
            Measured("variance of the scores, d_k = 256", variances[-1], expected=1.0),
            Measured("variance of the scores, d_k = 4", variances[0], expected=1.0),
            Measured("variance of heedful's own scores, d_k = 256", heedfuls[-1], expected=1.0),
        ],
        [
            {"d_k": d_k, f"divided by {name}": own, "heedful's": heedful}
            for d_k, own, heedful in zip(widths, variances, heedfuls, strict=True)
        ],
        lambda: draw(
            Panel(
                "Scores of random queries and keys",
                "width of queries and keys, d_k = d/h",
                "variance",
                {f"divided by {name}": (widths, variances)},
                levels={"wanted": 1.0},
                log="xy",
            )
        ),
    )


# Weights that are none

_N, _D = 9, 16


def _vectors(n: int, seed: int) -> Float[Tensor, "n d"]:
    return torch.randn(n, _D, generator=torch.Generator().manual_seed(seed))


def _heads(*rows: Float[Tensor, "n d"]) -> list[Float[Tensor, "1 1 n d"]]:
    """As one head of one sentence."""
    return [each[None, None] for each in rows]


def _normalised(size: Size, *, inside: bool) -> Outcome:
    """Weights with 1 / √d_k within the exponential, or as a factor of the quotient."""
    q, k = _vectors(_N, 1), _vectors(_N if size == "short" else 10 * _N, 2)
    products, root = q @ k.T, math.sqrt(_D)
    weights = (products / root).softmax(-1) if inside else products.softmax(-1) / root
    queries, keys = _heads(q, k)
    seen = Layout.of([len(q)]).sees(Layout.of([len(k)]))
    heedfuls = attention_weights(ScaledDotScore()(queries, keys), seen)[0, 0]
    sums = weights.sum(-1)
    right = (sums - 1).abs().max().item() < 1e-5 and (weights - heedfuls).abs().max().item() < 1e-5
    rows = list(range(1, len(q) + 1))
    return Outcome(
        "holds" if right else "is wrong",
        "The scores are divided by √d_k before the exponential: exp(q_i k_j / √d_k) / Σ_r exp(q_i k_r / "
        "√d_k). As a factor of the quotient it leaves rows that sum to 1 / √d_k, of a softmax that was not "
        "scaled.",
        [
            Measured("sum of a row", sums.mean().item(), expected=1.0),
            Measured(
                "largest difference to equation 1 of the same lecture",
                (weights - heedfuls).abs().max().item(),
            ),
        ],
        draw=lambda: draw(
            Panel(
                "Sums of the rows",
                "query",
                "sum of its weights",
                {"as computed": (rows, sums.tolist())},
                levels={"1 / √d_k": 1 / root, "1": 1.0},
            )
        ),
    )


TABLE = {
    "The": (0.6, 0.1, 0.05, 0.05, 0.02, 0.02, 0.02, 0.1),
    "animal": (0.02, 0.5, 0.06, 0.15, 0.02, 0.05, 0.01, 0.12),
    "didn't": (0.01, 0.35, 0.45, 0.1, 0.01, 0.02, 0.01, 0.03),
    "it": (0.01, 0.6, 0.02, 0.1, 0.01, 0.2, 0.01, 0.01),
}
"""Lecture S0's weights of four words over the eight of "The animal didn't cross the street because it"."""


def _table(size: Size, *, corrected: bool) -> Outcome:
    """The sums of the printed rows, or of a softmax whose weights have the same proportions."""
    weights = torch.tensor(list(TABLE.values()), dtype=torch.float64)
    if corrected:
        seen = Layout.of([len(TABLE)]).sees(Layout.of([weights.shape[1]]))
        weights = attention_weights(weights.log()[None, None], seen)[0, 0]
    sums = dict(zip(TABLE, weights.sum(-1).tolist(), strict=True))
    right = all(abs(total - 1) < 0.005 for total in sums.values())
    return Outcome(
        "holds" if right else "is wrong",
        "Weights of attention are a softmax, so the row of every word sums to 1. The printed ones sum to "
        "0.96, 0.93, 0.98 and 0.96.",
        [Measured(f"sum of the row of “{word}”", total, expected=1.0) for word, total in sums.items()],
        draw=lambda: draw(
            Panel("Sums of the rows", "word", "sum of its weights", bars=sums, levels={"1": 1.0})
        ),
    )


# Masks


def _causal(size: Size, *, twice: bool) -> Outcome:
    """Change the last token; look at what becomes of the tokens before it."""
    n = _N if size == "short" else 10 * _N
    q, k, v = (_vectors(n, seed) for seed in (1, 2, 3))
    other_k, other_v = k.clone(), v.clone()
    other_k[-1] *= 3.0
    other_v[-1] += 1.0
    run = _masked_twice if twice else _masked_once
    before, weights = run(q, k, v)
    after, _ = run(q, other_k, other_v)
    change = (after - before)[:-1].abs().amax(-1)
    last = weights[-1]
    return Outcome(
        "holds" if change.max().item() == 0 else "is wrong",
        "The mask belongs on the scores, before the one softmax. Added to weights that are a softmax "
        "already, it hides later words, but the first softmax has counted them, so they still change every "
        "earlier word; and a softmax of numbers from 0 to 1 is nearly flat: no visible word can have more "
        "than e times another's weight.",
        [
            Measured("largest change of earlier words by the last", change.max().item(), expected=0.0),
            Measured("greatest weight to smallest, last word", (last.max() / last.min()).item()),
        ],
        draw=lambda: draw(
            Panel(
                "Earlier words, when the last one changes",
                "word",
                "largest change",
                {"change": (list(range(1, n)), change.tolist())},
            ),
            Panel(
                "Weights of the last word",
                "word",
                "weight",
                {
                    "as printed": (list(range(1, n + 1)), _masked_twice(q, k, v)[1][-1].tolist()),
                    "masked once": (list(range(1, n + 1)), _masked_once(q, k, v)[1][-1].tolist()),
                },
            ),
        ),
    )


def _masked_twice(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Lecture S0: ``Z = softmax(A + M) V`` with ``A = softmax(Q K^T)``; and the weights."""
    mask = torch.full((len(q), len(k)), -math.inf).triu(1)
    weights = ((q @ k.T).softmax(-1) + mask).softmax(-1)
    return weights @ v, weights


def _masked_once(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """heedful's own parts."""
    layout = Layout.of([len(q)])
    queries, keys, values = _heads(q, k, v)
    weights = attention_weights(ScaledDotScore()(queries, keys), layout.sees(layout, causal=True))
    return weighted_sum(weights, values)[0, 0], weights[0, 0]


@torch.no_grad()
def _padded(size: Size, *, masked: bool) -> Outcome:
    """Cross-attention over a sentence with pads behind it; in the encoder they were masked."""
    n_pads = [0, 1, 2, 4, 8] if size == "short" else [0, 1, 2, 4, 8, 16, 32, 64]
    with seeded(0):
        part = CrossAttention(_D, 2)
    target, source = _vectors(5, 1), _vectors(_N, 2)
    layout = Layout.of([5])
    alone = part(target, layout, part.remember(source, Layout.of([_N])))
    changes = []
    for pads in n_pads:
        # A second sentence is as long as both; beside it, the first is filled up.
        rows = torch.cat([source, _vectors(pads, 3)])
        both, n_seen = torch.cat([source if masked else rows, rows]), _N if masked else len(rows)
        memory = part.remember(both, Layout.of([n_seen, len(rows)]))
        result = part(torch.cat([target, target]), Layout.of([5, 5]), memory)
        changes.append((result[:5] - alone).abs().max().item())
    nothing = part(target, layout, part.remember(source[:0], Layout.of([0]))).abs().max().item()
    plain = torch.full((3,), -math.inf).softmax(0).isnan().any().item()
    return Outcome(
        "holds" if max(changes) < 1e-5 else "is wrong",
        "The pads of the source must be hidden from the decoder's cross-attention too: else what is written "
        "depends on how long the longest sentence of the batch is. A sentence of pads alone then has no "
        "visible key; its result is exactly 0, where a softmax over nothing but minus infinity is not a "
        "number.",
        [
            Measured(f"change of a sentence by {n_pads[-1]} pads", changes[-1], expected=0.0),
            Measured("result over an empty source", nothing, expected=0.0),
            Measured("softmax of minus infinity alone is a number", float(not plain), expected=0.0),
        ],
        [{"pads": n, "largest change": change} for n, change in zip(n_pads, changes, strict=True)],
        lambda: draw(
            Panel(
                "Cross-attention over a padded source",
                "pads behind the sentence",
                "largest change of the result",
                {"change": (n_pads, changes)},
            )
        ),
    )


def _crossed(size: Size, *, causal: bool) -> Outcome:
    """Which source words each target word sees."""
    n = _N if size == "short" else 10 * _N
    q, k = _vectors(n, 1), _vectors(n, 2)
    queries, keys = _heads(q, k)
    seen = Layout.of([n]).sees(Layout.of([n]), causal=causal)
    weights = attention_weights(ScaledDotScore()(queries, keys), seen)[0, 0]
    visible = (weights > 0).sum(-1).tolist()
    return Outcome(
        "holds" if min(visible) == n else "is wrong",
        "Cross-attention has no causal mask: the whole source is known before the first word is written, "
        "and every target word sees all of it (its padding aside). With the mask of self-attention the "
        "first target word would see the first source word alone, and no verb could move to the front. The "
        "scores are divided by √d_k here too, which the lecture leaves out.",
        [
            Measured("source words that the first target word sees", visible[0], expected=float(n)),
            Measured("source words that the last target word sees", visible[-1], expected=float(n)),
        ],
        draw=lambda: draw(
            Panel(
                "Source words that are seen",
                "target word",
                "number",
                {"seen": (list(range(1, n + 1)), visible)},
                levels={"all": float(n)},
            )
        ),
    )


# Sinusoids

_WIDTH = 512


def as_printed(n: int, d: int = _WIDTH) -> Float[Tensor, "n columns"]:
    """Lecture S0: sin(j / 10000^(2i/d)) and cos(j / 10000^((2i+1)/d)), both for i = 0 … d/2."""
    i, places = torch.arange(d // 2 + 1, dtype=torch.float64), torch.arange(n, dtype=torch.float64)
    sines = torch.outer(places, 10_000 ** (-2 * i / d)).sin()
    cosines = torch.outer(places, 10_000 ** (-(2 * i + 1) / d)).cos()
    return torch.stack([sines, cosines], -1).flatten(1)


def _columns(size: Size, *, printed: bool) -> Outcome:
    """The number of columns, and whether the product of two positions depends on their distance alone."""
    n = 64 if size == "short" else 512
    positions = SinusoidalPositions(_WIDTH).double()
    table = as_printed(n) if printed else positions(torch.arange(n))
    products = table @ table.T
    distances = [1, 2, 4, 8, 16]
    spread = {}
    for k in distances:
        along = products.diagonal(k)
        spread[k] = (along.max() - along.min()).item()
    right = table.shape[1] == _WIDTH and max(spread.values()) < 1e-6
    return Outcome(
        "holds" if right else "is wrong",
        "A sine and its cosine share a frequency, 10000^(-2i/d) for i = 0 … d/2 - 1: 512 columns for d = "
        "512. Then the product of two positions depends on their distance alone, and a shift is a rotation. "
        "With the cosines' exponent (2i+1)/d no pair shares one; with i up to 256 there are 514 columns, "
        "and no sine has column 512.",
        [
            Measured("columns", table.shape[1], expected=float(_WIDTH)),
            Measured("spread of p_j · p_{j+16} over j", spread[16], expected=0.0),
            Measured("p_0 · p_16", products[0, 16].item()),
        ],
        [{"distance": k, "spread of the products": value} for k, value in spread.items()],
        lambda: draw(
            Panel(
                "Product of two positions at a distance of 16",
                "the first of them, j",
                "p_j · p_{j+16}",
                {"product": (list(range(n - 16)), products.diagonal(16).tolist())},
            )
        ),
    )


# Shapes


@dataclass(frozen=True)
class Shape:
    """A product whose printed factors do not give what they should.

    Args:
        lecture: S0 to S4.
        printed, correct: as formulas.
        wanted: the shape that must come out.
        as_printed, corrected: the shape that does come out; a ValueError or RuntimeError where nothing does.
    """

    lecture: str
    printed: str
    correct: str
    wanted: tuple[int, ...]
    as_printed: Callable[[], Sequence[int]]
    corrected: Callable[[], Sequence[int]]


def _m(*shape: int) -> Tensor:
    """A matrix of which only the shape matters."""
    return torch.empty(shape, device="meta")


# 7 words, d = 24, 4 heads of 6; a feed-forward of 96.
SHAPES = (
    Shape(
        "S4",
        "q_i is the i-th column of Q",
        "q_i is the i-th row of Q",
        (6,),
        lambda: _m(7, 6)[:, 0].shape,
        lambda: _m(7, 6)[0].shape,
    ),
    Shape(
        "S4",
        "softmax(Q_k^T / √d_k) v",
        "softmax(Q K^T / √d_k) V",
        (7, 6),
        lambda: (_m(7, 6).T @ _m(7, 6)).shape,
        lambda: (_m(7, 6) @ _m(7, 6).T @ _m(7, 6)).shape,
    ),
    Shape(
        "S1",
        "X W_h^Q with W_h^Q of N x d/H",
        "W_h^Q of d x d/H",
        (7, 6),
        lambda: (_m(7, 24) @ _m(7, 6)).shape,
        lambda: (_m(7, 24) @ _m(24, 6)).shape,
    ),
    Shape(
        "S1",
        "d = 768 and H = 10 in the original paper",
        "d = 512 and H = 8",
        (64,),
        lambda: (_head_width(768, 10),),
        lambda: (_head_width(512, 8),),
    ),
    Shape(
        "S2",
        "each head has its W_i^O of h d_v x d_model",
        "one W^O, of all heads together",
        (7, 24),
        lambda: (_m(7, 6) @ _m(24, 24)).shape,
        lambda: (torch.cat([_m(7, 6)] * 4, -1) @ _m(24, 24)).shape,
    ),
    Shape(
        "S0",
        "max(0, W_1 z + b_1) W_2 + b_2 with z a column",
        "W_2 max(0, W_1 z + b_1) + b_2",
        (24, 1),
        lambda: ((_m(96, 24) @ _m(24, 1) + _m(96, 1)).relu() @ _m(24, 96) + _m(24, 1)).shape,
        lambda: (_m(24, 96) @ (_m(96, 24) @ _m(24, 1) + _m(96, 1)).relu() + _m(24, 1)).shape,
    ),
)


def _head_width(d_model: int, n_heads: int) -> int:
    with torch.device("meta"):
        return SelfAttention(d_model, n_heads).d_k


def shape_of(attempt: Callable[[], Sequence[int]]) -> tuple[int, ...] | None:
    """What comes out, or None where the factors do not fit."""
    try:
        return tuple(attempt())
    except (RuntimeError, ValueError):
        return None


def _shapes(size: Size, *, printed: bool) -> Outcome:
    """Multiply what is printed, and look whether and what comes out."""
    found = [shape_of(each.as_printed if printed else each.corrected) for each in SHAPES]
    right = [each.wanted == shape for each, shape in zip(SHAPES, found, strict=True)]
    verdict: Verdict = "holds" if all(right) else "holds with conditions" if any(right) else "is wrong"
    return Outcome(
        verdict,
        "With words as rows, q_i is a row of Q, scores are Q K^T, head matrices are d x d/H, there is one "
        "W^O for all heads, and both matrices of a feed-forward stand on one side. The original paper has d "
        "= 512 and 8 heads; 10 does not divide 768, and 768 with 12 heads is BERT's.",
        [
            Measured(
                "formulas that give the shape that they should", sum(right), expected=float(len(SHAPES))
            ),
            Measured(
                "formulas whose factors do not fit", sum(shape is None for shape in found), expected=0.0
            ),
        ],
        [
            {
                "lecture": each.lecture,
                "printed": each.printed,
                "correct": each.correct,
                "wanted": _named(each.wanted),
                "comes out": _named(shape),
            }
            for each, shape in zip(SHAPES, found, strict=True)
        ],
        lambda: draw(
            Panel(
                "Formulas that give the shape that they should",
                "",
                "formulas",
                bars={
                    "as printed": sum(shape_of(each.as_printed) == each.wanted for each in SHAPES),
                    "corrected": sum(shape_of(each.corrected) == each.wanted for each in SHAPES),
                },
                levels={"all": float(len(SHAPES))},
            )
        ),
    )


def _named(shape: tuple[int, ...] | None) -> str:
    return "nothing" if shape is None else " x ".join(map(str, shape))


_VASWANI = "Vaswani et al. 2017"

EXPERIMENTS = [
    Experiment(
        "score-over-width",
        "A root that the text forgets",
        "The scores are divided by d/h.",
        f"S3, scaled dot product attention (its formula has the root); {_VASWANI}, section 3.2.1",
        (14,),
        run=partial(_divided, 1.0, "d/h"),
        control=partial(_divided, 0.5, "√(d/h)"),
        changed="The divisor is √(d/h), as in the formula.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "scale-outside-softmax",
        "Where the scale of the scores stands",
        "a_ij = exp(q_i k_j) / (√d_k Σ_r exp(q_i k_r)).",
        f"S4, section 5.3 (its equation 1 has it right); {_VASWANI}, equation 1",
        (22,),
        run=partial(_normalised, inside=False),
        control=partial(_normalised, inside=True),
        changed="Each product is divided by √d_k before the exponential.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "table-of-it",
        "A table of weights whose rows do not sum to 1",
        "The table shows how much each word of “The animal didn't cross the street because it” attends to "
        "each.",
        "S0, the goal of self-attention",
        (28,),
        run=partial(_table, corrected=False),
        control=partial(_table, corrected=True),
        changed="The rows are a softmax with the same proportions.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "double-softmax",
        "Where the causal mask stands",
        "Later words are masked by Z = softmax(A + M) V, where A = softmax(Q K^T).",
        f"S0, masked multi-head self-attention; {_VASWANI}, section 3.2.3",
        (42,),
        run=partial(_causal, twice=True),
        control=partial(_causal, twice=False),
        changed="The mask is added to the scaled scores, before the one softmax.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "padding-in-cross-attention",
        "Where padding must be hidden",
        "In practice padded tokens are masked in the encoder's attention.",
        "S0, masked self-attention, note",
        (43,),
        run=partial(_padded, masked=False),
        control=partial(_padded, masked=True),
        changed="Pads of the source are hidden from the decoder's cross-attention too.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "masked-cross-attention",
        "Whether cross-attention is masked",
        "The decoder's attention to the encoder is masked multi-head cross-attention.",
        f"S0, title of the slides on cross-attention; {_VASWANI}, section 3.2.3",
        (44,),
        run=partial(_crossed, causal=True),
        control=partial(_crossed, causal=False),
        changed="There is no causal mask.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "sinusoid-columns",
        "Exponents and columns of the sinusoids",
        "Column i is sin(j / 10000^(2i/d)) or cos(j / 10000^((2i+1)/d)), with i = 0, 1, …, 256 for d = 512.",
        f"S0, sinusoidal encoding function; {_VASWANI}, section 3.5",
        (47,),
        run=partial(_columns, printed=True),
        control=partial(_columns, printed=False),
        changed="Both have the exponent 2i/d, and i ends at 255.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "printed-shapes",
        "Formulas whose shapes do not fit",
        "The formulas of heads, queries and feed-forwards can be computed as they are printed.",
        f"S0, S1, S2 and S4; {_VASWANI}, sections 3.2 and 3.3",
        (22, 24, 32),
        run=partial(_shapes, printed=True),
        control=partial(_shapes, printed=False),
        changed="The formulas are corrected.",
        expected=("is wrong", "holds"),
    ),
]
