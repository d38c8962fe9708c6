"""Experiments on depth: figures by formula, and sums of Jacobians by trying."""

import pytest
import torch
from sweep import Laws, curve, hold_what_is_expected, made

from heedful.lab.experiments import depth
from heedful.lab.seeds import seeded
from heedful.nn.layout import Layout


class TestExperiments(Laws):
    family = "depth"


def test_what_is_expected_is_measured():
    hold_what_is_expected("residual-paths", rel=1e-6, abs=1e-4)
    for control in (False, True):
        hold_what_is_expected("attention-is-linear", control, rel=1e-6, abs=1e-4)


def test_the_fewest_terms_are_found():
    one, two, three = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), torch.tensor([7.0, 1.0])
    assert depth._smallest_sum(one + three, [one, two, three]) == (0, 2)
    assert depth._smallest_sum(two, [one, two, three]) == (1,)
    assert depth._smallest_sum(one - two, [one, two, three]) == ()


def test_the_images_are_of_the_first_and_the_last_layers_weights():
    with seeded():
        layers = depth._Layers(4, False)
        tokens, _ = torch.randn(2, depth.N, depth.D, dtype=torch.float64)
    with torch.no_grad():
        _, (first, *_, last) = layers(tokens)
    for panel, weights in zip(made("attention-is-linear").panels, (first, last), strict=False):
        torch.testing.assert_close(torch.tensor(panel.values, dtype=torch.float64), weights)


def test_without_residuals_the_way_through_both_parts_is_left():
    parts = {row["path"]: row["part of the sum"] for row in made("residual-paths", True).table}
    assert parts == dict(zip(depth.PATHS, ("no", "no", "no", "yes"), strict=True))


def test_distances_fall_with_every_layer():
    _, distances = curve("re-averaging", 0, "")
    assert list(distances) == sorted(distances, reverse=True)


def test_a_first_gradient_by_a_network_written_out():
    """Of one layer without residual connection and norm: the output is linear in W_2."""
    found = depth.gradient_of_first_layer(1, 3, residual=False, norms=False)
    with seeded(3):
        stack = depth.plain_stack(depth.D, 1, causal=False).double()
        x, weights = torch.randn(2, depth.N, depth.D, dtype=torch.float64)
    attention, up = stack.blocks[0].mixer.part, stack.blocks[0].feed_forward.part.up
    with torch.no_grad():
        hidden = up(attention(x, Layout.of([depth.N]))).relu()
    assert found == pytest.approx((weights.T @ hidden).norm().item(), rel=1e-9)


def test_norms_or_residuals_but_not_neither_let_a_gradient_reach_the_first_layer():
    (table,) = (made("residual-gradients").table,)
    first, last = table[0], table[-1]
    assert last["no residual, no norms"] < 1e-2 * first["no residual, no norms"]
    assert last["residual, no norms"] > 10 * first["residual, no norms"]
    for name in ("residual, norms", "no residual, norms"):
        assert 0.1 < last[name] / first[name] < 10
