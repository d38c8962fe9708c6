"""Scores: the effect of the width of queries and keys on the softmax, the divisor, and cosine scores."""

import math
from typing import Literal

import torch
from torch import Tensor

from heedful.lab.drawing import Curves, curves_of_columns, curves_over
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import seeded
from heedful.lab.tiny import largest_difference, n_parameters
from heedful.nn.attention.scores import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    ScaledDotScore,
    ScoreFunction,
)

N_QUERIES, N_KEYS = 16, 64
WIDTHS = {"short": (2, 8, 32, 128, 512), "long": (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)}
SETS = {"short": 25, "long": 100}
NARROW = (3.8, 3.4)  # inches of a panel if three are side by side


@torch.no_grad()
def softmax_statistics(score: ScoreFunction, width: int, sets: int) -> dict[str, float]:
    """Measure a score and its softmax for queries and keys with components of mean 0 and variance 1.

    Returns:
        ``variance`` of the scores; ``greatest weight`` of a query, averaged over queries; and ``gradient``,
        the Frobenius norm of the softmax's Jacobian, diag(p) - p pᵀ, as the median over queries.
    """
    score_sets = [
        score(torch.randn(N_QUERIES, width), score.prepare(torch.randn(N_KEYS, width))) for _ in range(sets)
    ]
    scores = torch.cat(score_sets).double()
    p = scores.softmax(-1)
    squares = p.square().sum(-1)
    # |diag(p) - p pᵀ|² = Σ p² - 2 Σ p³ + (Σ p²)²
    jacobian = (squares - 2 * p.pow(3).sum(-1) + squares.square()).clamp(min=0).sqrt()
    return {
        "variance": scores.var().item(),
        "greatest weight": p.max(-1).values.mean().item(),
        "gradient": jacobian.median().item(),
    }


@measures("dot-product-scale", score=(DotScore(), ScaledDotScore()))
@seeded()
def measure_variance_and_gradient_by_width(size: Size, score: ScoreFunction) -> Series:
    """Measure how scores grow with the width, and how the softmax's gradient vanishes."""
    rows = [{"d_k": d, **softmax_statistics(score, d, SETS[size])} for d in WIDTHS[size]]
    first, last = rows[0], rows[-1]
    power = math.log(last["variance"] / first["variance"]) / math.log(last["d_k"] / first["d_k"])
    place = f"at d_k = {last['d_k']}"
    x, jacobian = "d_k", "norm of the Jacobian"
    variance = curves_of_columns(rows, x, {"measured": "variance", "d_k": "d_k"})
    weight, gradient = (
        curves_of_columns(rows, x, {"": column}) for column in ("greatest weight", "gradient")
    )
    return Series(
        {
            "variance": Measured(f"variance of the scores {place}", last["variance"], expected=last["d_k"]),
            "power": Measured("power of d_k with which the variance grows", power, expected=1.0),
            "top": Measured(f"greatest weight {place}", last["greatest weight"]),
            "first": Measured(f"gradient at d_k = {first['d_k']}, median", first["gradient"]),
            "last": Measured(f"gradient {place}, median", last["gradient"]),
        },
        rows,
        [
            Curves("Variance of the scores", x, "variance", variance, log="xy", inches=NARROW),
            Curves("Largest of 64 weights", x, "weight", weight, log="x", limits=(0, 1.05), inches=NARROW),
            Curves("Gradient through the softmax", x, jacobian, gradient, log="xy", inches=NARROW),
        ],
    )


@measures("additive-against-dot", rival=(DotScore(), ScaledDotScore()))
@seeded()
def compare_gradients_of_additive_score_and_product(size: Size, rival: ScoreFunction) -> Series:
    """Measure the gradients that an additive score and a product preserve."""
    widths, sets = WIDTHS[size], SETS[size]
    measurements = {
        "additive": [softmax_statistics(AdditiveScore(d, d, d), d, sets) for d in widths],
        "product": [softmax_statistics(rival, d, sets) for d in widths],
    }
    by_key = {
        key: {name: [measurement[key] for measurement in by_width] for name, by_width in measurements.items()}
        for key in measurements["product"][0]
    }
    additive, product = by_key["gradient"].values()
    first, last = (f"at d_k = {widths[i]}" for i in (0, -1))
    return Series(
        {
            "wide": Measured(f"gradient, additive to product, {last}", additive[-1] / product[-1]),
            "narrow": Measured(f"gradient, additive to product, {first}", additive[0] / product[0]),
            "additive": Measured(f"variance of additive scores {last}", by_key["variance"]["additive"][-1]),
            "product": Measured(f"variance of products {last}", by_key["variance"]["product"][-1]),
        },
        table_of({"d_k": widths, **by_key["gradient"]}),
        [
            Curves(title, "d_k", key, curves_over(widths, by_key[key]), log="xy")
            for title, key in (
                ("Variance of the scores", "variance"),
                ("Gradient through the softmax", "gradient"),
            )
        ],
    )


LENGTHS = (4, 16, 64, 256)
WIDTH = 64


@measures("scale-by-words", divisor=("words", "width"))
@seeded()
@torch.no_grad()
def measure_variance_by_sentence_length(size: Size, divisor: Literal["words", "width"]) -> Series:
    """Measure the variance of scores divided by the root of the number of words, or of the width."""
    sets = {"short": 200, "long": 2000}[size]
    variances = []
    for n in LENGTHS:
        q, k = torch.randn(sets, N_QUERIES, WIDTH), torch.randn(sets, n, WIDTH)
        scores = ScaledDotScore()(q, k) if divisor == "width" else DotScore()(q, k) / math.sqrt(n)
        variances.append(scores.var().item())
    names = [f"variance for a sentence of {n} words, d_k = {WIDTH}" for n in LENGTHS]
    expected = {name: 1.0 if divisor == "width" else WIDTH / n for name, n in zip(names, LENGTHS)}
    measured = measured_each("{}", dict(zip(names, variances)), expected=expected)
    return Series(
        {**measured, "variances": variances},
        panels=[
            Curves(
                f"Variance of the scores, d_k = {WIDTH}",
                "words in the sentence",
                "variance",
                curves_over(LENGTHS, {"measured": variances}),
                levels={"wanted": 1.0},
                log="xy",
            )
        ],
    )


COUNTS = (2, 5, 10, 20, 50, 100, 200, 500)
JUDGED = 50
STRENGTH = 20.0


@measures("cosine-score", strength=(None, STRENGTH))
@seeded()
@torch.no_grad()
def measure_weight_of_matching_key(size: Size, strength: float | None) -> Series:
    """Measure the weight of a key that equals the query."""
    score, n_sets = CosineScore(strength), {"short": 50, "long": 500}[size]
    beta = 1.0 if strength is None else strength
    rows = []
    for n in COUNTS:
        query = torch.randn(n_sets, 1, WIDTH)
        opposite = torch.cat((query, -query.expand(-1, n - 1, -1)), 1)
        random = torch.cat((query, torch.randn(n_sets, n - 1, WIDTH)), 1)
        rows.append(
            {
                "keys": n,
                "others random": _first_weight(score, query, random),
                "others opposite": _first_weight(score, query, opposite),
                "greatest possible": 1 / (1 + (n - 1) * math.exp(-2 * beta)),
            }
        )
    _, weight_among_random, weight_among_opposite, bound = rows[COUNTS.index(JUDGED)].values()
    return Series(
        {
            "usual": Measured(
                f"weight of a key that is the query, of {JUDGED}, the others random", weight_among_random
            ),
            "best": Measured("the same, the others opposite", weight_among_opposite, expected=bound),
            "equal": Measured("equal weights", 1 / JUDGED),
            "beta": beta,
        },
        rows,
        [
            Curves(
                "Weight of the key that equals the query",
                "keys",
                "weight",
                curves_of_columns(rows, "keys", ["others random", "greatest possible"])
                | curves_over(COUNTS, {"equal weights": [1 / n for n in COUNTS]}),
                log="x",
                limits=(0, 1.05),
            )
        ],
    )


def _first_weight(score: ScoreFunction, query: Tensor, keys: Tensor) -> float:
    return score(query, score.prepare(keys)).softmax(-1)[..., 0].mean().item()


def _concat(additive: AdditiveScore, q: Tensor, k: Tensor, *, query_first: bool) -> Tensor:
    """Compute vᵀ tanh(W [q; k]) for each pair, where W concatenates the two matrices of ``additive``."""
    matrices = [additive.query.weight, additive.key.weight]
    W = torch.cat(matrices if query_first else matrices[::-1], 1)
    pairs = torch.stack([torch.stack([torch.cat((a, b)) for b in k]) for a in q])
    return torch.tanh(pairs @ W.mT) @ additive.vector.weight[0]


@measures("additive-is-concat", query_first=(True, False))
@seeded()
@torch.no_grad()
def compare_concat_and_additive_form(size: Size, query_first: bool) -> Series:
    """Measure the difference of S0's concat form and its additive form."""
    n, d = {"short": 12, "long": 40}[size], WIDTH
    additive = AdditiveScore(d, d, d)
    q, k = torch.randn(n, d), torch.randn(n, d)
    additive_scores = additive(q, additive.prepare(k))
    concat_scores = _concat(additive, q, k, query_first=query_first)
    difference = largest_difference(additive_scores, concat_scores)
    order = additive_scores.flatten().argsort()
    forms = {"vᵀ tanh(U q + W k)": additive_scores, "vᵀ tanh(W_a [q; k])": concat_scores}
    curves = curves_over(
        range(len(order)), {name: scores.flatten()[order].tolist() for name, scores in forms.items()}
    )
    return Series(
        {
            "apart": Measured("greatest difference of the two forms", difference, expected=0.0),
            "spread": Measured("spread of the scores", additive_scores.std().item()),
        },
        _comparison(d),
        [Curves("Two forms of one score?", "pair of query and key", "score", curves)],
    )


def _comparison(d: int) -> list[dict[str, str | float]]:
    """Tabulate heedful's scores at one width."""
    scores: dict[str, tuple[str, ScoreFunction]] = {
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
            f"parameters at d = {d}": n_parameters(score),
            "widths may differ": "yes" if isinstance(score, BilinearScore | AdditiveScore) else "no",
            "variance": softmax_statistics(score, d, 20)["variance"],
        }
        for name, (formula, score) in scores.items()
    ]
