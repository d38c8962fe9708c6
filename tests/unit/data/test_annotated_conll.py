"""Sentences with a word a line: what is a word, what a sentence, and what is said of other lines."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.data.sources import SourceConfig, open_source
from heedful.errors import DataError

NEWS = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
# SYM O O

\t

Peter NNP B-NP B-PER
"""

UNIVERSAL = """# sent_id = 1
# text = Im Haus
1-2\tIm\t_\t_
1\tin\tin\tADP
2\tdem\tder\tDET
3\tHaus im\tHaus\tNOUN
3.1\tnichts\t_\tX

1\t#\t#\tSYM
"""


def opened(root, **config):
    source = TypeAdapter(SourceConfig).validate_python({"kind": "conll", "paths": "x.conll", **config})
    return [(located.row, str(located.location)) for located in open_source(source, root)]


@pytest.mark.parametrize("name", ["x.conll", "x.conll.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_words_and_tags_of_news(tmp_path, name, end):
    content = NEWS.replace("\n", end).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert opened(tmp_path, paths=name, columns={"words": 0, "tags": 3}) == [
        ({"words": ["EU", "rejects", "#"], "tags": ["B-ORG", "O", "O"]}, f"{name}:3"),
        ({"words": ["Peter"], "tags": ["B-PER"]}, f"{name}:9"),
    ]


def test_negative_columns_count_from_the_end(tmp_path):
    (tmp_path / "x.conll").write_text("EU NNP B-ORG\nrejects O\n\nPeter x y B-PER\n")
    assert [row for row, _ in opened(tmp_path, columns={"words": 0, "tags": -1})] == [
        {"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"words": ["Peter"], "tags": ["B-PER"]},
    ]
    with pytest.raises(
        DataError, match=r"x\.conll:2: field number -3 \(from the end\), words, .*, got 2 fields"
    ):
        opened(tmp_path, columns={"words": -3, "tags": 0})


def test_comments_ranges_and_empty_nodes_are_skipped(tmp_path):
    (tmp_path / "x.conll").write_text(UNIVERSAL)
    assert opened(tmp_path, columns={"words": 1, "tags": 3}, universal=True) == [
        ({"words": ["in", "dem", "Haus im"], "tags": ["ADP", "DET", "NOUN"]}, "x.conll:4"),
        ({"words": ["#"], "tags": ["SYM"]}, "x.conll:9"),
    ]


def test_files_end_sentences(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(f"{name} X")
    found = opened(tmp_path, paths=["a", "b"], columns={"words": 0, "tags": 1})
    assert found == [({"words": [name], "tags": ["X"]}, f"{name}:1") for name in "ab"]


@given(
    st.lists(st.lists(st.tuples(*[st.sampled_from(["a", "#", "é", "1-2", "O"])] * 2), min_size=1), min_size=1)
)
def test_what_is_written_is_read(tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("x")
    written = "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)
    (folder / "x.conll").write_text(written, encoding="utf-8")
    found = [row for row, _ in opened(folder, columns={"words": 0, "tags": 1})]
    assert [list(zip(row["words"], row["tags"], strict=True)) for row in found] == sentences


def test_a_line_with_too_few_fields_is_named(tmp_path):
    (tmp_path / "x.conll").write_text("a X\nb\n")
    with pytest.raises(
        DataError, match=r"x\.conll:2: field number 1 \(from 0\), \w+, is required, got 1 field"
    ):
        opened(tmp_path, columns={"words": 0, "tags": 1})


def test_words_in_the_universal_format_separated_by_spaces(tmp_path):
    (tmp_path / "x.conll").write_text("1 in in ADP\n")
    with pytest.raises(
        DataError, match=r"x\.conll:1: .* got 1 field; fields of CoNLL-U are separated by tabs$"
    ):
        opened(tmp_path, columns={"words": 1, "tags": 3}, universal=True)


def test_a_missing_file_is_reported_at_once(tmp_path):
    source = TypeAdapter(SourceConfig).validate_python(
        {"kind": "conll", "paths": "x", "columns": {"words": 0}}
    )
    with pytest.raises(DataError, match="x: no such file"):
        open_source(source, tmp_path)
