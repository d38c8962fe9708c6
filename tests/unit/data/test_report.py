"""The filter keeps what it promises and the report says what became of every row."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from heedful.data.lines import LocatedRow, Location
from heedful.data.report import ColumnCounts, DataReport, Filter, keep
from heedful.errors import DataError


def located(*rows):
    return [
        LocatedRow({"source": source, "target": target}, Location("train.en", line))
        for line, (source, target) in enumerate(rows, start=1)
    ]


ROWS = located(
    ([5, 6, 7], [5, 1]),
    ([], [5]),
    ([5], []),
    ([5, 6, 7, 8, 9], [5, 6]),
    ([5], [5, 6, 7, 1]),
    ([1, 1], [1, 5, 6]),
    ([], []),
)


def run(rows, unknown=None, **settings):
    report = DataReport(unknown=unknown or {})
    return [(dict(row), str(where)) for row, where in keep(rows, Filter(**settings), report)], report


def test_truncation_by_hand():
    kept, report = run(ROWS, unknown={"source": 1, "target": 1}, max_length=3)
    assert kept == [
        ({"source": [5, 6, 7], "target": [5, 1]}, "train.en:1"),
        ({"source": [5, 6, 7], "target": [5, 6]}, "train.en:4"),
        ({"source": [5], "target": [5, 6, 7]}, "train.en:5"),
        ({"source": [1, 1], "target": [1, 5, 6]}, "train.en:6"),
    ]
    assert report.to_dict() == {
        "rows": 7,
        "kept": 4,
        "dropped": {
            "empty source": {"count": 2, "examples": ["train.en:2", "train.en:7"]},
            "empty target": {"count": 1, "examples": ["train.en:3"]},
        },
        "truncated": {
            "source longer than 3": {"count": 1, "examples": ["train.en:4"]},
            "target longer than 3": {"count": 1, "examples": ["train.en:5"]},
        },
        "columns": {
            "source": {
                "tokens": 9,
                "unknown": 2,
                "unknown_rate": 2 / 9,
                "length": {"min": 1, "mean": 2.25, "p50": 2, "p90": 3, "p99": 3, "max": 3},
            },
            "target": {
                "tokens": 10,
                "unknown": 2,
                "unknown_rate": 0.2,
                "length": {"min": 2, "mean": 2.5, "p50": 2, "p90": 3, "p99": 3, "max": 3},
            },
        },
    }


def test_dropping_what_is_too_long():
    kept, report = run(ROWS, max_length=3, too_long="drop")
    assert [where for _, where in kept] == ["train.en:1", "train.en:6"]
    assert {reason: tally.count for reason, tally in report.dropped.items()} == {
        "empty source": 2,
        "empty target": 1,
        "source longer than 3": 1,
        "target longer than 3": 1,
    }
    assert report.truncated == {}


def test_the_ratio_is_that_of_the_row_before_truncation():
    kept, report = run(ROWS, max_length=2, max_ratio=2.0)
    assert [where for _, where in kept] == ["train.en:1", "train.en:6"]
    assert report.dropped["length ratio above 2"].count == 2
    assert [str(w) for w in report.dropped["length ratio above 2"].examples] == ["train.en:4", "train.en:5"]


def test_limits_by_column():
    kept, _ = run(ROWS, max_length={"target": 1})
    assert [(len(row["source"]), len(row["target"])) for row, _ in kept] == [(3, 1), (5, 1), (1, 1), (2, 1)]


def test_stopping_at_a_row_that_is_too_long_or_empty():
    with pytest.raises(DataError, match=r"train\.en:4: source has 5 tokens, more than max_length 4"):
        run(ROWS, max_length=4, too_long="error")
    with pytest.raises(DataError, match=r"train\.en:2: source is empty"):
        run(ROWS, empty="error")


def test_a_length_equal_to_the_limit_is_not_too_long():
    kept, report = run(located(([5] * 3, [5] * 3)), max_length=3, too_long="error")
    assert len(kept) == 1
    assert report.truncated == {}


@pytest.mark.parametrize("rows", [[], located(([], [5]))])
def test_no_row_left_is_an_error(rows):
    with pytest.raises(DataError, match=r"^no rows left after filtering\n  rows: ") as error:
        run(rows)
    others = str(error.value).splitlines()[1:]
    assert all(line.startswith("  ") for line in others)  # they go on with the first, which gets a key


def test_report_lines():
    _, report = run(ROWS * 3, unknown={"target": 1}, max_length=3)
    text = report.lines()
    assert text[0] == "rows: 21 read, 12 kept, 9 dropped"
    assert (
        "  dropped, empty source: 6 (train.en:2, train.en:7, train.en:2, train.en:7, train.en:2, ...)" in text
    )
    assert "  truncated, source longer than 3: 3 (train.en:4, train.en:4, train.en:4)" in text
    assert text[-2:] == [
        "  source: 27 tokens; length min 1, mean 2.25, p50 2, p90 3, p99 3, max 3",
        "  target: 30 tokens; length min 2, mean 2.5, p50 2, p90 3, p99 3, max 3; 20.00% unknown",
    ]


def test_arrays_of_ids_count_as_lists_do():
    rows = located(([5, 1, 7], [1]))
    arrays = [LocatedRow({c: np.array(ids) for c, ids in row.items()}, where) for row, where in rows]
    reports = [run(r, unknown={"source": 1, "target": 1}, max_length=2)[1] for r in (rows, arrays)]
    assert json.dumps(reports[0].to_dict()) == json.dumps(reports[1].to_dict())


@given(
    lengths=st.lists(st.integers(0, 23), min_size=1, max_size=41),
    percent=st.sampled_from([1, 50, 90, 99, 100]),
)
def test_percentiles_are_numpys_nearest_rank(lengths, percent):
    counts = ColumnCounts()
    counts.lengths.update(lengths)
    assert counts.percentile(percent) == np.percentile(lengths, percent, method="inverted_cdf")


@settings(max_examples=100)
@given(
    rows=st.lists(st.tuples(*[st.lists(st.integers(0, 5), max_size=7)] * 2), min_size=1, max_size=29),
    limit=st.none() | st.integers(1, 5),
    too_long=st.sampled_from(["truncate", "drop"]),
    ratio=st.none() | st.floats(1, 3),
)
def test_every_row_is_counted_and_kept_rows_are_usable(rows, limit, too_long, ratio):
    report = DataReport()
    chosen = Filter(max_length=limit, too_long=too_long, max_ratio=ratio)
    kept = []
    try:
        for row in keep(located(*rows), chosen, report):
            kept.append(row)
    except DataError:
        assert kept == []
    assert report.rows == len(rows)
    assert report.kept == len(kept)
    assert report.kept + sum(tally.count for tally in report.dropped.values()) == len(rows)
    for row, where in kept:
        original = rows[where.line - 1]
        assert row == {c: ids[:limit] for c, ids in zip(("source", "target"), original, strict=True)}
        assert min(map(len, original)) > 0
        assert ratio is None or max(map(len, original)) <= ratio * min(map(len, original))
        assert too_long == "truncate" or limit is None or max(map(len, original)) <= limit


@pytest.mark.parametrize(
    "settings",
    [{"max_length": 0}, {"too_long": "split"}, {"empty": "keep"}, {"max_ratio": 0.5}, {"longest": 3}],
)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        Filter(**settings)


def test_columns_beside_are_passed_through_unchecked():
    rows = [
        LocatedRow({"source": [5, 6, 7], "links": []}, Location("t", 1)),
        LocatedRow({"source": [5]}, Location("t", 2)),
    ]
    report = DataReport()
    kept = list(keep(rows, Filter(max_length=2, max_ratio=1.5), report, unchecked_columns=["links"]))
    assert [dict(each.row) for each in kept] == [{"source": [5, 6], "links": []}, {"source": [5]}]
    assert set(report.columns) == {"source"}


def test_notes_are_counted_and_reported():
    report = DataReport()
    assert "noted" not in report.to_dict()
    report.note("strange", Location("t", 7))
    assert report.to_dict()["noted"] == {"strange": {"count": 1, "examples": ["t:7"]}}
    assert "  noted, strange: 1 (t:7)" in report.lines()


def test_the_longest_row_is_found_as_it_was_cut():
    _, report = run(ROWS, max_length={"target": 3})
    assert str(report.longest) == "longest source: train.en:4, 5 tokens"
    assert str(report.columns["target"].longest) == "longest target: train.en:5, 3 tokens"
    assert DataReport().longest is None
