"""Experts at equal operations: counts by formula, the language by its laws, perplexities."""

import math

import pytest
import torch
from sweep import Laws, hold_what_is_expected, made, measured, value

from heedful.lab import experts
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
    batch = experts.text(symbols, 2000, torch.Generator().manual_seed(11))
    read, wanted = batch.inputs.ids.view(2000, -1), batch.targets.view(2000, -1)
    triples = (read[:, :-1] * symbols + read[:, 1:]) * symbols + wanted[:, 1:]
    found = triples.flatten().bincount(minlength=symbols**3).view(symbols, symbols, symbols)
    shares = found / found.sum(-1, keepdim=True)
    top = experts.FAVOURED + (1 - experts.FAVOURED) / symbols
    torch.testing.assert_close(shares.amax(-1), torch.full((5, 5), top), atol=0.04, rtol=0)
    rest = shares.sum(-1) - shares.amax(-1)
    torch.testing.assert_close(rest, torch.full((5, 5), 1 - top), atol=0.04, rtol=0)


def test_new_text_is_new_and_of_the_same_language():
    one, two = (experts.text(7, 50, torch.Generator().manual_seed(seed)) for seed in (1, 2))
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
    kept = experts.learned(experts.networks()[experts.MANY], symbols, updates).busiest
    monkeypatch.setattr(NoisyTopKGate, "__init__", unbalanced)
    assert experts.learned(experts.networks()[experts.MANY], symbols, updates).busiest > kept


def test_perplexities_differ_where_there_is_much_to_know():
    name = "experts-at-equal-operations"
    many, one = (value(name, f"perplexity of new text, {each}") for each in (experts.MANY, experts.ONE))
    assert experts.least_perplexity(experts.SYMBOLS["short"]) < many < 0.9 * one
    assert one < experts.SYMBOLS["short"]
    few = [
        value(name, f"perplexity of new text, {each}", control=True) for each in (experts.MANY, experts.ONE)
    ]
    assert few == pytest.approx([experts.least_perplexity(experts.FEW)] * 2, rel=0.06)
