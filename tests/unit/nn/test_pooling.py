"""Pooling against plain loops over sequences."""

import pytest
import torch

from heedful.nn.layout import Layout
from heedful.nn.pooling import FirstPooling, LastPooling, MaxPooling, MeanPooling, Pooler

LENGTHS = [3, 1, 7]
PLAIN = {
    FirstPooling: lambda part: part[0],
    LastPooling: lambda part: part[-1],
    MeanPooling: lambda p: p.mean(0),
    MaxPooling: lambda p: p.amax(0),
}


def hidden(lengths, d=5, seed=1):
    return torch.randn(sum(lengths), d, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", PLAIN)
def test_each_sequence_is_pooled_by_itself(kind):
    x = hidden(LENGTHS).requires_grad_()
    expected = torch.stack([PLAIN[kind](part) for part in x.split(LENGTHS)])
    pooled = kind()(x, Layout.of(LENGTHS))
    torch.testing.assert_close(pooled, expected)
    probe = torch.randn_like(pooled)
    ours, theirs = (torch.autograd.grad(out, x, probe)[0] for out in (pooled, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", PLAIN)
def test_negative_numbers_are_not_lost_to_padding(kind):
    x = -1.0 - hidden(LENGTHS).abs()
    assert (kind()(x, Layout.of(LENGTHS)) < 0).all()


@pytest.mark.parametrize("kind", PLAIN)
def test_nan_stays_in_its_sequence(kind):
    x = hidden(LENGTHS)
    x[3] = float("nan")
    pooled = kind()(x, Layout.of(LENGTHS))
    assert pooled[1].isnan().all()
    assert pooled[[0, 2]].isfinite().all()


def test_an_empty_sequence_has_a_mean_of_zero_and_nothing_else():
    layout, x = Layout.of([2, 0]), hidden([2])
    assert torch.equal(MeanPooling()(x, layout)[1], torch.zeros(5))
    for kind in (FirstPooling, LastPooling, MaxPooling):
        with pytest.raises(ValueError, match="empty"):
            kind()(x, layout)


def test_the_mean_of_bf16_is_summed_in_fp32():
    x = torch.ones(1000, 1, dtype=torch.bfloat16)
    assert MeanPooling()(x, Layout.of([1000])).item() == 1.0


def test_a_pooler_is_a_layer_with_tanh():
    pooler, x = Pooler(FirstPooling(), 5), hidden(LENGTHS)
    first = x[[0, 3, 4]]
    expected = torch.tanh(first @ pooler.dense.weight.T + pooler.dense.bias)
    torch.testing.assert_close(pooler(x, Layout.of(LENGTHS)), expected)
