"""Claims: which verdict their rules give, and which statement; what is refused."""

import pytest

from heedful.errors import RequestError
from heedful.lab.claims import Claim
from heedful.lab.experiment import Experiment, Measured, Series
from heedful.recipes.problems import validate
from heedful.recipes.yaml import read_yaml

TEXT = """
title: A title
claim: One thing is another.
source: S0
items: [3, 4]
control: The other way about.
statement:
  - It is {share:.1f} %.
  - {if: others > 1, text: "There are {others}."}
  - So it is.
verdicts:
  - {verdict: holds, if: share > 50}
  - {verdict: holds with conditions, if: share > 20, statement: "Nearly {share}"}
  - {verdict: is wrong}
"""


def claim(text=TEXT):
    return validate(read_yaml(text, "claims.yaml"), Claim)


def outcome(share, others=0):
    panels = ("a panel",)
    values = {"share": Measured("the share", share, "%"), "others": others}
    series = Series(values, [{"a": 1}], panels)
    return Experiment("made-up", claim(), lambda size: series, ({}, {})).run("short")


def test_the_first_rule_that_is_true_decides():
    verdicts = [outcome(share).verdict for share in (60, 30, 10)]
    assert verdicts == ["holds", "holds with conditions", "is wrong"]


def test_statements_are_those_of_the_verdict_with_values_and_parts():
    assert outcome(60).statement == "It is 60.0 %. So it is."
    assert outcome(10, 7).statement == "It is 10.0 %. There are 7. So it is."
    assert outcome(30).statement == "Nearly 30"


def test_readers_see_what_is_measured():
    found = outcome(60, 7)
    assert [each.name for each in found.measured] == ["the share"]
    assert (found.table, found.panels) == ([{"a": 1}], ("a panel",))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("share > 50", "share.real", "must not contain"),
        ("share > 50", "share >", "expected an expression"),
        ("  - {verdict: is wrong}\n", "", "and the last none"),
        ("{verdict: is wrong}", "{verdict: is wrong}\n  - {verdict: holds}", "all cases but the last"),
        ("{verdict: is wrong}", "{verdict: wrong}", "is wrong"),
        ("title: A title", "titel: A title", "titel"),
    ],
)
def test_a_claim_that_cannot_be_decided_is_refused(old, new, message):
    with pytest.raises(RequestError, match=message):
        claim(TEXT.replace(old, new))


def test_a_statement_is_required():
    start, end = TEXT.index("statement:"), TEXT.index("verdicts:")
    with pytest.raises(RequestError, match="statement is required"):
        claim(TEXT[:start] + TEXT[end:])
