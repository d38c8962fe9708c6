"""Residual connections against their formulas."""

import pytest
import torch
from torch import nn

from heedful.nn.feedforward import FeedForward
from heedful.nn.norms import LayerNorm
from heedful.nn.residual import PostNorm, PreNorm
from heedful.nn.taps import intervene, recording


class Part(nn.Module):
    """Remembers what it was given."""

    def forward(self, x, *context):
        self.context = context
        return 3 * x + 1


class Norm(nn.Module):
    def forward(self, x):
        return x - x.mean(-1, keepdim=True) + 7


X = torch.tensor([[1.0, 2.0, 6.0], [-4.0, 0.0, 1.0]])


def test_post_norm_normalises_the_sum():
    assert torch.equal(PostNorm(Part(), Norm())(X), Norm()(X + (3 * X + 1)))


def test_pre_norm_normalises_what_the_part_reads_alone():
    assert torch.equal(PreNorm(Part(), Norm())(X), X + (3 * Norm()(X) + 1))


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_context_goes_to_the_part_as_it_is(kind):
    part, layout, cache = Part(), object(), object()
    kind(part, Norm())(X, layout, None, cache)
    assert part.context == (layout, None, cache)


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_dropout_falls_on_the_part_and_never_on_the_way_past_it(kind):
    torch.manual_seed(1)
    x = torch.randn(5, 7)
    residual = kind(nn.Identity(), nn.Identity(), dropout=0.5)
    ratios = residual(x) / x  # 1 + 0 or 1 + 2
    assert {round(r, 4) for r in ratios.flatten().tolist()} == {1.0, 3.0}
    torch.testing.assert_close(residual.eval()(x), 2 * x)


def test_two_residual_connections_make_four_paths():
    """Lecture S1: with linear parts, the product of (1 + a)(1 + b) has 2^2 terms."""

    class Times(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return self.factor * x

    a, b = 0.5, 0.25
    stack = nn.Sequential(*(PreNorm(Times(f), nn.Identity()) for f in (a, b)))
    torch.testing.assert_close(stack(X), X + a * X + b * X + a * b * X)


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_gradients_equal_those_of_the_formula(kind):
    torch.manual_seed(2)
    part, norm = FeedForward(3, 5), LayerNorm(3)
    x = torch.randn(7, 3, requires_grad=True)
    wanted = norm(x + part(x)) if kind is PostNorm else x + part(norm(x))
    probe = torch.randn(7, 3)
    inputs = [x, *part.parameters(), *norm.parameters()]
    ours = torch.autograd.grad((kind(part, norm)(x) * probe).sum(), inputs)
    torch.testing.assert_close(ours, torch.autograd.grad((wanted * probe).sum(), inputs))


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_the_tap_sees_what_the_part_adds(kind):
    residual = kind(Part(), Norm())
    with recording(residual, ["added"]) as seen:
        out = residual(X)
    (added,) = seen["added"]
    assert torch.equal(out, Norm()(X + added) if kind is PostNorm else X + added)
    with intervene(residual, {"added": torch.zeros_like}):
        assert torch.equal(residual(X), Norm()(X) if kind is PostNorm else X)
