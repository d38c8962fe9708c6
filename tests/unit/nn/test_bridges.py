"""Bridges: what the decoder's first state is, and in which type it is carried."""

import pytest
import torch

from heedful.nn.attention.recurrent import EncoderOutput
from heedful.nn.bridges import CopyBridge, ProjectedBridge, ZeroBridge
from heedful.nn.layout import Layout

D = 7


@pytest.fixture
def encoded():
    torch.manual_seed(2)
    layout = Layout.of([2, 3, 1])
    finals = [(torch.randn(3, D), torch.randn(3, D)), (torch.randn(3, D), torch.randn(3, D))]
    return EncoderOutput(torch.randn(6, D), layout, finals, finals[-1][0])


def test_projected_states_are_one_product_each(encoded):
    bridge = ProjectedBridge(D, 5, 2)
    for state, weight in zip(bridge(encoded), bridge.linear.weight.split(5), strict=True):
        torch.testing.assert_close(state, torch.tanh(encoded.summary @ weight.T))


def test_copied_states_are_those_of_the_encoder_layer_by_layer(encoded):
    (a, b), (c, d) = encoded.finals
    assert all(x is y for x, y in zip(CopyBridge()(encoded), (a, b, c, d), strict=True))


def test_zeros_are_as_many_and_as_wide_as_the_states(encoded):
    states = ZeroBridge(5, 2)(encoded)
    assert all(torch.equal(state, torch.zeros(3, 5)) for state in states)
    assert len(states) == 2


@pytest.mark.parametrize("bridge", [ProjectedBridge(D, D, 4), CopyBridge(), ZeroBridge(D, 4)])
def test_states_begin_in_fp32_under_autocast(encoded, bridge):
    with torch.autocast("cpu", torch.bfloat16):
        states = bridge(encoded)
    assert [state.dtype for state in states] == [torch.float32] * 4
