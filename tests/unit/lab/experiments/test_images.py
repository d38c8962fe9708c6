"""Images: pixel by pixel, the view by gradients, distances by loops, verdicts by made-up numbers."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from sweep import Laws, curve, hold_what_is_expected, judged, made, statement_of, value, verdict_of
from torch import nn

from heedful.lab.experiments import images
from heedful.lab.experiments.images import (
    EVEN,
    LEFT,
    N_HEADS,
    N_LAYERS,
    PATCH,
    RIGHT,
    SIDE,
    SIGN,
    SIGNS,
    draw_images,
    network,
)
from heedful.nn.convolutional import GroupNorm
from heedful.nn.patches import Images
from heedful.nn.taps import recording


class TestExperiments(Laws):
    family = "images"


# Images to learn from


def test_signs_are_where_they_are_said_to_be(monkeypatch):
    monkeypatch.setattr(images, "NOISE", 0.0)
    found = images.draw_images(97, seed=3)
    for pixels, left, right in zip(found.pixels[:, 0], found.left, found.right, strict=True):
        assert left != right
        halves = pixels[:, : LEFT.stop + SIGN - 1], pixels[:, RIGHT.start :]
        assert pixels.sum() == sum(half.sum() for half in halves) == 10
        for half, kind in zip(halves, (left, right), strict=True):
            rows, columns = half.nonzero().unbind(1)
            y, x = rows.min(), columns.min()
            assert torch.equal(half[y : y + SIGN, x : x + SIGN], images.signs()[kind])
    assert {int(kind) for kind in found.left} == set(range(SIGNS))


def test_signs_differ_wherever_they_are_laid():
    signs = images.signs()
    for a in range(SIGNS):
        assert signs[a].sum() == 5
        # Every row and column holds a pixel, so that a sign tells where it begins.
        assert signs[a].sum(0).all()
        assert signs[a].sum(1).all()
        for b in range(a):
            assert (signs[a] * signs[b]).sum() <= 3


def test_shuffling_moves_every_image_alike_and_loses_nothing():
    numbers = torch.arange(2.0 * SIDE * SIDE).view(2, 1, SIDE, SIDE)
    first, second = images.shuffle_pixels(numbers).flatten(1)
    assert torch.equal(first.sort().values, numbers[0].flatten())
    assert torch.equal(second - first, torch.full_like(first, SIDE * SIDE))
    rows, columns = first.view(SIDE, SIDE) // SIDE, first.view(SIDE, SIDE) % SIDE
    near = ((rows.diff() ** 2 + columns.diff() ** 2) <= 2).float().mean()
    assert near < 0.05  # of those that were neighbours
    assert torch.equal(images.shuffle_pixels(numbers), images.shuffle_pixels(numbers))


def test_the_networks_are_of_comparable_size():
    sizes = [
        sum(p.numel() for p in images.network(config, 0).parameters()) for config in images.NETWORKS.values()
    ]
    assert max(sizes) < 1.34 * min(sizes)


def test_the_resnet_sees_all_of_an_image():
    model = images.network(images.NETWORKS["ResNet"], 0).double()
    for parent in list(model.modules()):
        for name, part in parent.named_children():
            if isinstance(part, GroupNorm):  # it sees the whole image too, but not what is where
                setattr(parent, name, nn.Identity())
    pixels = torch.randn(1, 1, SIDE, SIDE, dtype=torch.float64, requires_grad=True)
    hidden = model(Images.of(pixels, images.NETWORKS["ResNet"].n_tokens))
    (seen,) = torch.autograd.grad(hidden[len(hidden) // 2].sum(), pixels)
    assert seen[0, 0].abs().sum(0).all()
    assert seen[0, 0].abs().sum(1).all()


@pytest.mark.parametrize(
    "leads, verdict",
    [
        ([0.2, 0.0, -0.2], "holds"),
        ([0.2, -0.2, 0.0], "holds with conditions"),
        ([0.2, 0.1], "holds with conditions"),
        ([0.0, -0.2], "is wrong"),
        ([-0.2, 0.2], "is wrong"),
        ([0.01], "is wrong"),
    ],
)
def test_the_verdict_on_the_number_of_images(leads, verdict):
    values = {"first_lead": leads[0], "last_lead": leads[-1], "most": SIGNS, "least_right": 1.0}
    assert verdict_of("images-to-learn-from", **values) == verdict


@pytest.mark.parametrize(
    "last_lead, least_right, told, not_told",
    [
        (0.2, 0.99, "it still is", "disappears"),
        (0.0, 0.99, "they are equal", "it still is"),
        (0.0, 0.7, "The lead disappears", "they are equal"),
        (-0.2, 0.99, "the ViT is better", "they are equal"),
    ],
)
def test_what_is_said_of_many_images(last_lead, least_right, told, not_told):
    values = {"first_lead": 0.3, "last_lead": last_lead, "most": 8192, "least_right": least_right}
    statement = statement_of("images-to-learn-from", **values)
    assert told in statement
    assert not_told not in statement


def test_each_image_is_learned_from_as_often():
    known = images.draw_images(70, seed=1)
    numbers = torch.arange(70)
    seen = torch.zeros(70)
    for batch in images._batches("ViT", known, numbers, seed=2):
        seen += torch.bincount(batch.classes, minlength=70)
        assert torch.equal(batch.inputs.pixels, known.pixels[batch.classes])
    assert seen.sum() == images.UPDATES * images.BATCH
    assert seen.max() - seen.min() <= 1


def test_the_resnet_leads_first_and_the_vit_draws_near():
    few, many = made("images-to-learn-from").table
    assert few["ResNet"] > 1 / SIGNS + 0.1
    assert min(many["ResNet"], many["ViT"]) > 0.9
    assert few["ResNet ahead by"] == pytest.approx(few["ResNet"] - few["ViT"])
    assert few["ResNet ahead by"] > many["ResNet ahead by"]
    name = f"accuracy of ViT, {many['images']:,} images"
    assert value("images-to-learn-from", name) == many["ViT"]


def test_without_neighbours_the_lead_goes():
    (few,) = made("images-to-learn-from", control=True).table
    assert few["ResNet ahead by"] < made("images-to-learn-from").table[0]["ResNet ahead by"] - 0.1


# Distances of attention


NAME = "attention-distance"
PLACES = list(product(range(SIDE // PATCH), repeat=2))


def even_network():
    """A network whose scores are all 0, so that all patches that are seen get the same weight."""
    model = network(images.CONFIG, 3).eval()
    for block in model.stack.blocks:
        torch.nn.init.zeros_(block.mixer.part.qkv.weight)
    return model


def some_images(n=2):
    return Images.of(draw_images(n, seed=1).pixels, images.N_PATCHES)


@pytest.mark.parametrize("confined", [False, True])
def test_even_attention_by_loops(confined):
    """The mean over patches of the mean distance to those that each sees, in pixels."""
    means = []
    for a in PLACES:
        seen = [b for b in PLACES if not confined or max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= 1]
        means.append(PATCH * sum(math.dist(a, b) for b in seen) / len(seen))
    model = even_network()
    with images.restrict_attention(model, confined=confined):
        observed = images.observe_heads(model, some_images())
    found = observed.distances
    assert found.shape == (N_LAYERS, N_HEADS)
    assert found == pytest.approx(np.full_like(found, np.mean(means)), rel=1e-5)
    if not confined:
        assert pytest.approx(np.mean(means)) == EVEN


def test_offsets_by_loops():
    rows, columns = 2, 3
    places = list(product(range(rows), range(columns)))
    weights = np.random.default_rng(3).random((5, 6, 6))
    found = images.mean_weights_by_offset(weights, (rows, columns))
    assert found.shape == (5, 2 * rows - 1, 2 * columns - 1)
    for (i, down), (j, right) in product(enumerate(range(-1, 2)), enumerate(range(-2, 3))):
        pairs = [
            (q, k)
            for (q, a), (k, b) in product(enumerate(places), repeat=2)
            if (b[0] - a[0], b[1] - a[1]) == (down, right)
        ]
        expected = 6 * np.mean([weights[:, q, k] for q, k in pairs], axis=0)
        np.testing.assert_allclose(found[:, i, j], expected)


def test_even_attention_is_one_at_every_offset():
    observed = images.observe_heads(even_network(), some_images())
    np.testing.assert_allclose(observed.offset_weights, 1.0, rtol=1e-5)


def test_confined_patches_give_nothing_to_those_that_they_do_not_touch():
    model, given = network(images.CONFIG, 1).eval(), some_images()
    names = [f"stack.blocks.{layer}.mixer.part.weights" for layer in range(N_LAYERS)]
    with images.restrict_attention(model, confined=True), recording(model, names) as seen, torch.no_grad():
        model(given)
    for name in names:
        for (i, a), (j, b) in product(enumerate(PLACES), repeat=2):
            touch = max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= 1
            assert ((seen[name][0][:, :, i, j] > 0) == touch).all()


def test_each_convolution_reaches_one_pixel_farther_to_all_sides():
    expected = [math.hypot(n, n) for n in range(1, N_LAYERS + 3)]
    assert images.convolution_reach(N_LAYERS + 2) == pytest.approx(expected)


@pytest.mark.parametrize(
    "first, last, verdict",
    [
        ((0.3, 1.0), (1.2, 1.3), "holds"),
        ((0.3, 1.0), (0.6, 0.7), "holds with conditions"),
        ((1.0, 1.0), (1.05, 1.05), "holds with conditions"),
        ((0.3, 0.4), (1.0, 1.0), "is wrong"),  # no head of the first layer looks far
        ((0.01, 1.0), (1.0, 1.0), "is wrong"),  # one looks no farther than a convolution
    ],
)
def test_the_verdict_on_distances(first, last, verdict, monkeypatch):
    far = EVEN * np.array([first, last, last])
    seen = images.Observed(far, np.ones((*far.shape, 7, 7)), torch.zeros(1))
    monkeypatch.setattr(images, "train_and_observe", lambda *_, **__: images.Trained(seen, seen, 1.0))
    assert (
        judged(NAME, images.measure_attention_distances_by_layer("short", confined=False)).verdict == verdict
    )


def test_it_is_measured_of_a_network_that_has_learned():
    assert value(NAME, "accuracy") > 0.9


def test_heads_look_far_before_training_too():
    for control in (False, True):
        hold = made(NAME, control).table[0]
        assert (hold["before training"] > 0.9 * EVEN) != control
    hold_what_is_expected(NAME, rel=0.1)
    reached = value(NAME, "convolutions of 3 x 3 until")
    assert reached * math.sqrt(2) >= EVEN > (reached - 1) * math.sqrt(2)


def test_the_image_shows_the_nearest_below_the_farthest_and_convolutions_below_both():
    layers, nearest = curve(NAME, 0, "nearest head")
    _, mean = curve(NAME, 0, "mean of the heads")
    _, farthest = curve(NAME, 0, "farthest head")
    _, reach = curve(NAME, 0, "3 x 3 convolutions, at most")
    assert list(layers) == list(range(1, N_LAYERS + 1))
    assert all(r < n <= m <= f for r, n, m, f in zip(reach[:N_LAYERS], nearest, mean, farthest, strict=True))
