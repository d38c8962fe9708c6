"""Sentences with a word a line: what is a word, a sentence, a comment, and how files are recognised."""

import gzip
from itertools import dropwhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.data.annotated import looks_like_conll
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
        opened(tmp_path, columns={"words": -3, "tags": 1})


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


def after_hashes(sentence):
    """The words that are surely no comments; the tags of others may occur in no other line."""
    return [*dropwhile(lambda pair: pair[0].startswith("#"), sentence)]


@given(
    st.lists(st.lists(st.tuples(*[st.sampled_from(["a", "#", "é", "1-2", "O"])] * 2), min_size=1), min_size=1)
)
def test_what_is_written_is_read(tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("x")
    written = "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)
    (folder / "x.conll").write_text(written, encoding="utf-8")
    found = [row for row, _ in opened(folder, columns={"words": 0, "tags": 1})]
    tags = {tag for sentence in sentences for _, tag in after_hashes(sentence)} | {"#"}
    if all(sentence[0][0] != "#" or sentence[0][1] in tags for sentence in sentences) and len(tags) > 1:
        assert [list(zip(row["words"], row["tags"], strict=True)) for row in found] == sentences


def test_a_line_with_too_few_fields_is_named(tmp_path):
    (tmp_path / "x.conll").write_text("a X\nb\n")
    with pytest.raises(
        DataError, match=r"x\.conll:2: field number 1 \(from 0\), \w+, is required, got 1 field"
    ):
        opened(tmp_path, columns={"words": 0, "tags": 1})


def test_words_alone_are_read_by_the_option_that_the_message_names(tmp_path):
    (tmp_path / "x.conll").write_text("a\nb\n\nc\n")
    with pytest.raises(DataError, match=r"x\.conll:1: .* got 1 field; .*: --column words=0$"):
        opened(tmp_path, columns={"words": 1})
    assert [row["words"] for row, _ in opened(tmp_path, columns={"words": 0})] == [["a", "b"], ["c"]]
    with pytest.raises(DataError, match=r"got 1 field$"):
        opened(tmp_path, columns={"words": 1, "tags": 2})
    (tmp_path / "x.conll").write_text("a NN X\n")
    with pytest.raises(DataError, match=r"got 3 fields; if another field has the tags, .*: --column tags=N$"):
        opened(tmp_path, columns={"words": 0, "tags": 3})


def test_words_in_the_universal_format_separated_by_spaces(tmp_path):
    (tmp_path / "x.conll").write_text("1 in in ADP\n")
    with pytest.raises(
        DataError, match=r"x\.conll:1: .* got 1 field; .* separated by tabs; .* remove `universal: true`"
    ):
        opened(tmp_path, columns={"words": 1, "tags": 3}, universal=True)


def test_a_missing_file_is_reported_at_once(tmp_path):
    source = TypeAdapter(SourceConfig).validate_python(
        {"kind": "conll", "paths": "x", "columns": {"words": 0}}
    )
    with pytest.raises(DataError, match="x: no such file"):
        open_source(source, tmp_path)


# Fields ----------------------------------------------------------------------------------------------------


def test_lines_with_tabs_are_split_at_tabs_alone(tmp_path):
    lines = ["New York\tB-LOC", "10\u00a0000 O", "a\u2028b\tO", " Bonn \t B-LOC ", "x   O  "]
    (tmp_path / "x.conll").write_text("\n".join(lines), encoding="utf-8")
    row = {
        "words": ["New York", "10\u00a0000", "a\u2028b", "Bonn", "x"],
        "tags": ["B-LOC", "O", "O", "B-LOC", "O"],
    }
    assert opened(tmp_path, columns={"words": 0, "tags": -1}) == [(row, "x.conll:1")]


@pytest.mark.parametrize(
    "line, column", [("\tO", "words"), ("a\t", "tags"), (" \tO", "words"), ("\u00a0\tO", "words")]
)
@pytest.mark.parametrize("universal", [False, True])
def test_an_empty_field_is_an_error_that_its_remedies_mend(tmp_path, line, column, universal):
    def read():
        return opened(tmp_path, columns={"words": 0, "tags": 1}, universal=universal)

    (tmp_path / "x.conll").write_text(f"b\tX\n{line}\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=rf"^x\.conll:2: {column} \(field number \d\) is empty; write its value"
    ):
        read()
    (tmp_path / "x.conll").write_text("b\tX\n")
    assert read()
    (tmp_path / "x.conll").write_text("b\tX\n_\tO\n")
    assert read() == [({"words": ["b", "_"], "tags": ["X", "O"]}, "x.conll:1")]


def test_a_field_for_two_columns_is_an_error(tmp_path):
    (tmp_path / "x.conll").write_text("a X\nb\n")
    with pytest.raises(
        DataError,
        match=r"^x\.conll:2: words \(number 0\) and tags \(number -1\) are the same field, got 1 field; add ",
    ):
        opened(tmp_path, columns={"words": 0, "tags": -1})
    with pytest.raises(DataError, match=r"same field, got 1 field; .* remove `universal: true`"):
        opened(tmp_path, columns={"words": 0, "tags": -1}, universal=True)
    assert opened(tmp_path, columns={"words": 0, "tags": 0}), "the same number twice is not an accident"


def test_lines_of_white_space_end_sentences(tmp_path):
    for blank in ("", " ", "\t\t", "\u3000", " \t\u00a0"):
        (tmp_path / "x.conll").write_text(f"a\tX\n{blank}\nb\tX\n{blank}\n{blank}\n", encoding="utf-8")
        assert len(opened(tmp_path, columns={"words": 0, "tags": 1})) == 2


def test_a_range_of_the_universal_format_is_not_read_as_a_word(tmp_path):
    rest = "\t_" * 8
    (tmp_path / "x.conll").write_text(f"1-2\tim{rest}\n1\tin{rest}\n2\tdem{rest}\n")
    with pytest.raises(
        DataError, match=r"^x\.conll:1: in CoNLL-U, 1-2 is not a word, .* set `universal: true`"
    ):
        opened(tmp_path, columns={"words": 1, "tags": 3})
    (row,) = opened(tmp_path, columns={"words": 1, "tags": 3}, universal=True)
    assert row[0] == {"words": ["in", "dem"], "tags": ["_", "_"]}
    (row,) = opened(tmp_path, columns={"words": 0, "tags": 1})
    assert row[0]["words"] == ["1-2", "1", "2"], "the words of another format"


# Comments --------------------------------------------------------------------------------------------------

HASHES = {
    "# id 7\na O\n# SYM\n#tag O\n": (["a", "#", "#tag"], [1]),
    "# id x\na _ O\n#tag _ O\n": (["a", "#tag"], [1]),
    "# _ #\na _ O\n": (["#", "a"], []),
    "#love HT\na V\n": (["#love", "a"], []),
    "#begin document (x);\na _ O\n": (["a"], [1]),
    "#love _ HT\na _ V\n": (["#love", "a"], []),
    "# id 1\n# SYM O\n# _ x\na _ O\n": (["#", "#", "a"], [1]),
    "-DOCSTART- _ O\n# id 1\na _ O\n": (["a"], [2]),
    "# x O\na _ O\n#tag _ O\n": (["#", "a", "#tag"], []),
    "# id 7 x=y\na _ _ O\n\n# id 8 x=y\nb _ _ O\n": (["a", "b"], [1, 4]),
    "# SYM _ O\na _ _ O\n\n# SYM _ O\nb _ _ O\n": (["#", "a", "#", "b"], []),
    "# id 7\n\na _ _ O\n\n#tag _ _ O\n\n#end document\n": (["a", "#tag"], [1, 7]),
    "#\thttp://x [2009-10-17]\n1\ta\tO\tO\n": (["1"], [1]),
    "#love O\n#peace O\n": (["#love", "#peace"], []),
    "# newdoc id = 3\na\tO\n# x\tO\n": (["a", "# x"], [1]),
}


@pytest.mark.parametrize("content", HASHES)
def test_lines_that_begin_with_a_hash(tmp_path, content):
    (tmp_path / "x.conll").write_text(content)
    source = TypeAdapter(SourceConfig).validate_python(
        {"kind": "conll", "paths": "x.conll", "columns": {"words": 0, "tags": -1}}
    )
    rows = [row.row for row in open_source(source, tmp_path)]
    found = [word for row in rows for word in row["words"]], [c.line for row in rows for c in row.comments]
    assert found == HASHES[content]


def test_the_setting_decides_about_comments(tmp_path):
    (tmp_path / "x.conll").write_text("# id\na O\n#tag O\n")

    def words(comments):
        return opened(tmp_path, columns={"words": 0, "tags": 1}, comments=comments)[0][0]["words"]

    assert words("never") == ["#", "a", "#tag"]
    assert words("always") == ["a"]
    assert words("auto") == ["a", "#tag"]
    with pytest.raises(ValueError, match="comments=never is not supported with universal=true"):
        opened(tmp_path, columns={"words": 0, "tags": 1}, comments="never", universal=True)


# Recognising a file ----------------------------------------------------------------------------------------

CONLL = [
    NEWS,
    "Nora B-PER\nsleeps O\n. O\n\n",
    "# id 7\nNora B-PER\nsleeps O\n\n",
    "New York\tB-LOC\nsleeps\tO\n\nBonn\tB-LOC\n",
    "the DET\ndog NOUN\nbarks VERB\n\n",
    "今天\tO\n北京\tS-LOC\n\n",
    "# sent_id = 1\n1\tin\tin\tADP\t_\n2\tdem\tder\tDET\t_\n\n",
    "a _ _ B-person\nb _ _ O\n\n",
    "the article\ndog noun\nbarks verb\n\nthe article\ncat noun\nsleeps verb\n",
    "# id 7\nNora\nsleeps\n\n# id 8\nBonn\n\n",
]
OTHERS = [
    "Good morning\nThank you\n\nSee you\nBye bye\n",
    "A man sleeps.\n\nA dog barks.\n\n",
    "A man sleeps .\nA dog barks .\n\nTwo men run .\nA cat sits .\n",
    "今天 天气\n很 好\n\n你 好\n",
    "fine film\tpos\nbad film\tneg\n\n",
    "A very good film indeed\tPOS\nA bad film , sadly\tNEG\n\n",
    "Nora B-PER\n\nBonn B-LOC\n\n",
    "Nora B-PER\nsleeps O\n",
    "Nora\nsleeps\n\n",
    "Nora B-PER\nsleeps\n\n",
    "Nora\n\nBonn\n",
    "Nora\nBonn\nsleeps\n",
    "",
    "\n\n",
    "# a\n# b\n\n",
]


@pytest.mark.parametrize("content", CONLL)
def test_files_that_look_like_conll(content):
    assert looks_like_conll(content.split("\n"))


@pytest.mark.parametrize("content", OTHERS)
def test_other_files_do_not(content):
    assert not looks_like_conll(content.removesuffix("\n").split("\n"))
