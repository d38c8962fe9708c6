"""Scores of runs on the same rows: which are compared, on which rows, and how that is shown."""

import pytest

from heedful.errors import RequestError
from heedful.runs.significance import compare_scores, method, tables
from heedful.tasks.evaluation import Evaluation
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.statistics import mean


def evaluation(values, locations, *, signature="s", name="accuracy", tested=True):
    statistics = (lambda: mean(values)) if tested else None
    score = Score(name, sum(values) / len(values), signature, statistics=statistics)
    return Evaluation("test", [score], locations=locations)


ROWS = [f"file:{i}" for i in range(40)]
FEWER, MORE = [i % 4 == 0 for i in range(40)], [i % 4 != 3 for i in range(40)]


def test_each_other_run_is_compared_with_the_first():
    runs = {"a": evaluation(FEWER, ROWS), "b": evaluation(MORE, ROWS), "c": evaluation(FEWER, ROWS)}
    (first, second), notes = compare_scores(runs)
    assert notes == []
    assert (first.first, first.second, first.values) == ("a", "b", (0.25, 0.75))
    assert first.test.is_significant
    assert (second.second, second.test.p) == ("c", 1)
    (heading, rows), (_, other_rows) = tables([first, second])
    assert heading == "test (40 rows): b compared with a"
    assert rows[1][:4] == ["accuracy", "0.2500", "0.7500", "+0.5000"]
    assert rows[1][-1] == "significant"
    assert other_rows[1][-1] == "not significant at 0.05"
    assert "2,000 samples each, seed 1" in method([first])


def test_rows_that_one_run_left_out_do_not_count():
    left_out = [i for i in range(40) if i not in (3, 7)]
    other = evaluation([FEWER[i] for i in left_out], [ROWS[i] for i in left_out])
    (found,), (note,) = compare_scores({"a": evaluation(FEWER, ROWS), "b": other})
    assert (found.test.rows, found.test.difference) == (38, 0)
    assert note == "test: 2 rows are left out, which a and b did not both score"
    with pytest.raises(RequestError, match="a and b scored no row in common"):
        compare_scores({"a": evaluation([1], ["x:1"]), "b": evaluation([1], ["y:1"])})


def test_other_signatures_are_not_compared_and_metrics_without_statistics_not_tested():
    runs = {"a": evaluation(FEWER, ROWS), "b": evaluation(FEWER, ROWS, signature="t")}
    found, (note,) = compare_scores(runs)
    assert found == []
    assert "accuracy of a and b is not comparable: the signatures differ (s; t)" in note
    (plain,), _ = compare_scores({name: evaluation(FEWER, ROWS, tested=False) for name in "ab"})
    assert plain.test is None
    assert plain.to_dict()["test"] is None
    ((_, rows),) = tables([plain])
    assert rows[1][-1] == "no test"
    assert method([plain]) is None
    assert compare_scores({"a": evaluation(FEWER, ROWS), "b": evaluation(FEWER, ROWS, name="F1")}) == ([], [])
