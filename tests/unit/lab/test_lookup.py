"""Experiments on lookups: figures by formula."""

import pytest
from sweep import Laws, curve, hold_what_is_expected, made, value


class TestExperiments(Laws):
    family = "lookup"


def test_what_is_expected_is_measured():
    hold_what_is_expected("soft-lookup", rel=1e-6, abs=1e-4)
    for control in (False, True):
        hold_what_is_expected("parameter-free", control, rel=0.1, abs=0.1)


def test_the_colder_the_nearer_to_the_best_key():
    coldness, differences = curve("soft-lookup", 0, "")
    assert list(coldness) == sorted(coldness)
    assert differences[-1] < 1e-6 < differences[0]


def test_an_unnormalised_sum_grows_with_the_table():
    sizes = {row["times"]: row["size"] for row in made("summary-without-count", True).table}
    assert all(size == pytest.approx(times, rel=1e-5) for times, size in sizes.items())
    assert value("summary-without-count", "size of the answer") == pytest.approx(1, rel=1e-5)
