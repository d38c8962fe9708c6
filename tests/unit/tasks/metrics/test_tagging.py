"""Scores of words and of spans; spans beside an independent reading of the conventions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.tasks.metrics.spans import SCHEMES
from heedful.tasks.metrics.tagging import span_scores, tagging_scores

BIO = SCHEMES["bio"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def plain_spans(tags):
    """Word by word: does a span end before this word, does one begin at it?"""
    found, begun, before = set(), None, ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        ends = before[0] in "BI" and (prefix in ("B", "O") or name != before[1])
        begins = prefix == "B" or (prefix == "I" and (before[0] == "O" or name != before[1]))
        if ends:
            found.add((before[1], begun, place))
        if begins:
            begun = place
        before = (prefix, name)
    return found


def plain_f1(predictions, truths):
    sides = [
        {(i, *s) for i, tags in enumerate(side) for s in plain_spans(tags)} for side in (predictions, truths)
    ]
    right, found, wanted = len(sides[0] & sides[1]), len(sides[0]), len(sides[1])
    precision, recall = right / found if found else 0.0, right / wanted if wanted else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if right else 0.0


sentences = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), max_size=9), min_size=1
)


@given(sentences)
def test_spans_are_those_of_the_plain_reading(pairs):
    predictions, truths = ([[pair[k] for pair in sentence] for sentence in pairs] for k in (0, 1))
    for tags in (*predictions, *truths):
        spans = BIO.spans(tags)
        assert set(spans) == plain_spans(tags)
        assert spans == sorted(set(spans), key=lambda span: span[1])
    values = [score.value for score in span_scores(predictions, truths, BIO)]
    assert values == pytest.approx(plain_f1(predictions, truths))


@pytest.mark.parametrize(
    "tags, spans",
    [
        ("O B-PER I-PER O", [("PER", 1, 3)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("I-PER I-PER", [("PER", 0, 2)]),
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("I-PER O I-PER", [("PER", 0, 1), ("PER", 2, 3)]),
        ("", []),
    ],
)
def test_spans_by_hand(tags, spans):
    assert BIO.spans(tags.split()) == spans


def test_scores_by_hand():
    truths = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    predictions = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "B-LOC"]]
    found = {score.name: score for score in tagging_scores(predictions, truths, TAGS, scheme=BIO)}
    assert found["accuracy"].value == 4 / 6
    assert found["accuracy"].counts == {"words": 6, "sentences": 2, "classes": 5}
    assert found["accuracy"].details["classes"] == TAGS
    assert found["span precision"].value == 2 / 4
    assert found["span recall"].value == 2 / 3
    assert found["span F1"].value == pytest.approx(4 / 7)
    details = found["span F1"].details
    assert details["classes"] == ["LOC", "PER"]
    assert (details["f1"], details["support"]) == ([1.0, 0.0], [2, 1])


def test_tags_without_a_scheme_have_no_scores_of_spans():
    names = [score.name for score in tagging_scores([["a"]], [["b"]], ["a", "b"])]
    assert names == ["accuracy", "macro F1", "micro F1"]


def test_no_words_cannot_be_scored():
    with pytest.raises(RequestError, match="nothing to score"):
        tagging_scores([[]], [[]], TAGS)
