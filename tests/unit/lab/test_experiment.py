"""Tables and names of what experiments measure."""

import pytest

from heedful.lab.experiment import measured_each, named_each, table_of


def test_a_table_has_a_row_for_each_place_of_its_columns():
    shares = {"a": 0.5, "b": 0.25}
    rows = table_of({"name": shares, "share": shares.values(), "n": map(len, ("x", "yz"))})
    assert rows == [{"name": "a", "share": 0.5, "n": 1}, {"name": "b", "share": 0.25, "n": 2}]
    assert [*rows[0]] == ["name", "share", "n"]


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        table_of({"a": [1, 2], "b": [1]})


def test_names_are_put_into_the_pattern():
    assert named_each("ms, {}", {"RNN": 1.0}) == {"ms, RNN": 1.0}
    found = measured_each("parameters of {}", {"a": 3.0, "b": 5.0}, "M", {"b": 4.0})
    assert [*found] == ["parameters of a", "parameters of b"]
    assert [(each.name, each.value, each.unit, each.expected) for each in found.values()] == [
        ("parameters of a", 3.0, "M", None),
        ("parameters of b", 5.0, "M", 4.0),
    ]
