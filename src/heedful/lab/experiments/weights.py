"""The softmax of attention: its divisor and masks as printed in the lectures, and attention as a lookup.

Each printed formula is measured as printed; its correction is the control.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.lab.drawing import Curves, Matrix, curves_over, numbered_curves
from heedful.lab.experiment import Measured, Series, Size, measured_each, measures, table_of
from heedful.lab.seeds import generator_from, seeded
from heedful.lab.tiny import largest_difference, n_parameters, relative_difference
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.plain import parameter_free_self_attention
from heedful.nn.attention.scores import DotScore, ScaledDotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.attention.weights import attention_weights, weighted_sum
from heedful.nn.layout import Layout
from heedful.nn.taps import recording
from heedful.nn.visibility import Visibility

# Divisor of the scores


@measures("score-over-width", power=(1.0, 0.5), name=("d/h", "√(d/h)"))
def measure_variance_by_width(size: Size, power: float, name: str) -> Series:
    """Measure the variance of products of random queries and keys, divided by d_k ** power, by width d_k."""
    widths, n = [4, 16, 64, 256], 512 if size == "short" else 2048
    variances, heedfuls = [], []
    for d_k in widths:
        generator = generator_from(d_k)
        q, k = (torch.randn(n, d_k, generator=generator) for _ in range(2))
        variances.append((DotScore()(q, k) / d_k**power).var().item())
        heedfuls.append(ScaledDotScore()(q, k).var().item())
    columns = {f"divided by {name}": variances}
    title, x = "Scores of random queries and keys", "width of queries and keys, d_k = d/h"
    return Series(
        {
            "wide": Measured("variance of the scores, d_k = 256", variances[-1], expected=1.0),
            "narrow": Measured("variance of the scores, d_k = 4", variances[0], expected=1.0),
            "heedfuls": Measured("variance of heedful's own scores, d_k = 256", heedfuls[-1], expected=1.0),
            "variances": variances,
        },
        table_of({"d_k": widths, **columns, "heedful's": heedfuls}),
        [Curves(title, x, "variance", curves_over(widths, columns), levels={"wanted": 1.0}, log="xy")],
    )


# Weights that do not sum to 1

_N, _D = 9, 16


def _draw_vectors(n: int, seed: int) -> Float[Tensor, "n d"]:
    return torch.randn(n, _D, generator=generator_from(seed))


def _heads(*rows: Float[Tensor, "n d"]) -> list[Float[Tensor, "1 1 n d"]]:
    """Reshape to one head of one sequence."""
    return [matrix[None, None] for matrix in rows]


@measures("scale-outside-softmax", inside=(False, True))
def measure_row_sums(size: Size, *, inside: bool) -> Series:
    """Compute weights with 1 / √d_k inside the exponential, or as a factor of the quotient."""
    q, k = _draw_vectors(_N, 1), _draw_vectors(_N if size == "short" else 10 * _N, 2)
    products, root = q @ k.T, math.sqrt(_D)
    weights = (products / root).softmax(-1) if inside else products.softmax(-1) / root
    queries, keys = _heads(q, k)
    visibility = Visibility.of(Layout.of([len(q)]), Layout.of([len(k)]))
    heedfuls = attention_weights(ScaledDotScore()(queries, keys), visibility)[0, 0]
    difference, sums = largest_difference(weights, heedfuls), weights.sum(-1)
    curves, levels = numbered_curves({"as computed": sums.tolist()}), {"1 / √d_k": 1 / root, "1": 1.0}
    return Series(
        {
            "sum": Measured("sum of a row", sums.mean().item(), expected=1.0),
            "difference": Measured("largest difference to equation 1 of the same lecture", difference),
            "furthest": (sums - 1).abs().max().item(),
        },
        panels=[Curves("Sums of the rows", "query", "sum of its weights", curves, levels=levels)],
    )


# Masks


@measures("double-softmax", twice=(True, False))
def measure_dependence_on_later_words(size: Size, *, twice: bool) -> Series:
    """Change the last token, and measure the change of the tokens before it."""
    n = _N if size == "short" else 10 * _N
    q, k, v = (_draw_vectors(n, seed) for seed in (1, 2, 3))
    changed_k, changed_v = k.clone(), v.clone()
    changed_k[-1] *= 3.0
    changed_v[-1] += 1.0
    attend_by_name = {"as printed": _attend_masked_twice, "masked once": _attend_masked_once}
    last_row = {name: attend(q, k, v)[1][-1] for name, attend in attend_by_name.items()}
    judged = "as printed" if twice else "masked once"
    (output, _), (changed_output, _) = (
        attend_by_name[judged](q, k, v),
        attend_by_name[judged](q, changed_k, changed_v),
    )
    change, last_weights = (changed_output - output)[:-1].abs().amax(-1), last_row[judged]
    changes = numbered_curves({"change": change.tolist()})
    weights = numbered_curves({name: row.tolist() for name, row in last_row.items()})
    return Series(
        {
            "change": Measured("largest change of earlier words by the last", change.max().item(), "", 0.0),
            "ratio": Measured(
                "greatest weight to smallest, last word", (last_weights.max() / last_weights.min()).item()
            ),
        },
        panels=[
            Curves("Change of earlier words by the last one", "word", "largest change", changes),
            Curves("Weights of the last word", "word", "weight", weights),
        ],
    )


def _attend_masked_twice(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``Z = softmax(A + M) V`` with ``A = softmax(Q K^T)`` as in lecture S0, and the weights."""
    mask = torch.full((len(q), len(k)), -math.inf).triu(1)
    weights = ((q @ k.T).softmax(-1) + mask).softmax(-1)
    return weights @ v, weights


def _attend_masked_once(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the result and the weights with heedful's functions."""
    layout = Layout.of([len(q)])
    queries, keys, values = _heads(q, k, v)
    weights = attention_weights(ScaledDotScore()(queries, keys), Visibility.of(layout, layout, causal=True))
    return weighted_sum(weights, values)[0, 0], weights[0, 0]


@measures("padding-in-cross-attention", masked=(False, True))
@torch.no_grad()
def measure_change_by_padding(size: Size, *, masked: bool) -> Series:
    """Compute cross-attention over a sentence followed by padding, which is masked in the encoder."""
    n_pads = [0, 1, 2, 4, 8] if size == "short" else [0, 1, 2, 4, 8, 16, 32, 64]
    with seeded(0):
        part = CrossAttention(_D, 2)
    target, source = _draw_vectors(5, 1), _draw_vectors(_N, 2)
    layout = Layout.of([5])
    unpadded = part(target, layout, part.make_memory(source, Layout.of([_N])))
    changes = []
    for pads in n_pads:
        # The second sentence in the batch is longer, so the first is padded.
        rows = torch.cat([source, _draw_vectors(pads, 3)])
        sources, n_visible = torch.cat([source if masked else rows, rows]), _N if masked else len(rows)
        memory = part.make_memory(sources, Layout.of([n_visible, len(rows)]))
        result = part(torch.cat([target, target]), Layout.of([5, 5]), memory)
        changes.append(largest_difference(result[:5], unpadded))
    over_nothing = part(target, layout, part.make_memory(source[:0], Layout.of([0]))).abs().max().item()
    is_nan = torch.full((3,), -math.inf).softmax(0).isnan().any().item()
    x, y = "padding tokens after the sentence", "largest change of the result"
    return Series(
        {
            "change": Measured(f"change of a sentence by {n_pads[-1]} pads", changes[-1], expected=0.0),
            "nothing": Measured("result over an empty source", over_nothing, expected=0.0),
            "plain": Measured("softmax of minus infinity alone is a number", float(not is_nan), expected=0.0),
            "most": max(changes),
        },
        table_of({"pads": n_pads, "largest change": changes}),
        [Curves("Cross-attention over a padded source", x, y, curves_over(n_pads, {"change": changes}))],
    )


@measures("masked-cross-attention", cross=(True, False))
@torch.no_grad()
def find_visible_words(size: Size, *, cross: bool) -> Series:
    """Find the words that each target word sees: change each one, and test which outputs change.

    The words are those of a source or, for causal self-attention, those of the target itself.
    """
    n = _N if size == "short" else 4 * _N
    x, source, layout = _draw_vectors(n, 1), _draw_vectors(n, 2), Layout.of([n])
    with seeded(0):
        crossing, causal = CrossAttention(_D, 2), SelfAttention(_D, 2, causal=True)

    def attend(source: Tensor) -> Tensor:
        return crossing(x, layout, crossing.make_memory(source, layout)) if cross else causal(source, layout)

    output, depends = attend(source), torch.zeros(n, n)
    for j in range(n):
        changed = source.clone()
        changed[j] += _draw_vectors(1, 3)[0]
        depends[:, j] = (attend(changed) - output).abs().amax(-1) > 1e-6
    visible = depends.sum(-1).tolist()
    n_early = depends.triu(1).sum().item()
    label = "changed source word" if cross else "changed word"
    return Series(
        {
            "first": Measured("words that the first target word sees", visible[0], expected=1.0),
            "last": Measured("words that the last target word sees", visible[-1], expected=float(n)),
            "early": Measured("words that are seen before their turn", n_early, expected=0.0),
        },
        panels=[Matrix("Dependence of outputs on words", label, "target word", depends.tolist(), (0.0, 1.0))],
    )


# Attention as a lookup

TEMPERATURES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
N_KEYS, WIDTH = 8, 16


def _soft_lookup(queries: Tensor, keys: Tensor, values: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute softmax(q·k / temperature) over the values, for every query."""
    visibility = Visibility.of(Layout.of([len(queries)]), Layout.of([len(keys)]))
    weights = attention_weights(DotScore()(queries, keys)[None, None] / temperature, visibility)
    return weighted_sum(weights, values[None, None])[0, 0]


@measures("soft-lookup", tie=(False, True))
@seeded()
def measure_distance_from_hard_lookup(size: Size, tie: bool) -> Series:
    """Measure the distance of the soft lookup from the hard one at falling temperatures."""
    n = {"short": 32, "long": 256}[size]
    keys = torch.randn(N_KEYS, WIDTH, dtype=torch.float64)
    values = torch.randn(N_KEYS, 3, dtype=torch.float64)
    key_of_query = torch.arange(n) % N_KEYS
    queries = keys[key_of_query] + 0.3 * torch.randn(n, WIDTH, dtype=torch.float64)
    if tie:
        keys[1] = keys[0]
    hard = values[(queries @ keys.mT).argmax(1)]
    differences = [
        largest_difference(_soft_lookup(queries, keys, values, temperature), hard)
        for temperature in TEMPERATURES
    ]
    name, title = "difference from the hard lookup at τ", "From a soft lookup to a hard one"
    x, y = "1 / temperature", "greatest difference from the best value"
    curves = curves_over(
        [1 / t for t in TEMPERATURES], {"": [max(difference, 1e-16) for difference in differences]}
    )
    return Series(
        {
            "apart": Measured(f"{name} = {TEMPERATURES[-1]:g}", differences[-1], expected=0.0),
            "at_one": Measured(f"{name} = 1", differences[TEMPERATURES.index(1.0)]),
        },
        table_of({"temperature": [f"{t:g}" for t in TEMPERATURES], "difference": differences}),
        [Curves(title, x, y, curves, log="xy")],
    )


@measures("parameter-free", learned=(False, True))
@seeded()
@torch.no_grad()
def measure_weight_on_oneself(size: Size, learned: bool) -> Series:
    """Find the token with the largest weight for each token; tokens are features and a one-hot position."""
    n, d = {"short": 16, "long": 32}[size], 48
    x = torch.cat((torch.randn(n, d), torch.eye(n)), 1)
    layout = Layout.of([n])
    if learned:
        part = _previous_token_head(n, d)
        with recording(part, ["weights"]) as activations:
            output = part(x, layout)
        weights = activations["weights"][0][0, 0]
    else:
        output = parameter_free_self_attention(x, layout)
        weights = attention_weights(DotScore()(x, x)[None, None], Visibility.of(layout, layout))[0, 0]
    share_on_itself = (weights.argmax(-1) == torch.arange(n)).double().mean().item()
    change = relative_difference(output, x)
    expected = 0.0 if learned else 100.0
    return Series(
        {
            "home": Measured("tokens that look at themselves most", 100 * share_on_itself, "%", expected),
            "on_itself": Measured("weight on oneself, mean", weights.diagonal().mean().item()),
            "changed": Measured("change of the tokens, relative", change),
            "parameters": Measured("parameters", float(n_parameters(part) if learned else 0)),
        },
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


TABLES = {"short": (2, 4, 8, 16, 32), "long": (2, 4, 8, 16, 32, 64, 128)}
REPEATS = (1, 2, 3, 5, 8)


@measures("summary-without-count", asking=(True, False))
@seeded()
def measure_answers_by_table_size_and_repetition(size: Size, asking: bool) -> Series:
    """Measure the width of answers, the value they are nearest to, and whether they reflect repetitions.

    There are as many queries as values, each near its own key; or all queries are zero.
    """
    counts, widths, accuracies = TABLES[size], set(), []
    for n in counts:
        keys, values = torch.randn(n, WIDTH), torch.randn(n, WIDTH)
        # A longer key would win for queries of other keys.
        keys *= WIDTH**0.5 / keys.norm(dim=1, keepdim=True)
        queries = keys + 0.3 * torch.randn(n, WIDTH) if asking else torch.zeros(n, WIDTH)
        answers = _soft_lookup(queries, keys, values)
        widths.add(answers.shape[1])
        nearest = torch.cdist(answers, values).argmin(1)
        accuracies.append((nearest == torch.arange(n)).double().mean().item())
    unnormalised = DotScore()(queries, keys).div(WIDTH).exp()
    sums = [unnormalised.repeat(1, times) @ values.repeat(times, 1) for times in REPEATS]
    means = [_soft_lookup(queries, keys.repeat(times, 1), values.repeat(times, 1)) for times in REPEATS]
    changes = [relative_difference(answer, means[0]) for answer in means]
    sizes = {
        "weighted mean": [(answer.norm() / means[0].norm()).item() for answer in means],
        "sum, not divided": [(answer.norm() / sums[0].norm()).item() for answer in sums],
    }
    last = {method: by_times[-1] for method, by_times in sizes.items()}
    name = f"answers that are nearest to the value asked for, of {counts[-1]}"
    return Series(
        {
            "nearest": Measured(name, 100 * accuracies[-1], "%"),
            "nearest_of_few": Measured(f"of {counts[0]}", 100 * accuracies[0], "%"),
            "n_widths": Measured("different widths of answers", len(widths), expected=1.0),
            "repeated": Measured(
                f"change when all is there {REPEATS[-1]} times, relative", changes[-1], expected=0.0
            ),
            **measured_each("size of the answer then, relative, {}", last),
            "least": min(accuracies),
            "change": max(changes),
        },
        table_of({"values": counts, "nearest to the one asked for": accuracies}),
        [
            Curves(
                "Selection by the query",
                "values",
                "answers nearest to the matching value",
                curves_over(counts, {"measured": accuracies, "at random": [1 / n for n in counts]}),
                log="x",
                limits=(0, 1.05),
            ),
            Curves(
                "Size of the answer, relative",
                "repetitions of every row",
                "size",
                curves_over(REPEATS, sizes),
                limits=(0, None),
            ),
        ],
    )
