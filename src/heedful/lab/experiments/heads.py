"""Word order and heads: shuffled tokens, the cost of many heads, and what a single head cannot do."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.lab.drawing import Bars, Curves, Matrix, curves_over
from heedful.lab.experiment import Measured, Series, Size, measures, table_of
from heedful.lab.seeds import seeded
from heedful.lab.tiny import minimise, relative_difference
from heedful.model_summary.summary import ModelSummary, summary_of
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import EncoderBlock
from heedful.nn.feedforward import FeedForward
from heedful.nn.layout import Layout
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Added, LearnedPositions, NoPositions, Positions, SinusoidalPositions
from heedful.nn.residual import PostNorm
from heedful.nn.taps import recording

# Word order

BLOCK_WIDTH, N_HEADS = 32, 4
BLIND = 1e-5
"""A relative change below this is rounding in fp32."""


@measures("permutation-invariant", shuffled=("all", "keys and values"))
@seeded()
@torch.no_grad()
def measure_change_of_shuffled_output(size: Size, shuffled: Literal["all", "keys and values"]) -> Series:
    """Measure whether the output stays the same if all tokens, or only keys and values, are shuffled."""
    n = {"short": 12, "long": 48}[size]
    part, layout = CrossAttention(BLOCK_WIDTH, N_HEADS), Layout.of([n])
    x, order = torch.randn(n, BLOCK_WIDTH), torch.randperm(n)
    output = part(x, layout, part.make_memory(x, layout))
    queries = x[order] if shuffled == "all" else x
    shuffled_output = part(queries, layout, part.make_memory(x[order], layout))
    change_by_place, change_by_token = (
        relative_difference(shuffled_output, output),
        relative_difference(shuffled_output, output[order]),
    )
    invariant = change_by_place < BLIND
    return Series(
        {
            "same": Measured(
                "change of the output, place by place", change_by_place, "", 0.0 if invariant else None
            ),
            "moved": Measured(
                "change of the output, token by token", change_by_token, "", None if invariant else 0.0
            ),
        },
        panels=[
            Matrix(title, "feature", "position", matrix.tolist(), square=False, inches=(5.0, 3.4))
            for title, matrix in (("Output", output), ("Output for the shuffled input", shuffled_output))
        ],
    )


Reader = Callable[[Tensor, Layout], Tensor]


def _reader(positions: Positions, attention: SelfAttention | None = None) -> Reader:
    """Build an encoder block that processes tokens after adding positions."""
    attention, added = attention or SelfAttention(BLOCK_WIDTH, N_HEADS), Added(positions)
    feed_forward = FeedForward(BLOCK_WIDTH, 2 * BLOCK_WIDTH)
    block = EncoderBlock(
        PostNorm(attention, LayerNorm(BLOCK_WIDTH)), PostNorm(feed_forward, LayerNorm(BLOCK_WIDTH))
    )
    return lambda x, layout: block(added(x, layout.positions), layout)


def _readers(n: int) -> dict[str, Reader]:
    """Build blocks with different sources of order information, by name."""
    d, nothing = BLOCK_WIDTH, NoPositions(BLOCK_WIDTH)
    return {
        "nothing": _reader(nothing),
        "sinusoids, added": _reader(SinusoidalPositions(d)),
        "a learned table, added": _reader(LearnedPositions(n, d)),
        "rotated queries and keys": _reader(nothing, SelfAttention(d, N_HEADS, rotary=Rotary(d // N_HEADS))),
        "a bias for the distance": _reader(nothing, SelfAttention(d, N_HEADS, score_bias=Alibi(N_HEADS))),
        "a causal mask alone": _reader(nothing, SelfAttention(d, N_HEADS, causal=True)),
    }


@measures("order-blindness", judged=("nothing", "sinusoids, added"))
@seeded()
@torch.no_grad()
def measure_order_sensitivity(size: Size, judged: str) -> Series:
    """Measure whether shuffled tokens give the same outputs, shuffled."""
    n = {"short": 12, "long": 48}[size]
    x, order, layout = torch.randn(n, BLOCK_WIDTH), torch.randperm(n), Layout.of([n])
    changes = {
        name: relative_difference(reader(x[order], layout), reader(x, layout)[order])
        for name, reader in _readers(n).items()
    }
    return Series(
        {"change": Measured(f"change of a token's output, order encoded by {judged}", changes[judged])},
        table_of({"source of order": changes, "change when shuffled": changes.values()}),
        [
            Bars(
                "Change of a token's output when the tokens are shuffled",
                "",
                "relative change (1e-7 is rounding)",
                {name: max(value, 1e-8) for name, value in changes.items()},
                log=True,
                inches=(7.0, 3.0),
            )
        ],
    )


# The cost of many heads

D_MODEL, LENGTH = 512, 64
HEADS = {"short": (1, 2, 8), "long": (1, 2, 4, 8, 16)}


FIELDS = "parameters", "flops_per_token"


def _summary_of_attention(n_heads: int, full: bool) -> ModelSummary:
    """Count parameters and operations of an attention layer; with ``full``, each head has width d_model."""
    width = D_MODEL if full else None
    with torch.device("meta"):
        part = SelfAttention(D_MODEL, n_heads, d_k=width, d_v=width)
        x, layout = torch.empty(LENGTH, D_MODEL), Layout.of([LENGTH], device="meta")
    return summary_of(nn.Sequential(part), lambda model: model[0](x, layout), LENGTH)


@measures("heads-are-free", full=(False, True))
def count_cost_by_heads(size: Size, full: bool) -> Series:
    """Count what many heads cost, and what one does."""
    summaries = {h: _summary_of_attention(h, full) for h in HEADS[size]}
    one_head, eight_heads, n_parameters = summaries[1], summaries[8], 4.0 * D_MODEL**2
    parameters, flops = ([getattr(summary, field) for summary in summaries.values()] for field in FIELDS)
    ratios = [
        getattr(summary, field) / getattr(one_head, field)
        for summary in summaries.values()
        for field in FIELDS
    ]
    times = 8 if full else 1
    return Series(
        {
            "eight": Measured(
                f"parameters of 8 heads, d = {D_MODEL}", eight_heads.parameters, "", times * n_parameters
            ),
            "one": Measured(
                f"parameters of 1 head, d = {D_MODEL}", one_head.parameters, expected=n_parameters
            ),
            "flops": Measured(
                f"FLOPs of 8 heads to 1 head, {LENGTH} tokens",
                eight_heads.flops_per_token / one_head.flops_per_token,
                expected=float(times),
            ),
            "ratios": ratios,
        },
        table_of({"heads": summaries, "parameters": parameters, "FLOPs for each token": flops}),
        [
            Curves(
                title,
                "heads",
                "",
                {
                    name: (
                        HEADS[size],
                        [float(getattr(_summary_of_attention(h, full_width), field)) for h in HEADS[size]],
                    )
                    for name, full_width in (("width d / h", False), ("full width d", True))
                },
                limits=(0, None),
            )
            for title, field in zip(("Parameters", "FLOPs for each token"), FIELDS, strict=True)
        ],
    )


# Two positions at once

PLACES, FEATURES = 8, 8
RATE, UPDATES, BATCH = 0.02, {"short": 250, "long": 1000}, 32
Target = Callable[[Tensor, Tensor], Tensor]


def _both(left: Tensor, right: Tensor) -> Tensor:
    """Concatenate the neighbours."""
    return torch.cat((left, right), -1)


def _mean_of_both(left: Tensor, right: Tensor) -> Tensor:
    """Concatenate two copies of the mean of the neighbours."""
    return torch.cat((left + right, left + right), -1) / 2


def _train_attention(n_heads: int, target_of: Target, updates: int) -> tuple[list[float], Tensor]:
    """Train an attention layer; return the share of unexplained variance by update, and the final weights.

    The weights are ``[H, n, n]``. Tokens consist of features from N(0, 1) and a one-hot position, on a
    circle. The target of each token is ``target_of`` its neighbours' features. Several heads share the
    width of one.
    """
    part = SelfAttention(FEATURES + PLACES, n_heads)
    layout = Layout.of([PLACES] * BATCH)
    places, x = torch.eye(PLACES).expand(BATCH, -1, -1), torch.empty(0)

    def unexplained() -> Tensor:
        nonlocal x
        features = torch.randn(BATCH, PLACES, FEATURES)
        x = torch.cat((features, places), -1).flatten(0, 1)
        target = target_of(features.roll(1, 1), features.roll(-1, 1)).flatten(0, 1)
        return (part(x, layout) - target).square().mean() / target.square().mean()

    losses = list(minimise(part, (unexplained() for _ in range(updates)), RATE))
    with torch.no_grad(), recording(part, ["weights"]) as activations:
        part(x, layout)
    return losses, activations["weights"][0].mean(0)


LAST = 20


@measures("two-lookups", target_of=(_both, _mean_of_both))
@seeded(1)
def compare_one_and_two_heads(size: Size, target_of: Target) -> Series:
    """Measure whether one head fails and two succeed."""
    (losses_of_one, weights_of_one), (losses_of_two, weights_of_two) = (
        _train_attention(n, target_of, UPDATES[size]) for n in (1, 2)
    )
    unexplained_by_one, unexplained_by_two = (
        sum(losses[-LAST:]) / LAST for losses in (losses_of_one, losses_of_two)
    )
    first, second = weights_of_two
    expected = 50.0 if target_of is _both else 0.0
    return Series(
        {
            "one": Measured("not explained, one head", 100 * unexplained_by_one, "%", expected),
            "two": Measured("not explained, two heads", 100 * unexplained_by_two, "%", expected=0.0),
            "parameters": Measured("parameters of either", 4.0 * (FEATURES + PLACES) ** 2),
        },
        panels=[
            Curves(
                "Unexplained variance",
                "update",
                "share of variance",
                curves_over(
                    range(1, len(losses_of_one) + 1), {"one head": losses_of_one, "two heads": losses_of_two}
                ),
                limits=(0, 1.1),
                inches=(3.6, 3.2),
            ),
            _heat_map("The one head", weights_of_one[0]),
            _heat_map("First of two heads", first),
            _heat_map("Second of two heads", second),
        ],
    )


def _heat_map(title: str, weights: Tensor) -> Matrix:
    values = weights.tolist()
    return Matrix(title, "attended position", "position", values, (0.0, 1.0), inches=(3.4, 3.2))
