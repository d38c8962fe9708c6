import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.tasks.metrics.classification import (
    accuracy,
    classification_scores,
    confusion,
    label_set_scores,
    macro_f1,
    micro_f1,
    precision_recall_f1,
)

# Of 4 cats 2 were found, 1 taken for a dog and 1 for a cow; of 2 dogs both; of 1 cow none (a dog).
TRUTHS = ["cat", "cat", "cat", "cat", "dog", "dog", "cow"]
PREDICTIONS = ["cat", "dog", "cow", "cat", "dog", "dog", "dog"]
CLASSES = ["cat", "cow", "dog"]
TABLE = [[2, 1, 1], [0, 0, 1], [0, 0, 2]]


def test_by_hand():
    table = confusion(PREDICTIONS, TRUTHS, CLASSES)
    assert table.tolist() == TABLE
    assert accuracy(table) == 4 / 7
    precision, recall, f1 = precision_recall_f1(table)
    assert precision.tolist() == [1.0, 0.0, 0.5]
    assert recall.tolist() == [0.5, 0.0, 1.0]
    assert f1.tolist() == pytest.approx([2 / 3, 0.0, 2 / 3])
    assert macro_f1(table) == pytest.approx(4 / 9)
    assert micro_f1(table) == pytest.approx(4 / 7)


def test_a_class_that_never_occurs_is_left_out_of_the_mean():
    table = confusion(PREDICTIONS, TRUTHS, [*CLASSES, "eel"])
    assert macro_f1(table) == pytest.approx(4 / 9)
    precision, recall, f1 = precision_recall_f1(table)
    assert np.isnan([precision[3], recall[3], f1[3]]).all()


def test_a_class_that_is_only_predicted_counts_as_zero():
    table = confusion(["a", "b"], ["a", "a"], ["a", "b"])
    assert macro_f1(table) == pytest.approx((2 / 3 + 0) / 2)


labels = st.sampled_from("pqrst")


@given(st.lists(st.tuples(labels, labels), min_size=1, max_size=31))
def test_the_counts_are_those_of_a_plain_loop(pairs):
    predictions, truths = [p for p, _ in pairs], [t for _, t in pairs]
    table = confusion(predictions, truths, "pqrst")
    loop = [[sum((t, p) == pair for p, t in pairs) for pair in [(t, p) for p in "pqrst"]] for t in "pqrst"]
    assert table.tolist() == loop
    right = sum(p == t for p, t in pairs)
    assert accuracy(table) == right / len(pairs)
    assert micro_f1(table) == pytest.approx(right / len(pairs))


def test_scores_with_their_details():
    found = classification_scores(PREDICTIONS, TRUTHS)
    assert {name: score.value for name, score in found.items()} == {
        "accuracy": 4 / 7,
        "macro_f1": pytest.approx(4 / 9),
        "micro_f1": pytest.approx(4 / 7),
    }
    details = found["accuracy"].details
    assert details["classes"] == CLASSES
    assert details["confusion"] == TABLE
    assert details["support"] == [4, 1, 2]
    assert found["accuracy"].counts == {"examples": 7, "classes": 3}
    assert json.loads(json.dumps(found["accuracy"].to_dict())) == found["accuracy"].to_dict()


def test_undefined_details_are_null():
    details = classification_scores([0, 0], [0, 1], [0, 1, 2])["accuracy"].details
    assert details["precision"] == [0.5, None, None]
    assert details["recall"] == [1.0, 0.0, None]
    assert details["f1"] == [pytest.approx(2 / 3), 0.0, None]
    assert details["classes"] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("predictions", "truths", "classes", "message"),
    [
        (["a"], ["a", "b"], None, "1 predictions but 2 labels"),
        ([], [], None, "nothing to score"),
        (["a", "catt"], ["a", "a"], ["a", "cat"], r"prediction 2: 'catt' is not .* \(did you mean 'cat'\?\)"),
        (["a", "a"], ["a", "zzz"], ["a"], "label 2: 'zzz' is not one of the classes"),
        (["a"], ["a"], ["a", "a"], "classes must not have duplicates"),
    ],
)
def test_wrong_requests(predictions, truths, classes, message):
    with pytest.raises(RequestError, match=message):
        classification_scores(predictions, truths, classes)


def test_sets_of_labels_by_hand():
    """a: tp 2, fp 1, fn 0; b: tp 1, fn 1; c: fn 1; d occurs nowhere."""
    found = [{"a", "b"}, {"a"}, {"a"}, set()]
    right = [{"a", "b"}, {"a", "b"}, {"c"}, set()]
    micro, macro, exact = label_set_scores(found, right, ["a", "b", "c", "d"])
    assert micro.value == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert macro.value == pytest.approx((4 / 5 + 2 / 3 + 0) / 3)
    assert exact.value == 2 / 4
    assert micro.details["f1"] == [pytest.approx(4 / 5), pytest.approx(2 / 3), 0.0, None]
    assert micro.details["support"] == [2, 2, 1, 0]
    assert micro.counts == {"examples": 4, "classes": 4, "labels": 5}


@given(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=20), st.data())
def test_sets_of_one_label_score_like_labels(truths, data):
    predictions = data.draw(st.lists(st.sampled_from(CLASSES), min_size=len(truths), max_size=len(truths)))
    micro, macro, exact = label_set_scores([{p} for p in predictions], [{t} for t in truths], CLASSES)
    single = classification_scores(predictions, truths, CLASSES)
    assert micro.value == pytest.approx(single["micro_f1"].value)
    assert macro.value == pytest.approx(single["macro_f1"].value)
    assert exact.value == pytest.approx(single["accuracy"].value)


def test_nothing_found_and_nothing_right_has_no_f1():
    micro, macro, exact = label_set_scores([set(), set()], [set(), set()], ["a", "b"])
    assert np.isnan(micro.value)
    assert np.isnan(macro.value)
    assert exact.value == 1.0
