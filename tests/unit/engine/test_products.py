"""Products of the library against plain ones in 64 bits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from heedful.engine import native
from heedful.engine.program import Program, quantised
from heedful.engine.running import Runner

N_IN, N_OUT = 71, 101
ACTIVATIONS = {
    native.NO_ACTIVATION: lambda x: x,
    native.RELU: torch.relu,
    native.GELU: nn.functional.gelu,
    native.GELU_TANH: lambda x: nn.functional.gelu(x, approximate="tanh"),
    native.SILU: nn.functional.silu,
}


class Bench:
    """What a runner asks of an engine."""

    def __init__(self, library):
        self.library = library


def product(library, layer, x, precision, *, activation=native.NO_ACTIVATION, add=None, threads=1):
    program = Program(precision)
    source, target = program.buffer("x", layer.in_features), program.buffer("y", layer.out_features)
    more = program.buffer("more", layer.out_features)
    program.linear(layer, source, target, add=-1 if add is None else more, activation=activation)
    runner = Runner(Bench(library), program, len(x), threads)
    runner.buffer("x")[:] = x
    if add is not None:
        runner.buffer("more")[:] = add
    runner.run_head(len(x))
    return runner.buffer("y").clone()


def layer_of(n_in=N_IN, n_out=N_OUT, bias=True, seed=1):
    torch.manual_seed(seed)
    return nn.Linear(n_in, n_out, bias=bias)


def rounded(library, x, precision):
    """What the products make of their inputs: nothing, where the library has no products of that type."""
    exact = product(library, _identity(x.shape[1]), x, precision)
    return exact.double()


def _identity(n):
    layer = nn.Linear(n, n, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(n))
    return layer


def weights_of(layer, precision):
    weight = layer.weight.detach()
    if precision == "bf16":
        return weight.bfloat16().double()
    if precision == "int8":
        steps, scales = quantised(weight)
        return steps.double() * scales[:, None].double()
    return weight.double()


def agree(got, expected):
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 23, 28, 37])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@torch.no_grad()
def test_every_number_of_rows(library, n_rows, precision):
    layer, x = layer_of(), torch.randn(n_rows, N_IN)
    expected = rounded(library, x, precision) @ weights_of(layer, precision).T + layer.bias.double()
    for threads in (1, 2, 3):
        agree(product(library, layer, x, precision, threads=threads), expected)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@settings(max_examples=30, deadline=None)
@given(n_in=st.integers(1, 70), n_out=st.integers(1, 140), n_rows=st.integers(1, 14))
@torch.no_grad()
def test_every_size(library, precision, n_in, n_out, n_rows):
    layer, x = layer_of(n_in, n_out, bias=False), torch.randn(n_rows, n_in)
    agree(
        product(library, layer, x, precision), rounded(library, x, precision) @ weights_of(layer, precision).T
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", [5, 500])
@torch.no_grad()
def test_activations_and_what_is_added(library, activation, size):
    layer, x, add = layer_of(), size * torch.randn(13, N_IN), torch.randn(13, N_OUT)
    expected = ACTIVATIONS[activation](layer.double()(x.double())) + add
    agree(product(library, layer.float(), x, "fp32", activation=activation, add=add), expected)


@torch.no_grad()
def test_inputs_are_rounded_to_bf16_or_not_at_all(library):
    x = torch.randn(5, N_IN)
    got = rounded(library, x, "bf16")
    assert torch.equal(got, x.bfloat16().double()) or torch.equal(got, x.double())


@torch.no_grad()
def test_inputs_are_rounded_to_255_steps_of_their_row_or_not_at_all(library):
    x = torch.randn(5, N_IN) * torch.tensor([1.0, 1e-6, 1e6, 0.0, 3.0])[:, None]
    got, step = rounded(library, x, "int8"), x.abs().amax(1, keepdim=True) / 127
    nearest = (x / step.masked_fill(step == 0, 1)).round() * step
    # The one weight of the identity is 127 steps of 1/127.
    same = torch.isclose(got, nearest.double(), rtol=1e-5, atol=0) | ((got - x).abs() < 1e-5 * x.abs())
    assert same.all()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@torch.no_grad()
def test_what_is_not_finite_spoils_its_own_row_alone(library, precision, bad):
    layer, x = layer_of(), torch.randn(7, N_IN)
    clean = product(library, layer, x, precision)
    x[3, 5] = bad
    got = product(library, layer, x, precision)
    assert not got[3].isfinite().any()
    others = [0, 1, 2, 4, 5, 6]
    assert torch.equal(got[others], clean[others])
