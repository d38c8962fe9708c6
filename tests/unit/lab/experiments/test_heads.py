"""Experiments on order and heads: what is exactly nothing, counts by formula, shares of variance."""

import pytest
from sweep import Laws, hold_what_is_expected, made, value

from heedful.lab.experiments import heads
from heedful.nn.attention.self_attention import SelfAttention


class TestExperiments(Laws):
    family = "heads"


# Order


@pytest.mark.parametrize("control", [False, True])
def test_what_is_expected_of_order_is_measured(control):
    hold_what_is_expected("permutation-invariant", control, abs=1e-4)


def test_all_but_one_reader_know_the_order():
    changes = {row["source of order"]: row["change when shuffled"] for row in made("order-blindness").table}
    assert changes.pop("nothing") < 1e-5
    assert len(changes) == 5
    assert min(changes.values()) > 1e-2


# Heads


@pytest.mark.parametrize("control", [False, True])
def test_what_is_expected_is_measured(control):
    hold_what_is_expected("heads-are-free", control, rel=1e-6)


def test_eight_full_heads_have_eight_times_the_parameters():
    assert value("heads-are-free", "parameters of 8 heads") == 1_048_576
    assert value("heads-are-free", "parameters of 8 heads", control=True) == 8 * 1_048_576


def test_one_head_leaves_half_and_two_leave_little():
    assert value("two-lookups", "not explained, one head") == pytest.approx(50, abs=5)
    assert value("two-lookups", "not explained, two heads") < 10
    assert value("two-lookups", "not explained, one head", control=True) < 10


def test_many_heads_share_the_width_that_one_has():
    one, two = (
        sum(p.numel() for p in SelfAttention(heads.FEATURES + heads.PLACES, h).parameters()) for h in (1, 2)
    )
    assert one == two == value("two-lookups", "parameters")
