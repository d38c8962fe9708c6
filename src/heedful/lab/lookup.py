"""Attention as a lookup: its hard limit, behaviour without parameters, selection, and loss of counts."""

from functools import partial

import torch
from torch import Tensor

from heedful.lab.drawing import Curves, Matrix, over
from heedful.lab.experiment import Experiment, Measured, Outcome, Size, Verdict
from heedful.lab.seeds import seeded
from heedful.nn.attention.plain import parameter_free_self_attention
from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.attention.weights import attention_weights, weighted_sum
from heedful.nn.layout import Layout
from heedful.nn.taps import recording

TEMPERATURES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
N_KEYS, WIDTH = 8, 16


def _looked_up(queries: Tensor, keys: Tensor, values: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute softmax(q·k / temperature) over the values, for every query."""
    seen = Layout.of([len(queries)]).sees(Layout.of([len(keys)]))
    weights = attention_weights(DotScore()(queries, keys)[None, None] / temperature, seen)
    return weighted_sum(weights, values[None, None])[0, 0]


@seeded()
def _cooled(size: Size, tie: bool) -> Outcome:
    """Measure the distance of the soft lookup from the hard one at falling temperatures."""
    n = {"short": 32, "long": 256}[size]
    keys = torch.randn(N_KEYS, WIDTH, dtype=torch.float64)
    values = torch.randn(N_KEYS, 3, dtype=torch.float64)
    near = torch.arange(n) % N_KEYS
    queries = keys[near] + 0.3 * torch.randn(n, WIDTH, dtype=torch.float64)
    if tie:
        keys[1] = keys[0]
    hard = values[(queries @ keys.mT).argmax(1)]
    apart = [(_looked_up(queries, keys, values, each) - hard).abs().max().item() for each in TEMPERATURES]
    holds = apart[-1] < 1e-6
    return Outcome(
        "holds" if holds else "is wrong",
        (
            "At temperature τ, softmax(q·k / τ) tends to the lookup of the best key as τ → 0; at τ = 1 every "
            "key that matches to some degree contributes. No two keys may match equally well."
            if holds
            else "If two keys match equally well, the limit is the mean of their values, which a lookup "
            "table would not return for any key."
        ),
        [
            Measured(f"difference from the hard lookup at τ = {TEMPERATURES[-1]:g}", apart[-1], expected=0.0),
            Measured("difference from the hard lookup at τ = 1", apart[TEMPERATURES.index(1.0)]),
        ],
        [
            {"temperature": f"{t:g}", "difference": value}
            for t, value in zip(TEMPERATURES, apart, strict=True)
        ],
        [
            Curves(
                "From a soft lookup to a hard one",
                "1 / temperature",
                "greatest difference from the best value",
                {"": ([1 / t for t in TEMPERATURES], [max(each, 1e-16) for each in apart])},
                log="xy",
            )
        ],
    )


@seeded()
@torch.no_grad()
def _self_match(size: Size, learned: bool) -> Outcome:
    """Find the token with the largest weight for each token; tokens are features and a one-hot position."""
    n, d = {"short": 16, "long": 32}[size], 48
    x = torch.cat((torch.randn(n, d), torch.eye(n)), 1)
    layout = Layout.of([n])
    if learned:
        part = _previous_token_head(n, d)
        with recording(part, ["weights"]) as seen:
            output = part(x, layout)
        weights = seen["weights"][0][0, 0]
    else:
        output = parameter_free_self_attention(x, layout)
        weights = attention_weights(DotScore()(x, x)[None, None], layout.sees(layout))[0, 0]
    home = (weights.argmax(-1) == torch.arange(n)).double().mean().item()
    changed = ((output - x).norm() / x.norm()).item()
    holds = home > 0.9
    return Outcome(
        "holds" if holds else "is wrong",
        (
            "softmax(X Xᵀ) X compares by dot products alone. Among tokens of similar length, as here, the "
            "token itself has the largest product: the output is almost the input, and training cannot "
            "change that. (A longer token can have a larger product: (1, 0) gives itself the weight 0.12 "
            "next to (3, 0).)"
            if holds
            else "With W_Q and W_K, a token attends wherever they direct it: here always to the previous one."
        ),
        [
            Measured(
                "tokens that look at themselves most", 100 * home, "%", expected=100.0 if holds else 0.0
            ),
            Measured("weight on oneself, mean", weights.diagonal().mean().item()),
            Measured("change of the tokens, relative", changed),
            Measured("parameters", float(sum(p.numel() for p in part.parameters()) if learned else 0)),
        ],
        panels=[Matrix("Attention of each token", "key", "query", weights.tolist(), (0.0, 1.0))],
    )


def _previous_token_head(n: int, d: int) -> SelfAttention:
    """Build a head whose queries match the previous position (the first query matches the last)."""
    part = SelfAttention(d + n, 1, d_k=n, d_v=d + n, score=DotScore())
    query, key = torch.zeros(n, d + n), torch.zeros(n, d + n)
    key[:, d:] = torch.eye(n)
    query[:, d:] = 50 * torch.eye(n).roll(-1, 0)
    with torch.no_grad():
        part.qkv.weight.copy_(torch.cat((query, key, torch.eye(d + n))))
        part.out.weight.copy_(torch.eye(d + n))
    return part


COUNTS = {"short": (2, 4, 8, 16, 32), "long": (2, 4, 8, 16, 32, 64, 128)}
REPEATS = (1, 2, 3, 5, 8)


@seeded()
def _summarised(size: Size, asking: bool) -> Outcome:
    """Measure the width of answers, the value they are nearest to, and whether they reflect repetitions.

    There are as many queries as values, each near its own key; or all queries are zero.
    """
    counts, widths, right = COUNTS[size], set(), []
    for n in counts:
        keys, values = torch.randn(n, WIDTH), torch.randn(n, WIDTH)
        keys *= WIDTH**0.5 / keys.norm(
            dim=1, keepdim=True
        )  # a longer key would win for queries of other keys
        queries = keys + 0.3 * torch.randn(n, WIDTH) if asking else torch.zeros(n, WIDTH)
        answers = _looked_up(queries, keys, values)
        widths.add(answers.shape[1])
        nearest = torch.cdist(answers, values).argmin(1)
        right.append((nearest == torch.arange(n)).double().mean().item())
    sums, means = _repeated(DotScore()(queries, keys).div(WIDTH).exp(), values), []
    for times in REPEATS:
        means.append(_looked_up(queries, keys.repeat(times, 1), values.repeat(times, 1)))
    changes = [((each - means[0]).norm() / means[0].norm()).item() for each in means]
    sizes = {
        "weighted mean": [(each.norm() / means[0].norm()).item() for each in means],
        "sum, not divided": [(each.norm() / sums[0].norm()).item() for each in sums],
    }
    selective = len(widths) == 1 and min(right) > 0.9
    return Outcome(
        _of_a_summary(selective, forgets=max(changes) < 1e-5),
        (
            "The answer is as wide as one value, and the query determines which value it is near. But it "
            "reflects proportions, not counts: since weights sum to 1, a table in which every row is "
            "repeated gives the same answer. To count, a model needs something more (for example a token "
            "that is always present exactly once)."
            if selective
            else "The answer to a query that is zero is the mean of all values: of fixed size, but not a "
            "selection."
        ),
        [
            Measured(
                f"answers that are nearest to the value asked for, of {counts[-1]}", 100 * right[-1], "%"
            ),
            Measured(f"of {counts[0]}", 100 * right[0], "%"),
            Measured("different widths of answers", len(widths), expected=1.0),
            Measured(f"change when all is there {REPEATS[-1]} times, relative", changes[-1], expected=0.0),
            *(Measured(f"size of the answer then, relative, {how}", own[-1]) for how, own in sizes.items()),
        ],
        [
            {"values": n, "nearest to the one asked for": share}
            for n, share in zip(counts, right, strict=True)
        ],
        [
            Curves(
                "Selection by the query",
                "values",
                "answers nearest to the matching value",
                {"measured": (counts, right), "at random": (counts, [1 / n for n in counts])},
                log="x",
                limits=(0, 1.05),
            ),
            Curves(
                "Size of the answer, relative",
                "repetitions of every row",
                "size",
                over(REPEATS, sizes),
                limits=(0, None),
            ),
        ],
    )


def _repeated(weights: Tensor, values: Tensor) -> list[Tensor]:
    """Compute sums of the values with weights that are not normalised, for repeated tables."""
    return [weights.repeat(1, times) @ values.repeat(times, 1) for times in REPEATS]


def _of_a_summary(selective: bool, forgets: bool) -> Verdict:
    """Judge: the claim is a fixed-size summary selected by the query; losing counts is a condition."""
    if not selective:
        return "is wrong"
    return "holds with conditions" if forgets else "holds"


EXPERIMENTS = [
    Experiment(
        name="soft-lookup",
        title="Attention is a lookup that tends to a hard one",
        claim="Attention performs fuzzy lookup in a key-value store: a query matches all keys softly, with "
        "weights between 0 and 1, where a table returns the value of the one that matches.",
        source="S3, attention and lookup tables; S4, section 5.3 (the dictionary)",
        items=(19,),
        run=partial(_cooled, tie=False),
        control=partial(_cooled, tie=True),
        changed="Two keys are equal, and their values differ.",
    ),
    Experiment(
        name="parameter-free",
        title="Without W_Q and W_K, a token attends to itself",
        claim="Self-attention without learnable parameters, softmax(X Xᵀ) X, cannot change where it looks.",
        source="S1, introducing self attention",
        items=(20, 21),
        run=partial(_self_match, learned=False),
        control=partial(_self_match, learned=True),
        changed="Queries and keys have matrices (set by hand so that they match the previous position).",
    ),
    Experiment(
        name="summary-without-count",
        title="A selective summary, which cannot count",
        claim="The weighted sum is a selective summary of the information contained in the values, where the "
        "query determines which to focus on: of a fixed size, however many there are.",
        source="S3, more on attention",
        items=(19, 31),
        run=partial(_summarised, asking=True),
        control=partial(_summarised, asking=False),
        changed="Every query is zero, so it selects nothing.",
        expected=("holds with conditions", "is wrong"),
    ),
]
