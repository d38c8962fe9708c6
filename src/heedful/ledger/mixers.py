"""Count position mixers other than attention, and channel mixers."""

import math
from dataclasses import replace
from typing import Any

from torch import nn

from heedful.ledger.lines import MASK, Line, Walk, entries, formula, grouped, linear
from heedful.nn.experts import Gate, MixtureOfExperts
from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.mixers import (
    Convolution,
    DepthwiseSeparableConvolution,
    FourierMixer,
    ParallelConvolutions,
    PositionMLP,
)


@entries.register
def _fourier(module: FourierMixer, name: str, walk: Walk) -> list[Line]:
    """A fast transform of N numbers takes 5 N log2 N additions and multiplications; N is n d for a sequence.

    For complex numbers, N a power of two and radix 2 (Cooley and Tukey 1965; Van Loan 1992, "Computational
    frameworks for the fast Fourier transform"); FFTW's authors report speeds by the same count for any N.
    Nothing is kept: the transform is linear and has no weights. The backward pass therefore takes one
    transform, while a matrix product takes two.
    """
    if not walk.width:
        return []
    how = formula("positions * d_model", positions=walk.rows, d_model=walk.width)
    flops = round(5 * how.value * math.log2(how.value))
    return [Line("Fourier transform", f"5 FLOPs * N * log2 N, N = {how}", own_flops=flops)]


@entries.register
def _position_mlp(module: PositionMLP, name: str, walk: Walk) -> list[Line]:
    """Runs once per feature over the positions; keeps its input, and input and output of f."""
    there, d_tokens = min(walk.rows, module.n_positions), module.up.out_features
    sizes = ("n_positions", "d_tokens")
    lines = [
        linear("W_1 and b_1", module.up, walk, sizes, keeps=False),
        linear("W_2 and b_2", module.down, walk, sizes[::-1], keeps=False),
    ]
    flops = 2 * module.d_model * there * d_tokens
    (whole,) = grouped("mixing of positions", [replace(line, own_flops=flops) for line in lines])
    kept = module.d_model * (there + (2 + (1 + MASK) * (module.dropout.p > 0)) * d_tokens)
    return [replace(whole, own_kept=kept, own_layers=2)]


@entries.register
def _separable(module: DepthwiseSeparableConvolution, name: str, walk: Walk) -> list[Line]:
    """Each half keeps its input."""
    filters = _filter("depthwise", module.depthwise, "kernel * d_model", walk)
    pointwise = linear("pointwise", module.pointwise, walk, ("d_model", "d_model"))
    (whole,) = grouped("separable convolution", [filters, pointwise])
    return [replace(whole, own_layers=1)]


@entries.register
def _convolution(module: Convolution, name: str, walk: Walk) -> list[Line]:
    """Keeps its input, and one side of the activation."""
    line = _filter("convolution", module.convolution, "kernel * d_model * d_model", walk)
    return [replace(line, own_kept=2 * line.own_kept, own_layers=1)]


@entries.register
def _parallel_convolutions(module: ParallelConvolutions, name: str, walk: Walk) -> list[Line]:
    """Keep their input, once for all widths, and one side of the activation."""
    convolutions: Any = module.convolutions
    product = "kernel * d_model * d_out"
    lines = [_filter(f"width {part.kernel_size[0]}", part, product, walk, "d_out") for part in convolutions]
    (whole,) = grouped("parallel convolutions", [replace(line, own_kept=0) for line in lines])
    return [replace(whole, own_kept=2 * lines[0].own_kept, own_layers=1)]


def _filter(name: str, module: nn.Conv1d, product: str, walk: Walk, out: str = "d_model") -> Line:
    """Return the line of a filter over neighbouring tokens: ``product`` weights, all used for every token."""
    terms = [product] * walk.first(module.weight) + [out] * walk.first(module.bias)
    sizes = {"kernel": module.kernel_size[0], "d_model": module.in_channels, out: module.out_channels}
    how = formula(" + ".join(terms) or "0", **sizes)
    return Line(
        name,
        str(how) if terms else "shared",
        own=how.value,
        own_flops=2 * walk.rows * module.weight.numel(),
        own_kept=walk.rows * module.in_channels,
    )


@entries.register
def _feed_forward(module: FeedForward, name: str, walk: Walk) -> list[Line]:
    up = linear("W_1 and b_1", module.up, walk, ("d_model", "d_ff"))
    down = linear("W_2 and b_2", module.down, walk, ("d_ff", "d_model"))
    (whole,) = grouped("feed-forward", [up, down])
    # ReLU keeps its output, which is the input of W_2; other activations also keep their input.
    copies = (not isinstance(module.activation, nn.ReLU)) + (1 + MASK) * (module.dropout.p > 0)
    return [replace(whole, own_kept=copies * walk.rows * module.up.out_features, own_layers=2)]


@entries.register
def _gated_feed_forward(module: GatedFeedForward, name: str, walk: Walk) -> list[Line]:
    """Keeps both halves, the activation of one, and the products; with dropout, also a mask."""
    d_model, d_ff = module.gate_up.in_features, module.down.in_features
    weight, bias = walk.first(module.gate_up.weight), walk.first(module.gate_up.bias)
    text = " + ".join(["d_model * d_ff"] * weight + ["d_ff"] * bias)
    how = formula(text or "0", d_model=d_model, d_ff=d_ff)
    halves = [
        Line(symbol, str(how) if text else "shared", own=how.value, own_flops=2 * walk.rows * d_model * d_ff)
        for symbol in ("W_gate", "W_up")
    ]
    down = linear("W_down", module.down, walk, ("d_ff", "d_model"))
    (whole,) = grouped("gated feed-forward", [*halves, down])
    kept = d_model + (3 + MASK * (module.dropout.p > 0)) * d_ff
    return [replace(whole, own_kept=walk.rows * kept, own_layers=2)]


@entries.register
def _mixture(module: MixtureOfExperts, name: str, walk: Walk) -> list[Line]:
    """All experts have parameters; each token uses k of them, as one expert with k times the tokens."""
    k = module.gate.k
    rows = walk.over(k * walk.rows)
    found = [line for expert in module.experts for line in entries(expert, "expert", rows)]
    experts = [_weights(replace(line, name="expert")) for line in found]
    work = replace(_work(found[0]), name=f"work of the {k} experts of each token")
    (whole,) = grouped("mixture of experts", [*entries(module.gate, "gate", walk), *experts, work])
    # The outputs of the experts are kept until they are weighted.
    return [replace(whole, own_kept=k * walk.rows * module.gate.weight.shape[1])]


def _weights(line: Line) -> Line:
    """Return the line with its parameters only."""
    parts = tuple(map(_weights, line.parts))
    return replace(line, own_flops=0, own_kept=0, own_layers=0, parts=parts)


def _work(line: Line) -> Line:
    """Return the line without its parameters."""
    return replace(line, own=0, how="" if line.own else line.how, parts=tuple(map(_work, line.parts)))


@entries.register
def _gate(module: Gate, name: str, walk: Walk) -> list[Line]:
    """One matrix, or two with noise; keeps the intermediate scores."""
    rows, d = module.weight.shape
    first = walk.first(module.weight)
    noisy = rows > module.n_experts
    how = formula("2 * n * d_model" if noisy else "n * d_model", n=module.n_experts, d_model=d)
    kept = walk.rows * (module.n_experts * (3 if noisy else 0) + 3 * module.k)
    return [
        Line(
            "W_g and W_noise" if noisy else "W_g",
            str(how) if first else "shared",
            own=how.value * first,
            own_flops=2 * walk.rows * rows * d,
            own_kept=kept,
        )
    ]
