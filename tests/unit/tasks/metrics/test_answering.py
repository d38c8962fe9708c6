"""Exact match and F1 of answers, by hand and beside a plain implementation."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.tasks.metrics.answering import answer_scores, is_exact, normalised, token_f1

WORDS = st.lists(
    st.sampled_from(["the", "a", "The", "cat", "cat.", "CAT", "an", "dog", "!", "theatre"]), max_size=7
)


@pytest.mark.parametrize(
    "answer, words",
    [
        ("The cat!", ["cat"]),
        ("a theatre, an ant", ["theatre", "ant"]),
        ("U.S.A.", ["usa"]),
        ("the", []),
        ("", []),
        ("caf\u00e9 \u2014 the \u00c4rger", ["caf\u00e9", "\u2014", "\u00e4rger"]),
        ("東京 Tower", ["東", "京", "tower"]),
    ],
)
def test_what_is_compared(answer, words):
    assert normalised(answer) == words


def plain(text):
    kept = "".join(sign for sign in text.lower() if sign not in set(string.punctuation))
    return [word for word in re.split(r"\s+", kept) if word not in ("a", "an", "the", "")]


@given(WORDS, WORDS)
def test_f1_is_the_harmonic_mean_of_precision_and_recall_of_words(first, second):
    answer, truth = " ".join(first), " ".join(second)
    found, wanted = plain(answer), plain(truth)
    assert is_exact(answer, truth) == (found == wanted)
    if not found or not wanted:
        assert token_f1(answer, truth) == (found == wanted)
        return
    left = Counter(wanted)
    common = 0
    for word in found:
        common += left[word] > 0
        left[word] -= 1
    precision, recall = common / len(found), common / len(wanted)
    expected = 2 * precision * recall / (precision + recall) if common else 0.0
    assert token_f1(answer, truth) == pytest.approx(expected)


def test_the_nearest_of_several_right_answers_counts():
    truths = [["Denver", "the Denver Broncos", "Denver Broncos"], ["", "nobody"], ["1990"]]
    exact, f1 = answer_scores(["Broncos of Denver", "nobody", "in 1990"], truths)
    assert exact.value == pytest.approx(1 / 3)
    assert f1.value == pytest.approx((2 * 2 / 5 + 1 + 2 / 3) / 3)
    assert exact.signature == "norm:squad|references:1-3"
    assert exact.counts == {"questions": 3, "answerable": 3}


def test_questions_without_an_answer_are_also_told_apart():
    exact, f1 = answer_scores(["the cat", "", "a red dog", "x"], [["cat"], [""], ["dog"], [""]])
    assert (exact.name, exact.value, exact.details) == (
        "exact match",
        0.5,
        {"answerable": 0.5, "unanswerable": 0.5},
    )
    assert f1.value == pytest.approx((1 + 1 + 2 / 3 + 0) / 4)
    assert f1.counts == {"questions": 4, "answerable": 2}
    assert answer_scores(["x"], [["x"]])[0].details == {"answerable": 1.0, "unanswerable": None}


@pytest.mark.parametrize("answers, truths", [([], []), (["a"], [["a"], ["b"]])])
def test_wrong_requests(answers, truths):
    with pytest.raises(RequestError):
        answer_scores(answers, truths)


def test_answers_in_a_script_without_spaces_are_compared_by_characters():
    assert token_f1("東京都", "東京") == pytest.approx(0.8)
    assert token_f1("大阪", "東京") == 0
    assert is_exact("東京 都", "東京都")


def test_answers_are_compared_in_nfc():
    assert is_exact("cafe\u0301", "caf\u00e9")
    assert token_f1("か\u3099く", "がく") == 1
