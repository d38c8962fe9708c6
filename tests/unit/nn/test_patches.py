"""Patches against plain loops and each other, what refuses which images, and tables for other grids."""

import math

import pytest
import torch
from torch import nn

from heedful.nn.layout import Layout
from heedful.nn.patches import (
    ConvolutionPatches,
    Images,
    LinearPatches,
    PatchEmbedding,
    grid_of,
    resize_positions,
)
from heedful.nn.positions import Added, LearnedPositions, NoPositions

B, C, P, D = 2, 3, 5, 7
ROWS, COLUMNS = 2, 3
N = ROWS * COLUMNS
PARTS = [LinearPatches, ConvolutionPatches]


def pixels(b=B, c=C, height=ROWS * P, width=COLUMNS * P, seed=1):
    return torch.randn(b, c, height, width, generator=torch.Generator().manual_seed(seed))


def loop(x, weight, bias):
    """Pixel by pixel: weight is [d, C, P, P]."""
    out = torch.zeros(len(x), N, D, dtype=torch.float64)
    for b in range(len(x)):
        for row in range(ROWS):
            for column in range(COLUMNS):
                for k in range(D):
                    total = float(bias[k])
                    for c in range(C):
                        for i in range(P):
                            for j in range(P):
                                pixel = float(x[b, c, row * P + i, column * P + j])
                                total += float(weight[k, c, i, j]) * pixel
                    out[b, row * COLUMNS + column, k] = total
    return out.float()


@pytest.mark.parametrize("part", PARTS)
def test_patches_are_the_loop(part):
    patches, x = part(C, P, D), pixels()
    nn.init.normal_(patches.projection.bias)
    weight = patches.projection.weight.detach().view(D, C, P, P)
    wanted = loop(x, weight, patches.projection.bias.detach())
    torch.testing.assert_close(patches(x), wanted, rtol=0, atol=1e-5)


def test_both_parts_compute_the_same_and_so_do_their_gradients():
    linear, convolution = LinearPatches(C, P, D), ConvolutionPatches(C, P, D)
    nn.init.normal_(linear.projection.bias)
    with torch.no_grad():
        convolution.load_state_dict(linear.state_dict())
    asked, results = torch.randn(B, N, D), []
    for part in (linear, convolution):
        x = pixels().requires_grad_()
        y = part(x)
        (y * asked).sum().backward()
        weight, bias = part.projection.weight.grad, part.projection.bias.grad
        results.append((y.detach(), x.grad, weight.view(D, C, P, P), bias))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("part", PARTS)
def test_first_weights_keep_the_size_of_pixels(part):
    patches = part(3, 16, 256)
    assert not patches.projection.bias.any()
    assert patches.projection.weight.std().item() == pytest.approx((3 * 16 * 16) ** -0.5, rel=0.02)


def test_an_image_of_224_pixels_has_196_patches_of_16():
    assert grid_of(224, 224, 16) == (14, 14)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("height, width", [(11, 15), (10, 14)])
def test_patches_that_do_not_fill_the_image_are_refused(part, height, width):
    with pytest.raises(ValueError, match=f"patch size 5 must divide .* got {height} x {width} pixels"):
        part(C, P, D)(pixels(height=height, width=width))


def embedding(class_token=True, positions=True, **options):
    torch.manual_seed(2)
    n = N + class_token
    table = LearnedPositions(n, D) if positions else NoPositions(D)
    token = nn.Parameter(torch.randn(1, D)) if class_token else None
    size = (ROWS * P, COLUMNS * P)
    return PatchEmbedding(LinearPatches(C, P, D), size, token, Added(table), **options)


def test_the_class_token_comes_first_and_every_token_gets_its_place():
    part, x = embedding(), pixels()
    packed = part(Images.of(x, N + 1))
    patches, table = part.patches(x), part.positions.positions.weight
    wanted = []
    for b in range(B):
        wanted.append(part.class_token[0] + table[0])
        wanted += [patches[b, n] + table[n + 1] for n in range(N)]
    torch.testing.assert_close(packed, torch.stack(wanted), rtol=0, atol=1e-6)


def test_without_class_token_and_positions_patches_are_all():
    part, x = embedding(class_token=False, positions=False), pixels()
    torch.testing.assert_close(part(Images.of(x, N)), part.patches(x).flatten(0, 1))


def test_dropout_acts_on_the_sum_in_training():
    part, images = embedding(dropout=0.5), Images.of(pixels(), N + 1)
    whole, dropped = part.eval()(images), part.train()(images)
    zeros = dropped == 0
    assert 0.2 < zeros.float().mean() < 0.8
    torch.testing.assert_close(dropped[~zeros], 2 * whole[~zeros], rtol=1e-3, atol=1e-5)


def test_images_of_another_size_and_layouts_of_other_tokens_are_refused():
    part = embedding()
    with pytest.raises(ValueError, match=r"must have 10 x 15 pixels, got 15 x 10.*resize_positions"):
        part(Images.of(pixels(height=15, width=10), N + 1))
    with pytest.raises(ValueError, match="layout must have 7 tokens for each of the 2 images"):
        part(Images.of(pixels(), N))


def test_no_images_make_no_tokens():
    assert embedding()(Images.of(pixels(0), N + 1)).shape == (0, D)


def test_images_are_chosen_and_moved_with_their_layout():
    images = Images.of(pixels(3), N)
    assert images.layout.lengths == (N, N, N)
    chosen = images.select([2, 0])
    assert torch.equal(chosen.pixels, images.pixels[[2, 0]])
    assert chosen.layout.lengths == (N, N)
    moved = images.to("meta")
    assert moved.pixels.device.type == moved.layout.device.type == "meta"
    assert isinstance(moved.layout, Layout)


# Tables for other grids -----------------------------------------------------------------------------------


def keys(distance, a=-0.75):
    """The cubic of Keys 1981, equation 4 with another a."""
    t = abs(distance)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def bicubic(grid, new):
    """Place by place, over all old places that lie within two of the new one."""
    rows, columns, d = grid.shape
    out = torch.zeros(*new, d, dtype=torch.float64)
    for i in range(new[0]):
        for j in range(new[1]):
            y, x = (i + 0.5) * rows / new[0] - 0.5, (j + 0.5) * columns / new[1] - 0.5
            for p in range(math.floor(y) - 1, math.floor(y) + 3):
                for q in range(math.floor(x) - 1, math.floor(x) + 3):
                    inside = grid[min(max(p, 0), rows - 1), min(max(q, 0), columns - 1)]
                    out[i, j] += keys(y - p) * keys(x - q) * inside.double()
    return out


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("new", [(7, 11), (2, 3), (3, 13)])
def test_a_resized_table_is_the_loop_and_keeps_what_stands_before_the_grid(first, new):
    old = (3, 5)
    table = torch.randn(first + 15, D, generator=torch.Generator().manual_seed(4))
    resized = resize_positions(table, old, new)
    assert torch.equal(resized[:first], table[:first])
    wanted = bicubic(table[first:].reshape(*old, D), new).flatten(0, 1).float()
    torch.testing.assert_close(resized[first:], wanted, rtol=0, atol=1e-5)


def test_a_table_for_its_own_grid_stays_as_it_is():
    table = torch.randn(16, D)
    assert torch.equal(resize_positions(table, (3, 5), (3, 5)), table)


def test_equal_positions_stay_equal():
    table = torch.ones(6, D)
    torch.testing.assert_close(resize_positions(table, (2, 3), (5, 7)), torch.ones(35, D))


def test_a_table_that_is_too_small_for_its_grid_is_refused():
    with pytest.raises(ValueError, match="table must have at least 3 x 5 rows, got 14"):
        resize_positions(torch.zeros(14, D), (3, 5), (7, 7))
