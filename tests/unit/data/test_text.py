"""Running text: files and folders, what one document is, and what is said of files that cannot be read."""

import gzip
import os
import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from heedful.data.delimited import TsvSource
from heedful.data.lines import File, read_text
from heedful.data.sources import SourceConfig, open_source
from heedful.errors import DataError
from heedful.runs.reading import read_recipe


def documents(root, paths, **options):
    config = TypeAdapter(SourceConfig).validate_python({"kind": "text", "paths": paths, **options})
    return [(located.row["text"], str(located.location)) for located in open_source(config, root)]


@pytest.fixture
def write(tmp_path):
    def _write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
        return tmp_path

    return _write


@pytest.mark.parametrize("text", ["a", "a\n", "\n", "a\n\nb", " a \n\n", "x\u2028y\x0b\x85\n", "\r", "a\rb"])
@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz"])
def test_a_file_is_one_document_to_the_character(write, text, name):
    assert documents(write(name, text), name) == [(text, f"{name}:1")]


def test_line_ends_of_other_systems_and_a_mark_of_byte_order_are_dropped(write):
    assert documents(write("t", "\ufeffa\r\nb\r\r\n\r\n"), "t") == [("a\nb\r\n\n", "t:1")]


def test_a_document_a_line(write):
    root = write("t", "one\n\n two \nlast")
    assert documents(root, "t", documents="line") == [
        ("one", "t:1"),
        ("", "t:2"),
        (" two ", "t:3"),
        ("last", "t:4"),
    ]


@pytest.mark.parametrize("end", ["", "\n", "\n\n \n"])
def test_documents_between_blank_lines(write, end):
    root = write("t", f"\n\none\n two\n \t\n\nthree{end}")
    assert documents(root, "t", documents="blank-lines") == [("one\n two", "t:3"), ("three", "t:7")]


ARTICLES = " \n = One = \n \n a = b \n = not one = \n = = Part = = \n \n c \n = Two = \n \n d \n"
TITLE = r" = [^=\n]+ = \n \n"


def test_documents_begin_where_the_pattern_matches(write):
    root = write("t", ARTICLES)
    first, second = ARTICLES[: ARTICLES.index(" = Two")], ARTICLES[ARTICLES.index(" = Two") :]
    assert documents(root, "t", begins=TITLE) == [(first, "t:1"), (second, "t:9")]
    write("t", "before \n" + ARTICLES)
    assert documents(root, "t", begins=TITLE) == [
        ("before \n \n", "t:1"),
        (first[2:], "t:3"),
        (second, "t:10"),
    ]
    assert documents(root, "t", begins=TITLE, skip=1, limit=1) == [(first[2:], "t:3")]


@pytest.mark.parametrize(
    ("text", "begins", "wanted"),
    [
        ("#a\n#b", "#", ["#a\n", "#b"]),
        ("a#\nb#", "#", ["a#\nb#"]),  # at the beginning of a line, and nowhere else
        ("#a\r\n#b\r\n", "#", ["#a\n", "#b\n"]),
        ("\n\n", "#", ["\n\n"]),
        ("a\nb\n\n", "", None),
        ("a\nB\nc\n", "(?i)b$", ["a\n", "B\nc\n"]),
        ("a\nb\n", "(?<=a\n)b|a", ["a\n", "b\n"]),
        ("a\nb\n\n", ".*", ["a\n", "b\n", "\n"]),
    ],
)
def test_splitting_a_file_drops_no_text(write, text, begins, wanted):
    root = write("t.gz", text)
    if wanted is None:
        with pytest.raises(ValidationError, match="at least 1 character"):
            documents(root, "t.gz", begins=begins)
        return
    assert [found for found, _ in documents(root, "t.gz", begins=begins)] == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"begins": "(="}, r"begins\n.*'\(=' is not a valid regular expression: missing \), unterminated"),
        ({"begins": "=", "documents": "line"}, "begins requires documents=file, got documents=line"),
    ],
)
def test_invalid_patterns_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(SourceConfig).validate_python({"kind": "text", "paths": "t", **options})


@pytest.mark.skipif("HEEDFUL_DATA" not in os.environ, reason="HEEDFUL_DATA is not set")
@pytest.mark.parametrize(("split", "n"), [("train", 600), ("valid", 60), ("test", 60)])
def test_the_articles_of_wikitext_are_as_many_as_published(split, n):
    """By the very pattern of the recipe (sizes: Merity et al. 2017, table 1)."""
    data = read_recipe("wikitext2-masked")[0].data
    source = data.test["test"] if split == "test" else getattr(data, split)
    found = [located.row["text"] for located in open_source(source, Path())]
    assert len(found) == n
    assert all(re.match(r"\s* = [^=]", text) for text in found)
    whole = source.model_copy(update={"begins": None})
    assert "".join(found) == next(open_source(whole, Path())).row["text"]


def test_several_files_and_folders_in_their_order(write):
    for name in ("b/2.txt", "b/10.md.gz", "b/deep/x.txt", "b/skip.json", "a.log"):
        root = write(name, f"in {name}\n")
    (root / "b" / "empty.txt").mkdir()
    assert documents(root, ["b", "a.log"]) == [
        (f"in {name}\n", f"{name}:1") for name in ("b/10.md.gz", "b/2.txt", "b/deep/x.txt", "a.log")
    ]
    assert documents(root, "b", suffixes=[".json"]) == [("in b/skip.json\n", "b/skip.json:1")]


def test_suffixes_may_be_in_upper_case(write):
    for name in ("b/1.TXT", "b/2.txt.GZ", "b/3.Log"):
        root = write(name, name)
    assert [text for text, _ in documents(root, "b")] == ["b/1.TXT", "b/2.txt.GZ"]
    assert [text for text, _ in documents(root, "b", suffixes=[".LOG"])] == ["b/3.Log"]


def test_hidden_files_are_not_read(write):
    for name in ("b/x.txt", "b/.venv/deep/licence.txt", "b/.x.txt", "b/c.d/y.txt"):
        root = write(name, name)
    assert [text for text, _ in documents(root, "b")] == ["b/c.d/y.txt", "b/x.txt"]
    (root / "b").rename(root / ".b")
    assert len(documents(root, ".b")) == 2  # a folder that is named is read


def test_a_folder_may_be_named_by_the_variable(write, monkeypatch):
    root = write("corpus/x.txt", "x")
    monkeypatch.setenv("HEEDFUL_DATA", str(root))
    assert [text for text, _ in documents(Path("/"), "$HEEDFUL_DATA/corpus")] == ["x"]


def test_a_missing_file_is_reported_at_once(write):
    root = write("b/x.json", "{}")
    config = {"kind": "text", "paths": "b"}
    with pytest.raises(DataError, match=r"b: no file in this folder ends in \.txt or \.md"):
        open_source(TypeAdapter(SourceConfig).validate_python(config), root)
    with pytest.raises(DataError, match=r"no such file \(did you mean 'x\.json'\?\)"):
        open_source(TypeAdapter(SourceConfig).validate_python({**config, "paths": "b/x.jsno"}), root)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t: the file is empty"),
        (b"one\ntwo\xff\n", "t:2: byte 4 of the line is not UTF-8; the file is probably Windows-1252"),
        (b"\xff\xfea", "t:1: byte 1 of the line is not UTF-8; the file is probably UTF-16"),
        (b"one\ntw\xc3", "t:2: byte 3 of the line is not UTF-8"),
    ],
)
def test_malformed_text_is_named_with_its_line(write, content, message):
    root = write("t", content)
    with pytest.raises(DataError) as caught:
        read_text(File(root / "t", "t"))
    assert str(caught.value).startswith(message)


def test_no_suffix_means_no_folder_could_be_read():
    with pytest.raises(ValidationError, match="at least 1 item"):
        TypeAdapter(SourceConfig).validate_python({"kind": "text", "paths": "b", "suffixes": []})


@pytest.mark.parametrize(
    ("separator", "remedy"),
    [
        ("\\t", 'write "\\\\t" in double quotes, or leave the key out: a tab is the default'),
        ("tab", 'write "\\\\t" in double quotes, or leave the key out: a tab is the default'),
        ("“;”", 'write ";" in straight quotes'),
        (";;", "for other files, use JSON lines"),
    ],
)
def test_a_separator_of_several_characters_is_explained(separator, remedy):
    with pytest.raises(
        ValidationError, match=f"expected one character, got {re.escape(repr(separator))}; {remedy}"
    ):
        TsvSource(paths="a", columns={"x": 0}, separator=separator)
