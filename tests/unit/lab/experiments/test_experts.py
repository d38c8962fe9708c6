"""Experts at equal operations, and two readings of compressed memory: formulas, plain loops, perplexities."""

import math

import pytest
import torch
from sweep import Laws, hold_what_is_expected, made, measured, value, verdict_of
from torch.nn import functional

from heedful.lab.experiments import experts
from heedful.nn.experts import NoisyTopKGate


class TestExperiments(Laws):
    family = "experts"


def test_both_take_as_many_operations():
    for control in (False, True):
        hold_what_is_expected("experts-at-equal-operations", control, rel=1e-12)
    # Two of sixteen networks of 16 x 8 and 8 x 16, a gate of 16 x 16 and its noise of as many.
    assert experts.operations(experts.networks()[experts.MANY]) == 2 * (2 * 2 * 16 * 8 + 2 * 16 * 16)


def test_parameters_are_those_of_all_experts():
    rows = {row["network"]: row["parameters"] for row in made("experts-at-equal-operations").table}
    d = experts.D
    assert rows[experts.ONE] == 2 * d * 32 + 32 + d
    assert rows[experts.MANY] == 16 * (2 * d * 8 + 8 + d) + 2 * 16 * d


def test_a_symbol_follows_two_others_as_often_as_the_law_says():
    symbols = 5
    batch = experts.draw_text(symbols, 2000, torch.Generator().manual_seed(11))
    read, wanted = batch.inputs.ids.view(2000, -1), batch.targets.view(2000, -1)
    triples = (read[:, :-1] * symbols + read[:, 1:]) * symbols + wanted[:, 1:]
    found = triples.flatten().bincount(minlength=symbols**3).view(symbols, symbols, symbols)
    shares = found / found.sum(-1, keepdim=True)
    top = experts.FAVOURED + (1 - experts.FAVOURED) / symbols
    torch.testing.assert_close(shares.amax(-1), torch.full((5, 5), top), atol=0.04, rtol=0)
    rest = shares.sum(-1) - shares.amax(-1)
    torch.testing.assert_close(rest, torch.full((5, 5), 1 - top), atol=0.04, rtol=0)


def test_new_text_is_new_and_of_the_same_language():
    one, two = (experts.draw_text(7, 50, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert not torch.equal(one.inputs.ids, two.inputs.ids)
    rows = {tuple(row) for row in one.inputs.ids.view(50, -1).tolist()}
    assert not rows & {tuple(row) for row in two.inputs.ids.view(50, -1).tolist()}


def test_the_least_perplexity_is_that_of_the_law():
    top, other = 0.8 + 0.2 / 4, 0.2 / 4
    entropy = -top * math.log(top) - 3 * other * math.log(other)
    assert experts.least_perplexity(4) == pytest.approx(math.exp((math.log(4) + 31 * entropy) / 32))


@pytest.mark.slow
def test_the_balance_of_the_experts_is_in_the_loss(monkeypatch):
    """Without its weights the same training leaves its experts less evenly used."""
    assert measured("experts-at-equal-operations", "tokens of the busiest").value < 2
    balanced = NoisyTopKGate.__init__

    def unbalanced(self, *args):
        balanced(self, *args, importance=0.0, load=0.0)

    symbols, updates = 8, 40
    kept = experts.train_model(experts.networks()[experts.MANY], symbols, updates).busiest
    monkeypatch.setattr(NoisyTopKGate, "__init__", unbalanced)
    assert experts.train_model(experts.networks()[experts.MANY], symbols, updates).busiest > kept


def test_perplexities_differ_where_there_is_much_to_know():
    name = "experts-at-equal-operations"
    many, one = (value(name, f"perplexity of new text, {each}") for each in (experts.MANY, experts.ONE))
    assert experts.least_perplexity(experts.SYMBOLS["short"]) < many < 0.9 * one
    assert one < experts.SYMBOLS["short"]
    few = [
        value(name, f"perplexity of new text, {each}", control=True) for each in (experts.MANY, experts.ONE)
    ]
    assert few == pytest.approx([experts.least_perplexity(experts.FEW)] * 2, rel=0.06)


# Two readings of memory-compressed attention


@torch.no_grad()
def test_the_released_reading_is_a_convolution_of_tokens_before_they_are_projected():
    layer, filters = experts.memory_layers()
    x = torch.randn(11, experts.MEMORY_WIDTH, dtype=torch.float64)
    kernel = filters.weight[0].unflatten(0, (experts.FACTOR, -1)).permute(2, 1, 0)
    slots = torch.cat([x[:1], functional.conv1d(x.T[None], kernel, stride=experts.FACTOR)[0].T])
    wanted = torch.zeros_like(x)
    w_q, w_k, w_v = layer.qkv.weight.split(layer.sizes)
    d_k = experts.MEMORY_WIDTH // experts.HEADS
    for i in range(len(x)):
        seen = slots[: 1 + i // experts.FACTOR]
        heads = []
        for h in range(experts.HEADS):
            of_head = slice(h * d_k, (h + 1) * d_k)
            scores = (seen @ w_k[of_head].T) @ (w_q[of_head] @ x[i]) / d_k**0.5
            heads.append(scores.softmax(0) @ (seen @ w_v[of_head].T))
        wanted[i] = layer.out.weight @ torch.cat(heads)
    torch.testing.assert_close(experts.compressed_attention(x, "released"), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 13])
def test_the_papers_reading_is_that_of_the_layer(n):
    assert experts.difference_from_layer(n) < 1e-12


@pytest.mark.parametrize("n, slots", [(1, 1), (2, 1), (3, 2), (7, 3), (13, 5)])
def test_the_slots_of_the_layer_are_counted(n, slots):
    assert experts.slots_of_layer(n) == slots


@pytest.mark.parametrize("wrong", [{"slots": 35}, {"apart": 1e-3}, {"leak": 0.1}])
def test_a_wrong_layer_is_found(wrong):
    right = {"slots": 34, "a_third": 34, "apart": 1e-15, "leak": 0.0}
    assert verdict_of("compressed-memory", **right) == "holds"
    assert verdict_of("compressed-memory", **right | wrong) == "is wrong"


def test_the_filters_that_fit_the_papers_keys_are_the_ones_of_the_formula():
    """F = W_K^-1 C W_K, of all heads together."""
    layer, _ = experts.memory_layers()
    w_k = layer.qkv.weight.detach().split(layer.sizes)[1]
    x = torch.randn(experts.FACTOR, experts.MEMORY_WIDTH, dtype=torch.float64)
    keys = (x @ w_k.T).unflatten(-1, (experts.HEADS, -1)).transpose(0, 1)
    wanted = layer.compress_keys(keys[None]).detach()[0, :, 0].flatten()
    own = experts._by_place(layer.compress_keys)
    found = torch.zeros(experts.MEMORY_WIDTH, dtype=torch.float64)
    for place in range(experts.FACTOR):
        filters = torch.linalg.inv(w_k) @ torch.block_diag(*own[:, place]) @ w_k
        found += w_k @ (filters @ x[place])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_neither_reading_contains_the_other():
    left = experts.residuals_of_fits()
    assert left["paper's keys by released filters"] < 1e-10
    assert left["paper's keys and values by released filters"] > 0.3
    assert left["released keys by the paper's filters"] > 0.3
    assert value("compressed-memory", "numbers in the filters, paper") == 2 * 3 * 24 * 24 / 4


def test_a_leak_is_found_only_where_the_mask_is_early():
    for reading in experts.READINGS:
        assert experts.change_by_later_tokens(20, reading, early=False) == 0.0
        assert experts.change_by_later_tokens(20, reading, early=True) > 0.1
