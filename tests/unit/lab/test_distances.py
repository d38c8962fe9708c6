"""How far heads look: distances by loops, windows by arithmetic, the verdict by made-up heads."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from sweep import Laws, curve, hold_what_is_expected, made, value

from heedful.lab import distances
from heedful.lab.data_size import SIDE, drawn, network
from heedful.lab.distances import EVEN, N_HEADS, N_LAYERS, PATCH
from heedful.nn.patches import Images
from heedful.nn.taps import recording

NAME = "attention-distance"
PLACES = list(product(range(SIDE // PATCH), repeat=2))


class TestExperiments(Laws):
    family = "distances"


def even_network():
    """A network whose scores are all 0, so that all patches that are seen get the same weight."""
    model = network(distances.CONFIG, 3).eval()
    for block in model.stack.blocks:
        torch.nn.init.zeros_(block.mixer.part.qkv.weight)
    return model


def images(n=2):
    return Images.of(drawn(n, seed=1).pixels, distances.N_PATCHES)


@pytest.mark.parametrize("confined", [False, True])
def test_even_attention_by_loops(confined):
    """The mean over patches of the mean distance to those that each sees, in pixels."""
    means = []
    for a in PLACES:
        seen = [b for b in PLACES if not confined or max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= 1]
        means.append(PATCH * sum(math.dist(a, b) for b in seen) / len(seen))
    model = even_network()
    with distances.restriction(model, confined=confined):
        observed = distances.observed(model, images())
    found = observed.far
    assert found.shape == (N_LAYERS, N_HEADS)
    assert found == pytest.approx(np.full_like(found, np.mean(means)), rel=1e-5)
    if not confined:
        assert pytest.approx(np.mean(means)) == EVEN


def test_offsets_by_loops():
    rows, columns = 2, 3
    places = list(product(range(rows), range(columns)))
    weights = np.random.default_rng(3).random((5, 6, 6))
    found = distances.by_offset(weights, (rows, columns))
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
    observed = distances.observed(even_network(), images())
    np.testing.assert_allclose(observed.around, 1.0, rtol=1e-5)


def test_confined_patches_give_nothing_to_those_that_they_do_not_touch():
    model, given = network(distances.CONFIG, 1).eval(), images()
    names = [f"stack.blocks.{layer}.mixer.part.weights" for layer in range(N_LAYERS)]
    with distances.restriction(model, confined=True), recording(model, names) as seen, torch.no_grad():
        model(given)
    for name in names:
        for (i, a), (j, b) in product(enumerate(PLACES), repeat=2):
            touch = max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= 1
            assert ((seen[name][0][:, :, i, j] > 0) == touch).all()


def test_each_convolution_reaches_one_pixel_farther_to_all_sides():
    expected = [math.hypot(n, n) for n in range(1, N_LAYERS + 3)]
    assert distances.convolution_reach(N_LAYERS + 2) == pytest.approx(expected)


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
def test_the_verdict(first, last, verdict):
    assert distances.judge(EVEN * np.array([first, last])) == verdict


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
