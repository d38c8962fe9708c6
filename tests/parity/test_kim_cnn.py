"""Parallel convolutions with max-over-time pooling (Kim 2014) against torch's Conv1d, text by text."""

import pytest
import torch
from torch import nn

from heedful.models.encoder import EncoderConfig, build
from heedful.nn.layout import Layout
from heedful.nn.pooling import MaxPooling

D, WIDTHS, LENGTHS, V = 17, [3, 4, 5], [2, 11, 1, 7], 23


@pytest.fixture
def ours():
    torch.manual_seed(1)
    config = EncoderConfig(
        d_model=D,
        n_layers=1,
        pooling="max",
        dropout=0.0,
        layer={
            "mixer": {"kind": "parallel-convolutions", "activation": "relu"},
            "channels": {"d_ff": 19, "activation": "relu"},
        },
    )
    part = build(config, V).stack.blocks[0].mixer.part
    with torch.no_grad():
        for parameter in part.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return part


def theirs_with(part):
    """torch's own layers, which put the zeros around a sentence themselves, with the same weights."""
    layers = [nn.Conv1d(D, own.out_channels, k, padding="same") for own, k in zip(part.convolutions, WIDTHS)]
    for layer, own in zip(layers, part.convolutions, strict=True):
        layer.load_state_dict(own.state_dict())
    return nn.ModuleList(layers)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_features_and_gradients_are_torchs(ours):
    theirs, layout = theirs_with(ours), Layout.of(LENGTHS)
    x, y = (torch.randn(sum(LENGTHS), D, generator=torch.Generator().manual_seed(2)) for _ in range(2))
    features = ours(x.requires_grad_(), layout)
    rows = [
        torch.cat([layer(own.mT) for layer in theirs]).mT.relu() for own in y.requires_grad_().split(LENGTHS)
    ]
    torch.testing.assert_close(features, torch.cat(rows), rtol=1e-5, atol=1e-6)
    pooled = MaxPooling()(features, layout)
    greatest = torch.stack([row.amax(0) for row in rows])
    torch.testing.assert_close(pooled, greatest, rtol=1e-5, atol=1e-6)
    for vectors in (pooled, greatest):
        vectors.pow(3).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)
    for own, layer in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own.grad, layer.grad, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_windows_inside_a_sentence_are_kims(ours):
    """His have no zeros: window i of a width begins where ours has its first token."""
    x = torch.randn(13, D)
    features = ours(x, Layout.of([13])).split([own.out_channels for own in ours.convolutions], dim=1)
    for width, own, mixed in zip(WIDTHS, ours.convolutions, features, strict=True):
        before = (width - 1) // 2
        wanted = nn.functional.conv1d(x.mT, own.weight, own.bias).mT.relu()
        torch.testing.assert_close(mixed[before : before + 14 - width], wanted, rtol=1e-5, atol=1e-6)
