"""Feed-forward networks, plain and gated, against their formulas and against convolutions of width 1."""

import math

import pytest
import torch
from torch import nn

from heedful.nn.feedforward import FeedForward, GatedFeedForward
from heedful.nn.taps import recording


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


def test_without_biases_it_is_two_products():
    part, x = FeedForward(5, 11, bias=False), torch.randn(3, 5)
    assert {name for name, _ in part.named_parameters()} == {"up.weight", "down.weight"}
    assert part.adds_constant == {}
    torch.testing.assert_close(part(x), (x @ part.up.weight.T).relu() @ part.down.weight.T)


# Gated ----------------------------------------------------------------------------------------------------


def gated(**options):
    torch.manual_seed(3)
    part = GatedFeedForward(5, 11, **options)
    if options.get("bias"):
        nn.init.normal_(part.gate_up.bias)
        nn.init.normal_(part.down.bias)
    return part


FUNCTIONS = {
    nn.Sigmoid: lambda a: 1 / (1 + math.exp(-a)),
    nn.ReLU: lambda a: max(0.0, a),
    nn.GELU: lambda a: 0.5 * a * (1 + math.erf(a / math.sqrt(2))),
    nn.SiLU: lambda a: a / (1 + math.exp(-a)),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", FUNCTIONS, ids=lambda kind: kind.__name__)
@torch.no_grad()
def test_gated_equals_the_formula_number_by_number(activation, bias):
    """GLU, ReGLU, GEGLU and SwiGLU."""
    part, x, f = gated(activation=activation(), bias=bias), torch.randn(3, 5), FUNCTIONS[activation]
    w_gate, w_up = part.gate_up.weight.T[:, :11], part.gate_up.weight.T[:, 11:]
    b_gate, b_up = part.gate_up.bias.split(11) if bias else (torch.zeros(11), torch.zeros(11))
    w_down, b_down = part.down.weight.T, part.down.bias if bias else torch.zeros(5)
    wanted = torch.zeros(3, 5)
    for t in range(3):
        inner = [
            f(float(x[t] @ w_gate[:, j] + b_gate[j])) * float(x[t] @ w_up[:, j] + b_up[j]) for j in range(11)
        ]
        for i in range(5):
            wanted[t, i] = sum(inner[j] * float(w_down[j, i]) for j in range(11)) + float(b_down[i])
    torch.testing.assert_close(part(x), wanted)


def test_silu_is_the_gate_unless_another_is_given():
    assert isinstance(gated().activation, nn.SiLU)


def test_gated_has_three_matrices_and_two_thirds_of_the_units_make_the_sizes_equal():
    with torch.device("meta"):
        part, plain = GatedFeedForward(768, 2048), FeedForward(768, 3072, bias=False)
    assert sum(p.numel() for p in part.parameters()) == 3 * 768 * 2048
    assert sum(p.numel() for p in plain.parameters()) == 3 * 768 * 2048


def test_gate_and_up_start_as_matrices_of_their_own():
    """Xavier's bound is that of d_model x d_ff, not that of the fused matrix, which is narrower."""
    torch.manual_seed(4)
    part = GatedFeedForward(29, 101)
    bound, fused = math.sqrt(6 / (29 + 101)), math.sqrt(6 / (29 + 202))
    for half in part.gate_up.weight.detach().split(101):
        assert fused < half.abs().max() <= bound


def test_the_last_bias_alone_is_added_to_all_tokens_alike():
    assert gated(bias=True).adds_constant == {"down.bias": range(5)}
    assert gated().adds_constant == {}


@torch.no_grad()
def test_dropout_falls_on_the_products_in_training_only():
    torch.manual_seed(2)
    part, x = GatedFeedForward(7, 7, dropout=0.5), torch.randn(11, 7)
    part.down.weight.copy_(torch.eye(7))
    whole = part.eval()(x)
    ratios = part.train()(x) / whole
    assert {round(r, 3) for r in ratios.flatten().tolist()} == {0.0, 2.0}


@pytest.mark.parametrize("part", [network(dropout=0.5), gated(dropout=0.5)], ids=["plain", "gated"])
@torch.no_grad()
def test_the_tap_sees_the_hidden_units_before_dropout(part):
    x = torch.randn(3, 5)
    with recording(part, ["hidden"]) as seen:
        part.train()(x)
    (hidden,) = seen["hidden"]
    torch.testing.assert_close(part.down(hidden), part.eval()(x))
