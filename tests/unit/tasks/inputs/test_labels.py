"""Labels: which there are, their numbers, and answers made of probabilities."""

import json

import pytest
import torch

from heedful.data.sources import Location
from heedful.data.spreadsheets import cell_text
from heedful.errors import DataError, RequestError
from heedful.tasks.inputs.labels import (
    LabelsConfig,
    check_known,
    collect_labels,
    first_labels,
    known_label,
    label_index,
    label_prediction,
    placeholder_note,
)


def labelled(*labels):
    return [(label, Location("f", n)) for n, label in enumerate(labels, 1)]


def test_those_that_occur_are_taken_sorted_and_those_given_in_their_order():
    assert collect_labels(labelled("b", "a", "b"), None) == ("a", "b")
    assert collect_labels(labelled("b", "a", "b"), ["b", "a"]) == ("b", "a")


@pytest.mark.parametrize(
    "labels, given, message",
    [
        (["a", "a"], None, r"at least two different labels are needed, got 1: \['a'\]"),
        ([], None, "at least two different labels are needed, got 0"),
        (["a", ""], None, r"at least two different labels are needed, got 1: \['a'\]"),
        (["a", "b"], ["a", "c"], "f:2: the label 'b' is not in task.labels"),
        (["a", "b"], ["a", "b", "c"], "no training row has the label 'c'"),
    ],
)
def test_what_cannot_be_learned_is_refused(labels, given, message):
    with pytest.raises(DataError, match=message):
        collect_labels(labelled(*labels), given)


def test_a_label_has_the_number_of_its_place():
    assert [label_index(label, ("b", "a"), Location("f", 1)) for label in "ab"] == [1, 0]
    with pytest.raises(DataError, match=r"f:3: unknown label 'goood'.*'good'"):
        label_index("goood", ("bad", "good"), Location("f", 3))


@pytest.mark.parametrize(
    ("labels", "are_placeholders"),
    [
        (("LABEL_0", "LABEL_1"), True),
        (("LABEL_1", "LABEL_0"), False),
        (("LABEL_0", "good"), False),
        (("bad", "good"), False),
    ],
)
def test_labels_without_names_are_noticed_wherever_a_label_is_unknown(labels, are_placeholders):
    with pytest.raises(DataError) as of_row:
        label_index("1", labels, Location("f", 3))
    with pytest.raises(RequestError) as of_setting:
        check_known(["1"], labels, "x")
    for raised in (of_row, of_setting):
        assert ("config.json" in str(raised.value)) == are_placeholders


def test_labels_that_a_task_does_not_have_need_no_names():
    assert placeholder_note(()) == ""


def test_the_answer_is_the_most_probable_label_and_then_the_next():
    log_probs = torch.tensor([0.2, 0.5, 0.2, 0.1]).log()
    found = label_prediction(log_probs, ("a", "b", "c", "d"), 3)
    assert found.text == "b"
    assert found.score == log_probs[1].item()
    assert [p.text for p in found.alternatives] == ["a", "c"]
    assert label_prediction(log_probs, ("a", "b", "c", "d")).alternatives == []


def test_long_lists_are_cut():
    assert first_labels("ab") == "a, b"
    assert first_labels([str(n) for n in range(11)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..."


def test_rows_without_a_label_are_left_out():
    assert collect_labels(labelled("b", "", "a"), None) == ("a", "b")
    assert collect_labels(labelled("b", "", "a"), ["b", "a"]) == ("b", "a")


def test_labels_that_are_numbers_are_sorted_as_numbers():
    assert collect_labels(labelled("10", "9", "-1", "1.5"), None) == ("-1", "1.5", "9", "10")
    assert collect_labels(labelled("10", "9", "x"), None) == ("10", "9", "x")
    assert collect_labels(labelled("7", "007"), None) == ("007", "7")


@pytest.mark.parametrize(
    ("label", "known", "expected"),
    [
        ("1.0", ("1", "2"), "1"),
        ("01", ("1", "2"), "1"),
        ("7", ("007", "008"), "007"),
        ("7.0", ("007", "7"), "7.0"),  # which of both?
        ("7", ("007", "7"), "7"),
        ("3", ("1", "2"), "3"),
        ("cafe\u0301 ", ("café", "x"), "café"),
        ("nan", ("1", "2"), "nan"),
        ("1_0", ("10", "2"), "1_0"),
        ("١", ("1", "2"), "١"),
        ("1e999", ("1", "2"), "1e999"),
        ("True", ("0", "1"), "True"),
        ("true", ("True", "true"), "true"),
        ("TRUE", ("True", "true"), "TRUE"),  # which of both?
        ("Positive", ("positive", "negative"), "Positive"),
    ],
)
def test_a_label_is_found_as_training_has_it(label, known, expected):
    assert known_label(label, known) == expected


@pytest.mark.parametrize(
    "known", [("false", "true"), ("False", "True"), ("FALSE", "TRUE")], ids=["json", "pandas", "excel"]
)
def test_truth_values_are_the_same_however_a_program_writes_them(known):
    written = [json.dumps(True), str(True), cell_text(True)]
    assert {known_label(label, known) for label in written} == {known[1]}
    assert {known_label(label, known) for label in (json.dumps(False), str(False), "FALSE")} == {known[0]}


def test_labels_of_settings_are_compared_as_those_of_rows():
    assert LabelsConfig(labels=["cafe\u0301", " the\u0301"]).labels == ["café", "thé"]
    assert check_known(["cafe\u0301", "1.0"], ["café", "1"]) == ["café", "1"]
    with pytest.raises(RequestError, match=r"'сat' \(did you mean 'cat', which differs in U\+0441"):
        check_known(["сat"], ["cat", "dog"])  # the first letter is Cyrillic
