"""The feed-forward network against its formula and against convolutions of width 1."""

import torch
from torch import nn

from heedful.nn.feedforward import FeedForward


def network(**options):
    torch.manual_seed(1)
    part = FeedForward(5, 11, **options)
    nn.init.normal_(part.up.bias)
    nn.init.normal_(part.down.bias)
    return part


@torch.no_grad()
def test_equals_the_formula_number_by_number():
    part, x = network(), torch.randn(3, 5)
    w_1, b_1 = part.up.weight.T, part.up.bias
    w_2, b_2 = part.down.weight.T, part.down.bias
    wanted = torch.zeros(3, 5)
    for t in range(3):
        inner = [max(0.0, float(x[t] @ w_1[:, j] + b_1[j])) for j in range(11)]
        for i in range(5):
            wanted[t, i] = sum(inner[j] * float(w_2[j, i]) for j in range(11)) + float(b_2[i])
    torch.testing.assert_close(part(x), wanted)


def test_equals_two_convolutions_of_width_one():
    part, x = network(), torch.randn(2, 7, 5)
    first, second = nn.Conv1d(5, 11, 1), nn.Conv1d(11, 5, 1)
    for convolution, linear in ((first, part.up), (second, part.down)):
        convolution.weight.data = linear.weight.data[..., None]
        convolution.bias.data = linear.bias.data
    torch.testing.assert_close(part(x), second(first(x.mT).relu()).mT)


def test_every_token_is_mapped_by_itself():
    part, x = network(), torch.randn(7, 5)
    torch.testing.assert_close(part(x), torch.stack([part(row) for row in x]))


def test_the_published_size_has_its_parameters():
    with torch.device("meta"):
        part = FeedForward(512, 2048)
    assert sum(p.numel() for p in part.parameters()) == 2 * 512 * 2048 + 2048 + 512 == 2_099_712


def test_the_activation_can_be_another():
    x = torch.randn(3, 5)
    smooth = network(activation=nn.GELU())
    inner = x @ smooth.up.weight.T + smooth.up.bias
    wanted = 0.5 * inner * (1 + torch.erf(inner / 2**0.5))
    torch.testing.assert_close(smooth(x), wanted @ smooth.down.weight.T + smooth.down.bias)


@torch.no_grad()
def test_dropout_falls_on_the_inner_layer_in_training_only():
    torch.manual_seed(2)
    part, x = FeedForward(7, 7, dropout=0.5), torch.randn(11, 7)
    part.down.weight.copy_(torch.eye(7))
    inner = (x @ part.up.weight.T).relu()
    ratios = (part(x) / inner)[inner > 0]
    assert {round(r, 4) for r in ratios.tolist()} == {0.0, 2.0}
    torch.testing.assert_close(part.eval()(x), inner)
