"""Scores: the effect of the width of queries and keys on the softmax, the divisor, and cosine scores."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from heedful.lab.drawing import Curves, Panel, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import seeded
from heedful.nn.attention.scores import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    Score,
)

N_QUERIES, N_KEYS = 16, 64
WIDTHS = {"short": (2, 8, 32, 128, 512), "long": (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)}
SETS = {"short": 25, "long": 100}
NARROW = (3.8, 3.4)  # inches of a panel if three are side by side


@dataclass(frozen=True)
class _Softmax:
    """Statistics of a score for queries and keys with components of mean 0 and variance 1.

    Args:
        variance: variance of the scores.
        top: largest weight of a query, averaged over queries.
        gradient: Frobenius norm of the softmax's Jacobian, diag(p) - p pᵀ; the median over queries.
    """

    variance: float
    top: float
    gradient: float


@torch.no_grad()
def _softmax_of(score: Score, width: int, sets: int) -> _Softmax:
    drawn = [
        score(torch.randn(N_QUERIES, width), score.prepare(torch.randn(N_KEYS, width))) for _ in range(sets)
    ]
    scores = torch.cat(drawn).double()
    p = scores.softmax(-1)
    squares = p.square().sum(-1)
    # |diag(p) - p pᵀ|² = Σ p² - 2 Σ p³ + (Σ p²)²
    jacobian = (squares - 2 * p.pow(3).sum(-1) + squares.square()).clamp(min=0).sqrt()
    top = p.max(-1).values.mean().item()
    return _Softmax(scores.var().item(), top, jacobian.median().item())


def _rows(widths: tuple[int, ...], found: list[_Softmax]) -> list[dict[str, str | float]]:
    return [
        {"d_k": d, "variance": each.variance, "greatest weight": each.top, "gradient": each.gradient}
        for d, each in zip(widths, found, strict=True)
    ]


@seeded()
def _growth(size: Size, score: Score) -> Outcome:
    """Test whether scores grow with the width, and the softmax's gradient vanishes."""
    widths = WIDTHS[size]
    found = [_softmax_of(score, d, SETS[size]) for d in widths]
    first, last = found[0], found[-1]
    power = math.log(last.variance / first.variance) / math.log(widths[-1] / widths[0])
    holds = abs(power - 1) < 0.1 and last.gradient < first.gradient / 10
    return Outcome(
        "holds" if holds else "is wrong",
        (
            "If the components of q and k are independent, with mean 0 and variance 1, q·k has variance "
            "d_k. The softmax of such scores is almost one-hot at large d_k, so almost no gradient passes "
            "through it. (The median query is shown: if two keys tie, some gradient remains.)"
            if holds
            else "With this score, neither the variance nor the gradient depends on the width."
        ),
        [
            Measured(
                f"variance of the scores at d_k = {widths[-1]}", last.variance, expected=float(widths[-1])
            ),
            Measured("power of d_k with which the variance grows", power, expected=1.0),
            Measured(f"greatest weight at d_k = {widths[-1]}", last.top),
            Measured(f"gradient at d_k = {widths[0]}, median", first.gradient),
            Measured(f"gradient at d_k = {widths[-1]}, median", last.gradient),
        ],
        _rows(widths, found),
        [
            Curves(
                "Variance of the scores",
                "d_k",
                "variance",
                over(widths, {"measured": [each.variance for each in found], "d_k": widths}),
                log="xy",
                inches=NARROW,
            ),
            Curves(
                "Largest of 64 weights",
                "d_k",
                "weight",
                {"": (widths, [each.top for each in found])},
                log="x",
                limits=(0, 1.05),
                inches=NARROW,
            ),
            Curves(
                "Gradient through the softmax",
                "d_k",
                "norm of the Jacobian",
                {"": (widths, [each.gradient for each in found])},
                log="xy",
                inches=NARROW,
            ),
        ],
    )


@seeded()
def _additive_against(size: Size, rival: Score) -> Outcome:
    """Test whether an additive score preserves a gradient that a product loses."""
    widths, sets = WIDTHS[size], SETS[size]
    additive = [_softmax_of(AdditiveScore(d, d, d), d, sets) for d in widths]
    product = [_softmax_of(rival, d, sets) for d in widths]
    ratios = [a.gradient / p.gradient for a, p in zip(additive, product, strict=True)]
    wins = ratios[-1] > 10 > ratios[0]
    return Outcome(
        "holds with conditions" if wins else "is wrong",
        (
            "It holds for the unscaled product at large d_k: the additive score is a sum of bounded terms, "
            "and its softmax preserves a gradient at every width. Divided by √d_k, the product does so too. "
            "This shows the cause of the difference, not its size in a trained system."
            if wins
            else "Compared with a product of constant variance, the additive score has no advantage in the "
            "gradient at any width."
        ),
        [
            Measured(f"gradient, additive to product, at d_k = {widths[-1]}", ratios[-1]),
            Measured(f"gradient, additive to product, at d_k = {widths[0]}", ratios[0]),
            Measured(f"variance of additive scores at d_k = {widths[-1]}", additive[-1].variance),
            Measured(f"variance of products at d_k = {widths[-1]}", product[-1].variance),
        ],
        [
            {"d_k": d, "additive": a.gradient, "product": p.gradient}
            for d, a, p in zip(widths, additive, product, strict=True)
        ],
        [
            Curves(
                title,
                "d_k",
                field,
                {
                    "additive": (widths, [getattr(each, field) for each in additive]),
                    "product": (widths, [getattr(each, field) for each in product]),
                },
                log="xy",
            )
            for title, field in (
                ("Variance of the scores", "variance"),
                ("Gradient through the softmax", "gradient"),
            )
        ],
    )


LENGTHS = (4, 16, 64, 256)
WIDTH = 64


@seeded()
@torch.no_grad()
def _scale(size: Size, divisor: Literal["words", "width"]) -> Outcome:
    """Test whether division by the root of the number of words, or of the width, gives variance 1."""
    sets = {"short": 200, "long": 2000}[size]
    variances = []
    for n in LENGTHS:
        q, k = torch.randn(sets, N_QUERIES, WIDTH), torch.randn(sets, n, WIDTH)
        scores = ScaledDotScore()(q, k) if divisor == "width" else DotScore()(q, k) / math.sqrt(n)
        variances.append(scores.var().item())
    holds = all(abs(variance - 1) < 0.1 for variance in variances)
    expected = [1.0 if divisor == "width" else WIDTH / n for n in LENGTHS]
    return Outcome(
        "holds" if holds else "is wrong",
        (
            "Divided by √d_k, the variance is 1 at every length."
            if holds
            else "The divisor is √d_k, the root of the width of the vectors. Divided by the root of the "
            "number of words, scores have variance d_k / n: the softmax is sharp for short sentences and "
            "flat for long ones."
        ),
        [
            Measured(f"variance for a sentence of {n} words, d_k = {WIDTH}", variance, expected=wanted)
            for n, variance, wanted in zip(LENGTHS, variances, expected, strict=True)
        ],
        panels=[
            Curves(
                f"Variance of the scores, d_k = {WIDTH}",
                "words in the sentence",
                "variance",
                {"measured": (LENGTHS, variances)},
                levels={"wanted": 1.0},
                log="xy",
            )
        ],
    )


COUNTS = (2, 5, 10, 20, 50, 100, 200, 500)
JUDGED = 50
STRENGTH = 20.0


@seeded()
@torch.no_grad()
def _cosine(size: Size, strength: float | None) -> Outcome:
    """Test whether a key that equals the query can get most of the weight."""
    score, times = CosineScore(strength), {"short": 50, "long": 500}[size]
    beta = 1.0 if strength is None else strength
    best, usual, bound = [], [], []
    for n in COUNTS:
        query = torch.randn(times, 1, WIDTH)
        opposite = torch.cat((query, -query.expand(-1, n - 1, -1)), 1)
        others = torch.cat((query, torch.randn(times, n - 1, WIDTH)), 1)
        best.append(_first_weight(score, query, opposite))
        usual.append(_first_weight(score, query, others))
        bound.append(1 / (1 + (n - 1) * math.exp(-2 * beta)))
    at = COUNTS.index(JUDGED)
    return Outcome(
        "holds" if usual[at] > 0.5 else "holds with conditions",
        (
            f"Multiplied by a learned key strength β = {beta:g}, cosines can select a single key."
            if usual[at] > 0.5
            else "The cosine needs a key strength β (Graves et al. 2014). The cosine itself is in [-1, 1], "
            "so over n keys no weight exceeds e² / (e² + n - 1), even if one key equals the query and all "
            "others are its opposite: the softmax is nearly flat."
        ),
        [
            Measured(f"weight of a key that is the query, of {JUDGED}, the others random", usual[at]),
            Measured("the same, the others opposite", best[at], expected=bound[at]),
            Measured("equal weights", 1 / JUDGED),
        ],
        [
            {"keys": n, "others random": u, "others opposite": b, "greatest possible": most}
            for n, u, b, most in zip(COUNTS, usual, best, bound, strict=True)
        ],
        [
            Curves(
                "Weight of the key that equals the query",
                "keys",
                "weight",
                over(
                    COUNTS,
                    {
                        "others random": usual,
                        "greatest possible": bound,
                        "equal weights": [1 / n for n in COUNTS],
                    },
                ),
                log="x",
                limits=(0, 1.05),
            )
        ],
    )


def _first_weight(score: Score, query: Tensor, keys: Tensor) -> float:
    return score(query, score.prepare(keys)).softmax(-1)[..., 0].mean().item()


def _concat(additive: AdditiveScore, q: Tensor, k: Tensor, *, query_first: bool) -> Tensor:
    """Compute vᵀ tanh(W [q; k]) for each pair, where W concatenates the two matrices of ``additive``."""
    matrices = [additive.query.weight, additive.key.weight]
    W = torch.cat(matrices if query_first else matrices[::-1], 1)
    pairs = torch.stack([torch.stack([torch.cat((a, b)) for b in k]) for a in q])
    return torch.tanh(pairs @ W.mT) @ additive.vector.weight[0]


@seeded()
@torch.no_grad()
def _one_score(size: Size, query_first: bool) -> Outcome:
    """Test whether S0's concat form and its additive form give the same values."""
    n, d = {"short": 12, "long": 40}[size], WIDTH
    additive = AdditiveScore(d, d, d)
    q, k = torch.randn(n, d), torch.randn(n, d)
    split = additive(q, additive.prepare(k))
    joined = _concat(additive, q, k, query_first=query_first)
    apart = (split - joined).abs().max().item()
    same = apart < 1e-5
    return Outcome(
        "holds" if same else "is wrong",
        (
            "W [q; k] = U q + W k if W_a = [U W]: the two are one score. The second form computes W k once "
            "per key, not once per pair."
            if same
            else "With the blocks of W_a swapped, these are two different scores."
        ),
        [
            Measured("greatest difference of the two forms", apart, expected=0.0),
            Measured("spread of the scores", split.std().item()),
        ],
        _comparison(d),
        [_both_forms(split.flatten(), joined.flatten())],
    )


def _both_forms(split: Tensor, joined: Tensor) -> Panel:
    """Draw both forms for each pair of query and key, with the pairs sorted by the first form."""
    order = split.argsort()
    forms = {"vᵀ tanh(U q + W k)": split[order].tolist(), "vᵀ tanh(W_a [q; k])": joined[order].tolist()}
    return Curves("Two forms of one score?", "pair of query and key", "score", over(range(len(order)), forms))


def _comparison(d: int) -> list[dict[str, str | float]]:
    """Tabulate heedful's scores at one width."""
    scores: dict[str, tuple[str, Score]] = {
        "dot": ("q·k", DotScore()),
        "scaled dot": ("q·k / √d_k", ScaledDotScore()),
        "multiplicative": ("qᵀ W k", BilinearScore(d, d)),
        "additive, concat": ("vᵀ tanh(U q + W k)", AdditiveScore(d, d, d)),
        "cosine": ("cos(q, k)", CosineScore()),
    }
    return [
        {
            "score": name,
            "formula": formula,
            f"parameters at d = {d}": sum(p.numel() for p in score.parameters()),
            "widths may differ": "yes" if isinstance(score, BilinearScore | AdditiveScore) else "no",
            "variance": _softmax_of(score, d, 20).variance,
        }
        for name, (formula, score) in scores.items()
    ]


EXPERIMENTS = [
    Experiment(
        name="dot-product-scale",
        title="Dot products grow with the width and saturate the softmax",
        claim="When the dimension becomes large, dot products between vectors tend to become large; the "
        "inputs to the softmax can then be large, making the gradients small.",
        source="S3, scaled dot product attention; S2; Vaswani et al. 2017, section 3.2.1, footnote 4",
        items=(14,),
        run=partial(_growth, score=DotScore()),
        control=partial(_growth, score=ScaledDotScore()),
        changed="The products are divided by √d_k.",
    ),
    Experiment(
        name="scale-by-words",
        title="Divide by the root of the width, not of the number of words",
        claim="The scaled dot product is s·h / √n, where n, on the slides before, is the number of words.",
        source="S0, approaches to implement the score function; Vaswani et al. 2017, equation 1",
        items=(14,),
        run=partial(_scale, divisor="words"),
        control=partial(_scale, divisor="width"),
        changed="The products are divided by the root of the width.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        name="additive-against-dot",
        title="Additive attention and the unscaled product",
        claim="For large d_k, additive attention is better than (unscaled) dot product attention.",
        source="S2, dot product attention, reference [3]; Vaswani et al. 2017, section 3.2.1",
        items=(16,),
        run=partial(_additive_against, rival=DotScore()),
        control=partial(_additive_against, rival=ScaledDotScore()),
        changed="The product is divided by √d_k.",
        expected=("holds with conditions", "is wrong"),
    ),
    Experiment(
        name="cosine-score",
        title="Cosines need a key strength",
        claim="The cosine of query and key is a score for attention, as it stands.",
        source="S0, content-based attention; Graves et al. 2014, section 3.3.1",
        items=(11,),
        run=partial(_cosine, strength=None),
        control=partial(_cosine, strength=STRENGTH),
        changed=f"The cosine is multiplied by a key strength of {STRENGTH:g}.",
        expected=("holds with conditions", "holds"),
    ),
    Experiment(
        name="additive-is-concat",
        title="The additive and the concat form are one score",
        claim="Additive attention is vᵀ tanh(W_a [s; h]), and also Vᵀ tanh(U s + W h).",
        source="S0, score functions and choice of attention function; Bahdanau et al. 2015, section A.1.2",
        items=(12, 13, 15),
        run=partial(_one_score, query_first=True),
        control=partial(_one_score, query_first=False),
        changed="W_a is [W U] and not [U W].",
    ),
]
