"""Text reports for the terminal."""

import math

import pytest
from made_up import made_up

from heedful.lab.text import aligned, listing, number, paragraph, report


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0"),
        (1048576.0, "1,048,576"),
        (-3.0, "-3"),
        (60611.23, "60,611"),
        (0.123456, "0.1235"),
        (0.0123456, "0.01235"),
        (1.5e-7, "1.50e-07"),
        (-2.5e-9, "-2.50e-09"),
        (3e15, "3.00e+15"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (math.nan, "nan"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_all_of_an_outcome_is_told():
    text = report(made_up().run("short"))
    for part in (
        "made-up: The title of made-up & more",
        'claim     One "thing" <is> another.',
        "source    S0, somewhere; A & B 2017",
        "60,611 positions",
        "nan",
        "verdict   holds\n",
        "It is <so>.",
        "one & only",
    ):
        assert part in text
    (line,) = [line for line in text.splitlines() if "ratio" in line]
    assert line.split() == ["ratio", "<a", "&", "b>", "0.1235", "0.125"]


def test_a_question_is_told_as_one():
    text = report(made_up(asked=True).run("short"))
    assert 'claim     One "thing" <is> another. (A question.)' in text


def test_a_control_says_what_is_changed():
    text = report(made_up().run("short", control=True))
    assert "made-up (control)" in text
    assert "control   The other way about." in text
    assert "verdict   is wrong\n" in text


def test_another_verdict_than_expected_is_pointed_out():
    text = report(made_up(comes=("is wrong", "holds")).run("short"))
    assert "verdict   is wrong (expected: holds)" in text


def test_lines_are_wrapped():
    lines = paragraph("claim", "word " * 30, 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("  claim     word word")
    assert len(lines) > 1
    assert all(line.startswith(" " * 12 + "word") for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == "claim" + " word" * 30


def test_numbers_stand_to_the_right_under_their_names():
    first, second, third = aligned([{"name": "a", "n": 5.0}, {"name": "longer", "n": 1234.0}])
    assert first == "  name        n"
    assert second == "  a           5"
    assert third == "  longer  1,234"


def test_the_list_has_a_line_for_each():
    lines = listing([made_up(), made_up("another-one")]).splitlines()
    assert [line.split()[0] for line in lines] == ["made-up", "another-one"]
    assert all("items 7, 11" in line for line in lines)
