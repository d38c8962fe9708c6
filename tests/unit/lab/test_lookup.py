"""Experiments on lookups: figures by formula."""

import pytest
from sweep import Laws, curve, hold_what_is_expected, made, value

from heedful.lab import lookup


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


def test_the_query_decides_whose_value_comes_out():
    name = "summary-without-count"
    assert value(name, "answers that are nearest") > 90
    for row in made(name, True).table:  # all answers are one
        assert row["nearest to the one asked for"] == pytest.approx(1 / row["values"])
    for control in (False, True):
        hold_what_is_expected(name, control, abs=1e-5)


def test_a_sum_grows_with_the_table_and_a_mean_does_not():
    times, sizes = curve("summary-without-count", 1, "sum, not divided")
    assert sizes == pytest.approx(times)
    _, sizes = curve("summary-without-count", 1, "weighted mean")
    assert sizes == pytest.approx([1] * len(times))


@pytest.mark.parametrize(
    "selective, forgets, verdict",
    [(True, True, "holds with conditions"), (True, False, "holds"), (False, True, "is wrong")],
)
def test_the_verdict_on_a_summary(selective, forgets, verdict):
    assert lookup._of_a_summary(selective, forgets) == verdict


def test_of_weights_that_are_not_divided_a_summary_is_counted(monkeypatch):
    """What is measured of repeated rows can come out the other way."""
    monkeypatch.setattr(lookup, "_looked_up", lambda q, k, v: (q @ k.mT).exp() @ v / (q @ k.mT).exp().max())
    outcome = lookup._summarised("short", asking=True)
    assert outcome.measured[3].value > 1
    assert outcome.verdict != "holds with conditions"
