"""Rows of several sources, one source after another, through real files."""

import pytest
from pydantic import ValidationError

from heedful.config import Config
from heedful.data.sources import SourceConfig, open_source
from heedful.errors import DataError


class Holder(Config):
    """For reading a source as recipes do."""

    source: SourceConfig


def opened(folder, sources, **more):
    config = Holder.model_validate({"source": {"kind": "chain", "sources": sources, **more}}).source
    return open_source(config, folder)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.tsv").write_text("0\tlong one\n1\tlong two\n0\tlong three\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"said": "four"}\n{"said": "five"}\n', encoding="utf-8")
    return tmp_path


TABLE = {"kind": "tsv", "paths": "a.tsv", "columns": {"text": 1}}
LINES = {"kind": "jsonl", "paths": "b.jsonl", "columns": {"text": "said"}}


def test_sources_are_concatenated_and_rows_keep_their_locations(folder):
    found = list(opened(folder, [LINES, TABLE, LINES]))
    assert [row.row for row in found] == [
        {"text": text} for text in ("four", "five", "long one", "long two", "long three", "four", "five")
    ]
    places = [str(row.location) for row in found]
    assert places == ["b.jsonl:1", "b.jsonl:2", "a.tsv:1", "a.tsv:2", "a.tsv:3", "b.jsonl:1", "b.jsonl:2"]


def test_each_source_and_the_whole_may_give_a_part(folder):
    found = opened(folder, [{**TABLE, "skip": 1, "limit": 1}, LINES], skip=1, limit=1)
    assert [row.row["text"] for row in found] == ["four"]


def test_a_beside_source_can_be_in_a_chain(folder):
    labels = {"kind": "tsv", "paths": "a.tsv", "columns": {"label": 0}}
    found = list(opened(folder, [{"kind": "beside", "sources": [TABLE, labels]}, LINES]))
    assert [set(row.row) for row in found] == [{"text", "label"}] * 3 + [{"text"}] * 2


def test_a_missing_file_of_the_last_source_is_found_when_the_chain_is_opened(folder):
    with pytest.raises(DataError, match=r"c\.jsonl"):
        opened(folder, [TABLE, {**LINES, "paths": "c.jsonl"}])


def test_a_chain_requires_two_sources(folder):
    with pytest.raises(ValidationError, match="at least 2 items"):
        opened(folder, [TABLE])
