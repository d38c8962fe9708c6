"""Rows of several sources side by side, through real files."""

import pytest

from heedful.config import Config
from heedful.data.sources import SourceConfig, open_source
from heedful.errors import DataError


class Holder(Config):
    """For reading a source as recipes do."""

    source: SourceConfig


def rows(folder, sources, **more):
    config = Holder.model_validate({"source": {"kind": "beside", "sources": sources, **more}}).source
    return list(open_source(config, folder))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.tsv").write_text("World\tlong one\nSport\tlong two\nWorld\tlong three\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "short.txt").write_text("one\ntwo\n", encoding="utf-8")
    return tmp_path


TABLE = {"kind": "tsv", "paths": "a.tsv", "columns": {"source": 1}}
TITLES = {"kind": "files", "columns": {"target": "b.txt"}}


def test_row_n_has_the_columns_of_row_n_of_every_source(folder):
    found = rows(folder, [TABLE, TITLES])
    assert [row.row for row in found] == [
        {"source": "long one", "target": "one"},
        {"source": "long two", "target": "two"},
        {"source": "long three", "target": "three"},
    ]
    assert [str(row.location) for row in found] == ["a.tsv:1", "a.tsv:2", "a.tsv:3"]


def test_each_source_and_the_whole_may_give_a_part(folder):
    parts = [{**TABLE, "skip": 1}, {**TITLES, "limit": 2}]
    assert [row.row["source"] + "/" + row.row["target"] for row in rows(folder, parts)] == [
        "long two/one",
        "long three/two",
    ]
    assert [row.row["target"] for row in rows(folder, [TABLE, TITLES], skip=1, limit=1)] == ["two"]


def test_sources_of_different_length_are_refused(folder):
    short = {"kind": "files", "columns": {"target": "short.txt"}}
    with pytest.raises(DataError, match=r"source 2 \(files\) ends after 2"):
        rows(folder, [TABLE, short])


def test_a_column_may_be_in_only_one_source(folder):
    with pytest.raises(DataError, match=r"b\.txt:1: column 'source' is also in another source"):
        rows(folder, [TABLE, {"kind": "files", "columns": {"source": "b.txt"}}])


def test_a_missing_file_is_found_when_the_source_is_opened(folder):
    config = Holder.model_validate(
        {"source": {"kind": "beside", "sources": [TABLE, {"kind": "files", "columns": {"target": "c.txt"}}]}}
    ).source
    with pytest.raises(DataError, match=r"c\.txt"):
        open_source(config, folder)
