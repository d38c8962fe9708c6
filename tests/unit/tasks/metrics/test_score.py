import json
import math

import pytest

from heedful.errors import RequestError
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.metrics.score import Score, check_lengths

CASED = Score(
    "BLEU", 34.567, "nrefs:1|case:mixed|tok:13a", {"precisions": [60.0, 4.5], "bp": 1.0}, {"sentences": 7}
)


def test_to_dict_is_ready_for_json():
    plain = CASED.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert Score(**plain) == CASED


def test_what_is_not_finite_becomes_null():
    assert [Score("perplexity", value, "").to_dict()["value"] for value in (math.inf, math.nan)] == [
        None,
        None,
    ]


def test_lines_for_reading():
    assert CASED.lines() == [
        "BLEU 34.57",
        "  signature: nrefs:1|case:mixed|tok:13a",
        "  counts: 7 sentences",
        "  precisions: 60.00/4.5000",
        "  bp: 1.0000",
    ]


def test_tables_are_not_printed_and_the_undefined_is_named():
    score = Score(
        "accuracy", 0.5, "classes:2", {"confusion": [[1, 2], [3, 4]], "recall": None, "support": [3, 7]}
    )
    assert score.lines()[2:] == ["  recall: undefined", "  support: 3/7"]


def test_unequal_and_empty_sets_are_refused():
    with pytest.raises(RequestError, match=r"^2 hypotheses but 3 references: each needs its own$"):
        check_lengths(["a", "b"], ["a", "b", "c"], "hypotheses", "references")
    with pytest.raises(RequestError, match="nothing to score"):
        check_lengths([], [], "hypotheses", "references")


def test_a_score_is_found_by_its_name_or_as_the_metric_of_training():
    f1, bleu = Score("macro F1", 0.5, "a:1"), Score("BLEU", 30.0, "a:1")
    evaluation = Evaluation("test", [f1, bleu])
    assert evaluation["macro F1"] is evaluation["macro-f1"] is f1
    assert evaluation["BLEU"] is evaluation["bleu"] is bleu
    with pytest.raises(
        KeyError, match=r"no score 'Bleu' \(did you mean 'BLEU'\?\); expected one of macro F1"
    ):
        evaluation["Bleu"]


def test_a_score_is_used_like_its_value():
    score, other = Score("accuracy", 0.875, "a:1"), Score("accuracy", 0.5, "a:2")
    assert float(score) == 0.875
    assert f"{score:.2f}" == "0.88"
    assert f"{score}" == str(score)
    assert 0.8 < score <= 0.875 <= score < 1
    assert not score < 0.875
    assert other < score > other
    assert max(other, score) is score
    assert [*map(float, sorted([score, other]))] == [0.5, 0.875]
    assert score != 0.875
    with pytest.raises(TypeError, match="expected a number or a score, got a text"):
        score < "0.9"  # noqa: B015
    missing = Score("precision", math.nan, "")
    assert not any([missing < 1, missing > 0, missing <= 1, missing >= 0])
