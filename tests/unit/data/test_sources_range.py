"""Some rows of a source: the same for every kind."""

import json

import pytest

from heedful.data.sources import BuiltInSource, FilesSource, JsonlSource, TextSource, TsvSource, open_source
from heedful.errors import DataError

N = 7


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(N)))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"a": str(n)}) + "\n" for n in range(N)))
    return tmp_path


def sources(**part):
    yield FilesSource(columns={"a": "a.txt"}, **part)
    yield TsvSource(paths="a.txt", columns={"a": 0}, **part)
    yield JsonlSource(paths="a.jsonl", columns={"a": "a"}, **part)
    yield TextSource(paths="a.txt", documents="line", **part)


@pytest.mark.parametrize("skip, limit", [(0, None), (0, 3), (2, None), (2, 3), (5, 99), (6, 1)])
def test_rows_are_those_of_a_slice(folder, skip, limit):
    expected = [str(n) for n in range(N)][skip:][:limit]
    for source in sources(skip=skip, limit=limit):
        assert [next(iter(row.row.values())) for row in open_source(source, folder)] == expected


def test_rows_keep_their_places(folder):
    (row,) = open_source(FilesSource(columns={"a": "a.txt"}, skip=3, limit=1), folder)
    assert str(row.location) == "a.txt:4"


@pytest.mark.parametrize("skip", [N, N + 5])
def test_nothing_left_is_an_error(folder, skip):
    for source in sources(skip=skip):
        with pytest.raises(DataError, match=f"skip: {skip} leaves no rows: there are only 7 rows"):
            list(open_source(source, folder))


def test_a_generated_corpus_has_parts_too(folder):
    whole = [row.row for row in open_source(BuiltInSource(name="reverse", split="valid", limit=5), folder)]
    later = [
        row.row for row in open_source(BuiltInSource(name="reverse", split="valid", skip=2, limit=3), folder)
    ]
    assert later == whole[2:]


def test_a_missing_file_is_reported_at_once(folder):
    with pytest.raises(DataError, match="no such file"):
        open_source(FilesSource(columns={"a": "b.txt"}, skip=1), folder)
