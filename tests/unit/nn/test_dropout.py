"""Dropout: its statistics, its gradient, and when it does nothing."""

import math

import pytest
import torch

from heedful.nn.dropout import Dropout


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_is_the_very_same_tensor_when_it_has_nothing_to_do(p):
    part = Dropout(p)
    x = torch.randn(3, 5)
    if p:
        part.eval()
    assert part(x) is x


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, math.nan])
def test_refuses_what_is_no_probability_below_one(p):
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        Dropout(p)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_elements_are_zero_or_scaled_by_the_inverse_of_the_keep_probability(p, dtype):
    torch.manual_seed(0)
    x = torch.randn(101, 103, dtype=dtype).abs() + 0.5
    y = Dropout(p)(x)
    assert y.dtype == dtype
    kept = y != 0
    tolerance = 1e-2 if dtype == torch.bfloat16 else 2e-3  # p is rounded to 2^-16; bf16 has 8 bits
    torch.testing.assert_close(y[kept], x[kept] / (1 - p), rtol=tolerance, atol=0)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.75])
def test_share_of_zeros_lies_within_binomial_error(p):
    torch.manual_seed(1)
    n = 400_000
    dropped = (Dropout(p)(torch.ones(n)) == 0).sum().item()
    assert abs(dropped - n * p) < 5 * math.sqrt(n * p * (1 - p))


def test_elements_are_independent_of_their_neighbours_and_of_earlier_masks():
    torch.manual_seed(2)
    n, p, part = 400_000, 0.4, Dropout(0.4)
    first, second = (part(torch.ones(n)) == 0 for _ in range(2))
    error = 5 * math.sqrt(n * p**2 * (1 - p**2))
    for lag in range(1, 9):  # within a 64-bit draw, and across draws
        assert abs((first[lag:] & first[:-lag]).sum().item() - (n - lag) * p**2) < error
    assert abs((first & second).sum().item() - n * p**2) < error


@pytest.mark.parametrize("p", [1e-9, 0.37, 1 - 1e-9])
def test_expectation_is_exact_for_the_rounded_probability(p):
    part = Dropout(p)
    torch.manual_seed(3)
    scale = part(torch.ones(1 << 20)).max().item()
    # The scale is the inverse of a share of 65,536 values that p rounds to.
    levels_kept = 65536 / scale
    assert levels_kept == pytest.approx(round(levels_kept), abs=0.01)
    assert abs(levels_kept / 65536 - (1 - p)) <= 1 / 65536


@pytest.mark.parametrize("shape", [(), (0, 5), (1,), (3,), (7, 11), (2, 3, 5)])
def test_keeps_any_shape(shape):
    assert Dropout(0.5)(torch.ones(shape)).shape == shape


def test_a_strided_input_keeps_its_elements_in_place():
    x = torch.arange(1.0, 78.0).view(7, 11).T
    y = Dropout(0.5)(x)
    assert ((y == 0) | (y == 2 * x)).all()


def test_gradient_uses_the_mask_of_the_forward_pass():
    torch.manual_seed(4)
    x = torch.ones(13, 17, requires_grad=True)
    y = Dropout(0.25)(x)
    upstream = torch.randn(13, 17)
    (gradient,) = torch.autograd.grad(y, x, upstream)
    torch.testing.assert_close(gradient, y.detach() * upstream)


def test_second_derivative_uses_the_mask_too():
    torch.manual_seed(5)
    x = torch.randn(13, requires_grad=True)
    y = Dropout(0.25)(x)
    factor = torch.ones(13, requires_grad=True)
    (gradient,) = torch.autograd.grad(y, x, factor, create_graph=True)
    (twice,) = torch.autograd.grad(gradient.sum(), factor)
    torch.testing.assert_close(twice * x.detach(), y.detach())


def test_keeps_one_byte_an_element_for_the_gradient():
    saved = []
    x = torch.ones(1000, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        Dropout(0.25)(x)
    assert sum(t.numel() * t.element_size() for t in saved) == 1000


def test_the_seed_of_the_global_generator_decides_the_mask():
    part, x = Dropout(0.5), torch.ones(1000)
    torch.manual_seed(6)
    first = part(x)
    torch.manual_seed(6)
    assert torch.equal(part(x), first)
    assert not torch.equal(part(x), first)
