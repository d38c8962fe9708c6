"""Experiments on mixers: counts by formula, the task by counting, causality by perturbation."""

import pytest
import torch
from sweep import Laws, curve, made, measured, value

from heedful.lab import mixing
from heedful.nn.layout import Layout


class TestExperiments(Laws):
    family = "mixing"


@pytest.mark.parametrize("control, k", [(False, 5), (True, 1)])
def test_convolutions_cost_what_the_formulas_say(control, k):
    d = 64
    for beginning in (
        f"parameters, separable, k = {k}",
        f"parameters, full, k = {k}",
        "operations for each token, separable",
        "operations for each token, full",
    ):
        figure = measured("separable-convolution", beginning, control)
        assert figure.value == figure.expected
    assert value("separable-convolution", "parameters, separable", control) == k * d + d * d
    kernels, parameters = curve("separable-convolution", 0, "full: k d²", control)
    assert list(parameters) == [k * d * d for k in kernels]


def test_the_class_is_the_half_with_more_symbols():
    batch = mixing.majority(50, torch.Generator().manual_seed(1))
    rows = batch.inputs.split()
    for row, wanted in zip(rows, batch.classes.tolist(), strict=True):
        assert (row[0], row[-1]) == (mixing.CLASSIFY, mixing.SEPARATE)
        symbols = [i - mixing.FIRST for i in row[1:-1]]
        assert len(symbols) == mixing.LENGTH
        low = sum(symbol < mixing.SYMBOLS // 2 for symbol in symbols)
        assert wanted == (low > len(symbols) - low)
    assert 10 < sum(batch.classes.tolist()) < 40


def test_budgets_are_equal_to_a_hidden_unit():
    for control in (False, True):
        budgets = {row["mixer"]: row["parameters"] for row in made("mixers-at-equal-budget", control).table}
        unit = 2 * (2 * mixing.D + 1)  # of the feed-forwards of two blocks
        assert all(abs(n - budgets["attention"]) <= unit / 2 for n in budgets.values())
    free = {row["mixer"]: row["of its mixers"] for row in made("mixers-at-equal-budget").table}
    assert free["fourier"] == 0
    n, d_tokens = mixing.LENGTH + 2, (mixing.LENGTH + 2) // 2
    assert free["mlp"] == 2 * (2 * n * d_tokens + n + d_tokens)


def test_what_is_far_away_is_out_of_a_short_convolutions_reach():
    model = mixing.at_budget("separable", 10_000).eval()
    batch = mixing.majority(1, torch.Generator().manual_seed(1))
    other = batch.inputs.ids.clone()
    other[4:-1] = mixing.FIRST
    with torch.no_grad():
        first = model(batch.inputs)[0]
        second = model(type(batch.inputs)(other, batch.inputs.layout))[0]
    assert not torch.equal(other, batch.inputs.ids)
    torch.testing.assert_close(first, second)


def test_mixers_of_all_of_a_sequence_do_as_well_as_attention():
    assert value("mixers-at-equal-budget", "right classes, attention") > 0.9
    assert value("mixers-at-equal-budget", "right classes, separable", control=True) < 0.8


def test_a_fourier_transform_is_that_of_numbers():
    """A change of the last token reaches every other one by a cosine of known size."""
    with_change = mixing.change_of_earlier(mixing.PARTS["Fourier"]())
    n, d = mixing._N, mixing.D
    delta = torch.zeros(n, d, dtype=torch.float64)
    delta[-1] = 1.0
    wanted = torch.fft.fft2(delta).real[:-1].abs().max().item()
    assert with_change == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("name", list(mixing.PARTS))
def test_what_is_said_of_parts_is_so(name):
    (row,) = [r for r in made("mixers-in-place-of-attention").table if r["part"] == name]
    causal = name.startswith("causal")
    assert (row["change of earlier tokens"] == 0) == causal
    assert (row["reads longer sequences"] == "no") == (name == "network along positions")
    part = mixing.PARTS[name]()
    assert row["parameters"] == sum(p.numel() for p in part.parameters())
    assert part(torch.zeros(mixing._N, mixing.D), Layout.of([mixing._N])).shape == (mixing._N, mixing.D)
