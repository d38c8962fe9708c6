"""Experiments on positions: numbers of the paper, formulas as printed, and the measures by hand."""

import math

import pytest
import torch
from sweep import Laws, hold_what_is_expected, made, value

from heedful.lab.experiments import positions
from heedful.lab.seeds import seeded
from heedful.lab.tiny import plain_stack, relative_difference
from heedful.nn.layout import Layout
from heedful.nn.positions import Added, SinusoidalPositions


class TestExperiments(Laws):
    family = "positions"


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("name", ["wavelengths", "first-position", "position-distances"])
def test_what_is_expected_is_measured(name, control):
    hold_what_is_expected(name, control, rel=1e-6, abs=1e-4)


def test_what_is_expected_of_other_positions_is_measured():
    hold_what_is_expected("one-hot-distances", abs=1e-9)
    hold_what_is_expected("constant-positions", abs=1e-4)


def test_the_first_attention_of_a_post_norm_stack_sees_constant_positions():
    with seeded(0):
        stack, added = plain_stack(32, 1, causal=False), Added(positions.ConstantPositions(32))
        x, order, layout = torch.randn(12, 32), torch.randperm(12), Layout.of([12])
    with torch.no_grad():
        before, after = (stack(added(tokens, layout.positions), layout) for tokens in (x, x[order]))
    assert relative_difference(after, before[order]) > 0.01


def test_a_rotation_shifts():
    hold_what_is_expected("position-shift", abs=1e-4)


def test_the_longest_wavelength_is_60611():
    (row,) = [row for row in made("wavelengths").table if row["base of"] == "S0 and the paper"]
    assert round(row["longest wavelength"]) == 60_611
    assert "60,611" in made("wavelengths").statement


def test_the_first_offset_with_a_smaller_distance_is_44():
    assert value("position-distances", "first offset") == 44


@pytest.mark.parametrize("d", [8, 16])
def test_s0s_formula_is_built_as_printed(d):
    rows = positions.as_printed(6, d)
    assert rows.shape == (6, d + 2)
    for j in range(6):
        for i in range(d // 2 + 1):
            assert rows[j, 2 * i].item() == pytest.approx(math.sin(j / 10_000 ** (2 * i / d)), abs=1e-12)
            assert rows[j, 2 * i + 1].item() == pytest.approx(
                math.cos(j / 10_000 ** ((2 * i + 1) / d)), abs=1e-12
            )


def test_columns_and_products_of_positions():
    assert value("sinusoid-columns", "columns") == 514
    assert value("sinusoid-columns", "columns", control=True) == 512
    wanted = sum(math.cos(16 / 10_000 ** (2 * i / 512)) for i in range(256))
    assert value("sinusoid-columns", "p_0 · p_16", control=True) == pytest.approx(wanted, rel=1e-6)
    assert value("sinusoid-columns", "spread", control=True) < 1e-6 < value("sinusoid-columns", "spread")


def test_unevenness_is_seen():
    distances = positions.distances_of(SinusoidalPositions(8), 20)
    assert positions._largest_spread(distances) < 1e-9
    distances[3, 7] += 0.25
    assert positions._largest_spread(distances) == pytest.approx(0.25)


@pytest.mark.parametrize("values, fall", [([0, 1, 2], None), ([0, 1, 1], None), ([0, 2, 1, 3, 0], 2)])
def test_the_first_fall(values, fall):
    assert positions._first_decrease(values) == fall
