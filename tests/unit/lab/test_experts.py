"""Experts at equal operations: counts by formula, and losses."""

import math

import pytest
from sweep import Laws, hold_what_is_expected, made, value

from heedful.lab import experts


class TestExperiments(Laws):
    family = "experts"


def test_both_take_as_many_operations():
    for control in (False, True):
        hold_what_is_expected("experts-at-equal-operations", control, rel=1e-12)
    # Two of sixteen networks of 16 x 8 and 8 x 16, and a gate of 16 x 16.
    assert experts.operations(experts.networks()[experts.MANY]) == 2 * (2 * 2 * 16 * 8 + 16 * 16)


def test_parameters_are_those_of_all_experts():
    rows = {row["network"]: row["parameters"] for row in made("experts-at-equal-operations").table}
    d = experts.D
    assert rows[experts.ONE] == 2 * d * 24 + 24 + d
    assert rows[experts.MANY] == 16 * (2 * d * 8 + 8 + d) + 16 * d


def test_losses_differ_where_there_is_much_to_know():
    many, one = (
        value("experts-at-equal-operations", f"loss at the end, {name}")
        for name in (experts.MANY, experts.ONE)
    )
    assert many < 0.1 < 0.3 < one < math.log(experts.NAMES)
    for name in (experts.MANY, experts.ONE):
        few = value("experts-at-equal-operations", f"loss at the end, {name}", control=True)
        assert few == pytest.approx(0, abs=0.02)
