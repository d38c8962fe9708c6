"""Experiments on order: what is exactly nothing is nothing."""

import pytest
from sweep import Laws, hold_what_is_expected, made


class TestExperiments(Laws):
    family = "order"


@pytest.mark.parametrize("control", [False, True])
def test_what_is_expected_is_measured(control):
    hold_what_is_expected("permutation-invariant", control, abs=1e-4)


def test_all_but_one_reader_know_the_order():
    changes = {
        row["what tells the order"]: row["change when shuffled"] for row in made("order-blindness").table
    }
    assert changes.pop("nothing") < 1e-5
    assert len(changes) == 5
    assert min(changes.values()) > 1e-2
