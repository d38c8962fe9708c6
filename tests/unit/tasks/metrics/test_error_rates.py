"""The character error rate, against plain recursion and by hand."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.sources import LocatedRow, Location
from heedful.errors import RequestError
from heedful.recipes.schema import EvaluationConfig
from heedful.tasks.evaluation import PredictedRows, custom_scores
from heedful.tasks.metrics.error_rates import CharacterErrorRate, edit_distance
from heedful.tasks.prediction import Prediction

texts = st.text("abcé", max_size=9)


def by_recursion(first, second):
    @cache
    def distance(i, j):
        if not i or not j:
            return i + j
        same = first[i - 1] == second[j - 1]
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (not same))

    return distance(len(first), len(second))


@given(texts, texts)
def test_the_distance_is_that_of_the_recursion(first, second):
    assert edit_distance(first, second) == by_recursion(first, second)


@given(texts, texts, texts)
def test_the_distance_is_a_metric(a, b, c):
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, b) == edit_distance(b, a)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_by_hand():
    """kitten, sitting: 3 of 7; cafe\\u0301 in two code points is café; nothing for "abc": 3 of 3."""
    rows = [{"target": "sitting"}, {"target": "caf\u00e9"}, {"target": "abc"}]
    score = CharacterErrorRate()(rows, [Prediction("kitten"), Prediction("cafe\u0301"), Prediction("")])
    assert score.value == pytest.approx(6 / 14)
    assert score.counts == {"texts": 3, "characters": 14, "edits": 6}
    assert score.signature == "column:target|case:mixed|norm:nfc"


def test_case_is_ignored_on_request_and_the_nearest_reference_counts():
    rows = [{"references": ["xyzabc", "Ab"]}]
    assert CharacterErrorRate("references")(rows, [Prediction("ab")]).value == 1 / 2
    assert CharacterErrorRate("references", lowercase=True)(rows, [Prediction("ab")]).value == 0.0


def test_refusals_name_the_column():
    with pytest.raises(RequestError, match=r"column=target is not in the data, which have \['caption'\]"):
        CharacterErrorRate()([{"caption": "a"}], [Prediction("a")])
    rows = [{"references": ["a"]}, {"references": []}]
    with pytest.raises(RequestError, match="row 2 has no reference in column=references"):
        CharacterErrorRate("references")(rows, [Prediction("a"), Prediction("b")])
    with pytest.raises(RequestError, match="all references in column=target are empty"):
        CharacterErrorRate()([{"target": ""}], [Prediction("a")])


def test_a_recipe_names_it_with_its_settings():
    kind = "heedful.tasks.metrics.error_rates:CharacterErrorRate"
    config = EvaluationConfig.model_validate({"metrics": [{"kind": kind, "lowercase": True}]})
    rows = [LocatedRow({"target": "AB"}, Location("test", 1))]
    (score,) = custom_scores(config, PredictedRows(rows, [Prediction("ab")], {}))
    assert (score.name, score.value) == ("CER", 0.0)
    with pytest.raises(
        ValueError, match="expected an import path of your own part, got one of Python or of heedful"
    ):
        EvaluationConfig.model_validate({"metrics": ["heedful.runs.train:train_run"]})
