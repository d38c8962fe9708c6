"""Rules: what they compute, and that they refuse everything else."""

import math

import pytest

from heedful.lab.rules import check, evaluate

VALUES = {"power": 1.05, "last": 0.1, "first": 2.0, "found": [3, 1, 2], "rates": {"SGD": 0.5}, "no": math.nan}


@pytest.mark.parametrize(
    "rule, value",
    [
        ("abs(power - 1) < 0.1 and last < first / 10", True),
        ("abs(power - 1) < 0.01 or not last > first", True),
        ("0 < last < first < 1", False),
        ("max(found) - min(found) == 2", True),
        ("found[0] + 2 ** 2 * -1", -1),
        ('rates["SGD"] >= 0.5', True),
        ("all(found) and any(found) and len(found) == 3", True),
        ("sum(found) != round(5.7)", False),
        ("first if last > 1 else last", 0.1),
        ("no < 1 or no > 1 or no == no", False),
        ("'a' == 'b'", False),
    ],
)
def test_the_value_of_a_rule(rule, value):
    assert evaluate(rule, VALUES) == value


def test_what_does_not_matter_is_not_evaluated():
    assert evaluate("first > 1 or found[7]", VALUES)
    assert not evaluate("first < 1 and found[7]", VALUES)


@pytest.mark.parametrize(
    "rule",
    [
        "__import__('os').system('ls')",
        "first.real",
        "open('x')",
        "abs.__class__",
        "(lambda: 1)()",
        "[x for x in found]",
        "max(found, key=abs)",
        "max(*found)",
        "{1: 2}",
        "f'{first}'",
        "found[0:1]",
        "(y := 1)",
        "1 @ 2",
        "1 // 2",
        "~1",
        "first is last",
        "1 in found",
        "b'bytes'",
        "None",
        "1j",
        "await first",
    ],
)
def test_everything_else_is_refused(rule):
    for attempt in (check, lambda rule: evaluate(rule, VALUES)):
        with pytest.raises(ValueError, match="a rule must not contain"):
            attempt(rule)


@pytest.mark.parametrize("rule", ["", "first = 1", "import os", "first <", "1; 2"])
def test_what_is_no_expression_is_refused(rule):
    with pytest.raises(ValueError, match="expected an expression"):
        check(rule)


def test_an_unknown_value_is_named():
    with pytest.raises(ValueError, match="unknown value 'middle'"):
        evaluate("first < middle", VALUES)
