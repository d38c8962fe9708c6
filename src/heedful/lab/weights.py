"""The softmax of attention as printed in the lectures: the divisor of its scores, and its masks.

Items 14, 22, 42, 43 and 44 of the lectures. Each formula is tested as printed; its correction is the
control.
"""

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.lab.drawing import Curves, Matrix
from heedful.lab.experiment import Experiment, Measured, Outcome, Size
from heedful.lab.seeds import generator_from, seeded
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.scores import DotScore, ScaledDotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.attention.weights import attention_weights, weighted_sum
from heedful.nn.layout import Layout

# Divisor of the scores


def _divided(power: float, name: str, size: Size) -> Outcome:
    """Measure the variance of products of random queries and keys, divided by d_k ** power, by width d_k."""
    widths, n = [4, 16, 64, 256], 512 if size == "short" else 2048
    variances, heedfuls = [], []
    for d_k in widths:
        generator = generator_from(d_k)
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
        [
            Curves(
                "Scores of random queries and keys",
                "width of queries and keys, d_k = d/h",
                "variance",
                {f"divided by {name}": (widths, variances)},
                levels={"wanted": 1.0},
                log="xy",
            )
        ],
    )


# Weights that do not sum to 1

_N, _D = 9, 16


def _vectors(n: int, seed: int) -> Float[Tensor, "n d"]:
    return torch.randn(n, _D, generator=generator_from(seed))


def _heads(*rows: Float[Tensor, "n d"]) -> list[Float[Tensor, "1 1 n d"]]:
    """Reshape to one head of one sequence."""
    return [each[None, None] for each in rows]


def _normalised(size: Size, *, inside: bool) -> Outcome:
    """Compute weights with 1 / √d_k inside the exponential, or as a factor of the quotient."""
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
        "√d_k). As a factor of the quotient, 1 / √d_k leaves an unscaled softmax whose rows sum to "
        "1 / √d_k.",
        [
            Measured("sum of a row", sums.mean().item(), expected=1.0),
            Measured(
                "largest difference to equation 1 of the same lecture",
                (weights - heedfuls).abs().max().item(),
            ),
        ],
        panels=[
            Curves(
                "Sums of the rows",
                "query",
                "sum of its weights",
                {"as computed": (rows, sums.tolist())},
                levels={"1 / √d_k": 1 / root, "1": 1.0},
            )
        ],
    )


# Masks


def _causal(size: Size, *, twice: bool) -> Outcome:
    """Change the last token, and measure the change of the tokens before it."""
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
        "The mask must be applied to the scores, before a single softmax. Added to weights that are already "
        "a softmax, it hides later words, but the first softmax includes them, so they still affect every "
        "earlier word; and a softmax of numbers from 0 to 1 is nearly flat: no visible word can have more "
        "than e times the weight of another.",
        [
            Measured("largest change of earlier words by the last", change.max().item(), expected=0.0),
            Measured("greatest weight to smallest, last word", (last.max() / last.min()).item()),
        ],
        panels=[
            Curves(
                "Change of earlier words by the last one",
                "word",
                "largest change",
                {"change": (list(range(1, n)), change.tolist())},
            ),
            Curves(
                "Weights of the last word",
                "word",
                "weight",
                {
                    "as printed": (list(range(1, n + 1)), _masked_twice(q, k, v)[1][-1].tolist()),
                    "masked once": (list(range(1, n + 1)), _masked_once(q, k, v)[1][-1].tolist()),
                },
            ),
        ],
    )


def _masked_twice(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``Z = softmax(A + M) V`` with ``A = softmax(Q K^T)`` as in lecture S0, and the weights."""
    mask = torch.full((len(q), len(k)), -math.inf).triu(1)
    weights = ((q @ k.T).softmax(-1) + mask).softmax(-1)
    return weights @ v, weights


def _masked_once(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the result and the weights with heedful's functions."""
    layout = Layout.of([len(q)])
    queries, keys, values = _heads(q, k, v)
    weights = attention_weights(ScaledDotScore()(queries, keys), layout.sees(layout, causal=True))
    return weighted_sum(weights, values)[0, 0], weights[0, 0]


@torch.no_grad()
def _padded(size: Size, *, masked: bool) -> Outcome:
    """Compute cross-attention over a sentence followed by padding, which is masked in the encoder."""
    n_pads = [0, 1, 2, 4, 8] if size == "short" else [0, 1, 2, 4, 8, 16, 32, 64]
    with seeded(0):
        part = CrossAttention(_D, 2)
    target, source = _vectors(5, 1), _vectors(_N, 2)
    layout = Layout.of([5])
    alone = part(target, layout, part.remember(source, Layout.of([_N])))
    changes = []
    for pads in n_pads:
        # The second sentence in the batch is longer, so the first is padded.
        rows = torch.cat([source, _vectors(pads, 3)])
        both, n_seen = torch.cat([source if masked else rows, rows]), _N if masked else len(rows)
        memory = part.remember(both, Layout.of([n_seen, len(rows)]))
        result = part(torch.cat([target, target]), Layout.of([5, 5]), memory)
        changes.append((result[:5] - alone).abs().max().item())
    nothing = part(target, layout, part.remember(source[:0], Layout.of([0]))).abs().max().item()
    plain = torch.full((3,), -math.inf).softmax(0).isnan().any().item()
    return Outcome(
        "holds" if max(changes) < 1e-5 else "is wrong",
        "The padding of the source must also be masked in the decoder's cross-attention: otherwise the "
        "output depends on the length of the longest sentence in the batch. A sentence that consists of "
        "padding only has no visible key; its result is exactly 0, while a softmax over minus infinity "
        "only is NaN.",
        [
            Measured(f"change of a sentence by {n_pads[-1]} pads", changes[-1], expected=0.0),
            Measured("result over an empty source", nothing, expected=0.0),
            Measured("softmax of minus infinity alone is a number", float(not plain), expected=0.0),
        ],
        [{"pads": n, "largest change": change} for n, change in zip(n_pads, changes, strict=True)],
        [
            Curves(
                "Cross-attention over a padded source",
                "padding tokens after the sentence",
                "largest change of the result",
                {"change": (n_pads, changes)},
            )
        ],
    )


@torch.no_grad()
def _crossed(size: Size, *, cross: bool) -> Outcome:
    """Find the words that each target word sees: change each one, and test which outputs change.

    The words are those of a source or, for causal self-attention, those of the target itself.
    """
    n = _N if size == "short" else 4 * _N
    x, source, layout = _vectors(n, 1), _vectors(n, 2), Layout.of([n])
    with seeded(0):
        crossing, causal = CrossAttention(_D, 2), SelfAttention(_D, 2, causal=True)

    def attend(source: Tensor) -> Tensor:
        return crossing(x, layout, crossing.remember(source, layout)) if cross else causal(source, layout)

    before, sees = attend(source), torch.zeros(n, n)
    for j in range(n):
        changed = source.clone()
        changed[j] += _vectors(1, 3)[0]
        sees[:, j] = (attend(changed) - before).abs().amax(-1) > 1e-6
    masked = bool((sees.triu(1) == 0).all())
    visible = sees.sum(-1).tolist()
    return Outcome(
        "holds" if masked else "is wrong",
        "Cross-attention has no causal mask: the whole source is known before the first word is generated, "
        "and every target word sees all of it (except its padding). With the mask of self-attention, the "
        "first target word would see only the first source word, and no verb could move to the front. The "
        "scores are divided by √d_k here too, which the lecture omits.",
        [
            Measured("words that the first target word sees", visible[0], expected=1.0),
            Measured("words that the last target word sees", visible[-1], expected=float(n)),
            Measured("words that are seen before their turn", sees.triu(1).sum().item(), expected=0.0),
        ],
        panels=[
            Matrix(
                "Dependence of outputs on words",
                "changed source word" if cross else "changed word",
                "target word",
                sees.tolist(),
                (0.0, 1.0),
            )
        ],
    )


_VASWANI = "Vaswani et al. 2017"

EXPERIMENTS = [
    Experiment(
        "score-over-width",
        "A root that is missing in the text",
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
        "Position of the scale factor",
        "a_ij = exp(q_i k_j) / (√d_k Σ_r exp(q_i k_r)).",
        f"S4, section 5.3 (its equation 1 is correct); {_VASWANI}, equation 1",
        (22,),
        run=partial(_normalised, inside=False),
        control=partial(_normalised, inside=True),
        changed="Each product is divided by √d_k before the exponential.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "double-softmax",
        "Position of the causal mask",
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
        "Where padding must be masked",
        "It is enough that padded tokens are masked in the encoder's attention. (S0 mentions only the "
        "encoder.)",
        "S0, masked self-attention, note",
        (43,),
        run=partial(_padded, masked=False),
        control=partial(_padded, masked=True),
        changed="The padding of the source is masked in the decoder's cross-attention too.",
        expected=("is wrong", "holds"),
    ),
    Experiment(
        "masked-cross-attention",
        "Whether cross-attention is masked",
        "The decoder's attention to the encoder is masked multi-head cross-attention.",
        f"S0, title of the slides on cross-attention; {_VASWANI}, section 3.2.3",
        (44,),
        run=partial(_crossed, cross=True),
        control=partial(_crossed, cross=False),
        changed="The attention is the decoder's self-attention.",
        expected=("is wrong", "holds"),
    ),
]
