"""Convolutional parts against plain loops, and what each refuses."""

import math

import pytest
import torch
from torch.nn import functional

from heedful.nn.convolutional import Bottleneck, GroupNorm, StandardisedConvolution

B, C, D, H, W = 2, 3, 5, 7, 11


def images(b=B, c=C, height=H, width=W, seed=1):
    return torch.randn(b, c, height, width, generator=torch.Generator().manual_seed(seed))


def standardised(weight, epsilon=1e-10):
    """Filter by filter."""
    weight = weight.detach()
    out = torch.zeros_like(weight, dtype=torch.float64)
    for c in range(len(weight)):
        numbers = [float(w) for w in weight[c].flatten()]
        mean = sum(numbers) / len(numbers)
        variance = sum((w - mean) ** 2 for w in numbers) / len(numbers)
        out[c] = torch.tensor([(w - mean) / math.sqrt(variance + epsilon) for w in numbers]).view_as(out[c])
    return out


def convolved(x, weight, stride):
    """Sum over channels and neighbours, with zeros around the image."""
    k = weight.shape[-1]
    rows, columns = -(-x.shape[2] // stride), -(-x.shape[3] // stride)
    out = torch.zeros(len(x), len(weight), rows, columns, dtype=torch.float64)
    for i in range(rows):
        for j in range(columns):
            for p in range(k):
                for q in range(k):
                    y, z = i * stride + p - k // 2, j * stride + q - k // 2
                    if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]:
                        out[:, :, i, j] += x[:, :, y, z].double() @ weight[:, :, p, q].double().T
    return out


@pytest.mark.parametrize("kernel, stride", [(1, 1), (3, 1), (3, 2), (7, 2), (1, 2)])
def test_a_standardised_convolution_is_the_loop(kernel, stride):
    torch.manual_seed(2)
    part, x = StandardisedConvolution(C, D, kernel, stride), images()
    with torch.no_grad():
        part.weight.mul_(3.0).add_(0.7)
    wanted = convolved(x, standardised(part.weight), stride).float()
    torch.testing.assert_close(part(x), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("height, width", [(1, 1), (1, 5), (4, 2), (3, 3), (2, 3)])
@pytest.mark.parametrize("kernel, stride", [(1, 2), (3, 1), (3, 2), (3, 3), (7, 2), (7, 3)])
def test_gradients_in_bf16_are_those_in_fp32_of_small_grids_too(kernel, stride, height, width):
    """Memory is filled with NaN before: a kernel that leaves a part of its result unwritten returns it."""
    torch.manual_seed(3)
    part = StandardisedConvolution(16, 16, kernel, stride)
    x = images(12, 16, height, width)
    for _ in range(3):
        narrow, wide = x.bfloat16().requires_grad_(), x.bfloat16().float().requires_grad_()
        weight = part.standardised().detach()
        expected = functional.conv2d(wide, weight.requires_grad_(), stride=stride, padding=kernel // 2)
        g = torch.randn_like(expected)
        expected.backward(g)
        with torch.autocast("cpu", torch.bfloat16):
            actual = part(narrow)
        poison = [torch.full((n,), math.nan) for n in (16 * 16 * kernel**2, 12 * 16 * height * width) * 9]
        del poison
        actual.float().backward(g)
        (found,) = torch.autograd.grad(part.standardised(), part.weight, weight.grad)
        for ours, theirs in ((actual, expected), (narrow.grad, wide.grad), (part.weight.grad, found)):
            scale = float(theirs.detach().abs().max())
            torch.testing.assert_close(ours.float().detach(), theirs.detach(), rtol=0, atol=0.03 * scale)
        part.weight.grad = None


def test_neither_scale_nor_mean_of_a_filter_matters():
    part, x = StandardisedConvolution(C, D, 3), images()
    before = part(x)
    with torch.no_grad():
        part.weight.mul_(torch.rand(D, 1, 1, 1) + 0.5).add_(torch.randn(D, 1, 1, 1))
    torch.testing.assert_close(part(x), before, rtol=0, atol=1e-4)


def test_gradients_go_through_the_standardisation():
    part = StandardisedConvolution(2, 3, 3).double()
    x = images(1, 2, 4, 5).double().requires_grad_()
    weight = part.weight.detach().clone().requires_grad_()
    call = lambda x, weight: torch.func.functional_call(part, {"weight": weight}, x)  # noqa: E731
    assert torch.autograd.gradcheck(call, (x, weight))


def test_even_kernels_are_refused():
    with pytest.raises(ValueError, match="kernel must be odd, got"):
        StandardisedConvolution(C, D, 4)


@pytest.mark.parametrize("n_groups", [1, 2, 6])
def test_a_group_norm_is_the_loop(n_groups):
    part, x = GroupNorm(6, n_groups), images(c=6)
    with torch.no_grad():
        part.weight.normal_()
        part.bias.normal_()
    wanted, width = torch.zeros_like(x), 6 // n_groups
    for b in range(B):
        for g in range(n_groups):
            channels = range(g * width, (g + 1) * width)
            numbers = [float(n) for c in channels for n in x[b, c].flatten()]
            mean = sum(numbers) / len(numbers)
            variance = sum((n - mean) ** 2 for n in numbers) / len(numbers)
            for c in channels:
                normalised = (x[b, c] - mean) / math.sqrt(variance + 1e-5)
                wanted[b, c] = part.weight[c] * normalised + part.bias[c]
    torch.testing.assert_close(part(x), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("n_groups", [0, 4])
def test_groups_that_do_not_divide_the_channels_are_refused(n_groups):
    with pytest.raises(ValueError, match="divide the number of channels 6"):
        GroupNorm(6, n_groups)


def normed(norm, x):
    return functional.relu(functional.group_norm(x, 2, norm.weight, norm.bias)).double()


@pytest.mark.parametrize("d_in, stride, projected", [(6, 1, False), (6, 2, True), (8, 1, True)])
def test_a_bottleneck_is_its_formula(d_in, stride, projected):
    torch.manual_seed(3)
    part, x = Bottleneck(d_in, 4, 6, stride=stride, n_groups=2), images(c=d_in)
    with torch.no_grad():
        for norm in part.norms:
            norm.weight.normal_()
            norm.bias.normal_()
    assert (part.shortcut is not None) == projected
    weights = [standardised(layer.weight) for layer in part.convolutions]
    a = normed(part.norms[0], x)
    y = convolved(a, weights[0], 1).float()
    y = convolved(normed(part.norms[1], y), weights[1], stride).float()
    y = convolved(normed(part.norms[2], y), weights[2], 1)
    kept = convolved(a, standardised(part.shortcut.weight), stride) if projected else x
    torch.testing.assert_close(part(x), (kept + y).float(), rtol=0, atol=1e-4)
