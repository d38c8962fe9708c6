"""The quiz by the rule of the product, the passes' products counted by hand."""

import pytest
from sweep import Laws, made, value
from torch.utils._python_dispatch import _get_current_dispatch_mode

from heedful.lab import backward


class TestExperiments(Laws):
    family = "backward"


def test_the_quiz_by_the_rule_of_the_product():
    a, b, c, d = 3.0, 1.0, -4.0, 2.0
    e, f = a * c + b, c / d
    wanted = {"a": f * c, "b": f, "c": a * f + e / d, "d": -e * c / d**2, "e": f, "f": e}
    found = backward.quiz()
    assert found == pytest.approx(wanted)
    assert found["d"] == -11
    h = 1e-6
    numeric = ((e * c / (d + h)) - (e * c / (d - h))) / (2 * h)
    assert found["d"] == pytest.approx(numeric, rel=1e-6)
    assert {name for name, answer in backward.AS_PRINTED.items() if answer != found[name]} == {"d"}


def test_backward_takes_twice_the_products():
    d, n, layers = 256, 64, 2
    linear, products = 2 * n * 12 * d * d, 2 * 2 * n * n * d
    assert value("backward-cost", "forward") == layers * (linear + products)
    assert value("backward-cost", "backward") == 2 * layers * (linear + products)
    assert value("backward-cost", "operations backward to forward") == 2
    # Frozen weights need no g xᵀ; both factors of a product of attention still get their gradient.
    assert value("backward-cost", "backward", control=True) == layers * (linear + 2 * products)


def test_wall_times_stand_beside_counts_and_in_no_figure():
    for control in (False, True):
        outcome = made("backward-cost", control)
        assert [row["pass"] for row in outcome.table] == ["forward", "backward"]
        assert outcome.panels[-1].heights == {row["pass"]: row["ms"] for row in outcome.table}
        assert not any(each.unit == "ms" for each in outcome.measured)


def test_nothing_is_counted_while_a_pass_is_timed(monkeypatch):
    modes = []

    def milliseconds(work, given):
        work(given())
        modes.append(_get_current_dispatch_mode())
        return 1.0

    monkeypatch.setattr(backward, "milliseconds", milliseconds)
    outcome = backward._backward(weights=True, size="short")
    assert modes == [None, None]
    assert outcome.verdict == "holds"
