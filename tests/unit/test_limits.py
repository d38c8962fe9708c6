"""Cells of rows and inputs have a size, which is checked before anything is done with them."""

import pytest

from heedful import limits
from heedful.data.lines import Location
from heedful.errors import DataError
from heedful.limits import too_large
from heedful.tasks.inputs.labels import LONGEST_LABEL, collect_labels


def test_texts_and_lists_have_limits():
    longest, most = limits.LONGEST_TEXT, limits.MOST_ITEMS
    assert (
        too_large("x" * longest) is too_large(["x"] * most) is too_large(["x" * 10] * (longest // 10)) is None
    )
    assert too_large("x" * (longest + 1)) == (
        "has 1,000,001 characters, more than 1,000,000; split it into several, or remove it"
    )
    assert too_large(["x"] * (most + 1)) == "has 100,001 entries, more than 100,000; split it into several"
    assert too_large(["x" * 11] * (longest // 10)) is not None
    assert too_large("abc", 2) is not None


@pytest.mark.parametrize("cell", [None, 3, b"x" * 10**7, {"a": 1}])
def test_other_values_are_not_measured(cell):
    assert too_large(cell) is None


def located(*labels):
    return [(label, Location("a.tsv", number)) for number, label in enumerate(labels, 1)]


def test_a_label_is_no_text():
    assert collect_labels(located("no", "y" * LONGEST_LABEL), None) == ("no", "y" * LONGEST_LABEL)
    with pytest.raises(
        DataError, match=r"a\.tsv:2: a label must have at most 1,000 characters, got 1,001 \('y"
    ):
        collect_labels(located("no", "y" * (LONGEST_LABEL + 1)), None)


def test_there_are_not_too_many_labels(monkeypatch):
    monkeypatch.setattr("heedful.tasks.inputs.labels.MOST_LABELS", 3)
    assert collect_labels(located("a", "b", "c", "a"), None) == ("a", "b", "c")
    with pytest.raises(DataError, match=r"a\.tsv:5: more than 3 different labels, such as 'd'"):
        collect_labels(located("a", "b", "c", "a", "d"), None)
