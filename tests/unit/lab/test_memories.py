"""Two readings of memory-compressed attention: against torch's convolution, and plain loops."""

import pytest
import torch
from sweep import Laws, value
from torch.nn import functional

from heedful.lab import memories


class TestExperiments(Laws):
    family = "memories"


@torch.no_grad()
def test_the_released_reading_is_a_convolution_of_tokens_before_they_are_projected():
    layer, filters = memories.parts()
    x = torch.randn(11, memories.D, dtype=torch.float64)
    kernel = filters.weight[0].unflatten(0, (memories.FACTOR, -1)).permute(2, 1, 0)
    slots = torch.cat([x[:1], functional.conv1d(x.T[None], kernel, stride=memories.FACTOR)[0].T])
    wanted = torch.zeros_like(x)
    w_q, w_k, w_v = layer.qkv.weight.split(layer.sizes)
    d_k = memories.D // memories.HEADS
    for i in range(len(x)):
        seen = slots[: 1 + i // memories.FACTOR]
        heads = []
        for h in range(memories.HEADS):
            of_head = slice(h * d_k, (h + 1) * d_k)
            scores = (seen @ w_k[of_head].T) @ (w_q[of_head] @ x[i]) / d_k**0.5
            heads.append(scores.softmax(0) @ (seen @ w_v[of_head].T))
        wanted[i] = layer.out.weight @ torch.cat(heads)
    torch.testing.assert_close(memories.attended(x, "released"), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 13])
def test_the_papers_reading_is_that_of_the_layer(n):
    assert memories.from_layer(n) < 1e-12


def test_the_filters_that_fit_the_papers_keys_are_the_ones_of_the_formula():
    """F = W_K^-1 C W_K, of all heads together."""
    layer, _ = memories.parts()
    w_k = layer.qkv.weight.detach().split(layer.sizes)[1]
    x = torch.randn(memories.FACTOR, memories.D, dtype=torch.float64)
    keys = (x @ w_k.T).unflatten(-1, (memories.HEADS, -1)).transpose(0, 1)
    wanted = layer.compress_keys(keys[None]).detach()[0, :, 0].flatten()
    own = memories._by_place(layer.compress_keys)
    found = torch.zeros(memories.D, dtype=torch.float64)
    for place in range(memories.FACTOR):
        filters = torch.linalg.inv(w_k) @ torch.block_diag(*own[:, place]) @ w_k
        found += w_k @ (filters @ x[place])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_neither_reading_contains_the_other():
    left = memories.residuals()
    assert left["paper's keys by released filters"] < 1e-10
    assert left["paper's keys and values by released filters"] > 0.3
    assert left["released keys by the paper's filters"] > 0.3
    assert value("compressed-memory", "numbers in the filters, paper") == 2 * 3 * 24 * 24 / 4


def test_a_leak_is_found_only_where_the_mask_is_early():
    for reading in memories.READINGS:
        assert memories.leak(20, reading, early=False) == 0.0
        assert memories.leak(20, reading, early=True) > 0.1
