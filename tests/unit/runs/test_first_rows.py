"""Mistakes of any data set are found before the tokenizer is trained, with the key of the data set."""

import os

import pytest

from heedful.data.images import LazyImage
from heedful.errors import DataError
from heedful.runs.first_rows import check_first_rows
from heedful.runs.reading import read_recipe

PAIRS = {"source": "a", "target": "b"}


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Return the message about a recipe with this data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("eins\nzwei\n")

    def of(recipe, **data):
        overrides = [f"data.{key}={value}" for key, value in {"test": "null", **data}.items()]
        recipe, _ = read_recipe(recipe, overrides)
        try:
            check_first_rows(recipe)
        except DataError as error:
            return str(error)
        return ""

    return of


def files(target, **settings):
    more = "".join(f", {key}: {value}" for key, value in settings.items())
    return f"{{kind: files, columns: {{source: a, target: {target}}}{more}}}"


GOOD = files("b")


@pytest.mark.parametrize("part", ["train", "valid", "test.own"])
def test_files_that_are_not_aligned(checked, tmp_path, part):
    (tmp_path / "c").write_text("eins\n")
    data = {"train": GOOD, "valid": GOOD, part: files("c")}
    message = checked("phrasebook-de", **data)
    assert message == (
        f"data.{part}: the columns are not line-aligned: source has 2 lines (a 2), target has 1 lines (c 1)"
    )
    # Only the lines that are read must be aligned.
    assert checked("phrasebook-de", **{**data, part: files("c", limit=1)}) == ""


@pytest.mark.parametrize("part", ["valid", "test.own"])
def test_a_column_that_is_missing(checked, tmp_path, part):
    (tmp_path / "t.tsv").write_text("Topic\tText\nx\ty\n")
    good = "{kind: tsv, header: true, paths: t.tsv, columns: {label: Topic, text: Text}}"
    assert checked("sst2", train=good, valid=good) == ""
    message = checked("sst2", **{"train": good, "valid": good, part: good.replace("Topic", "Wrong")})
    assert message == f"data.{part}: t.tsv:1: the header has no field 'Wrong'; it has Topic, Text"


def test_a_file_with_only_a_header(checked, tmp_path):
    (tmp_path / "t.tsv").write_text("Topic\tText\n")
    source = "{kind: tsv, header: true, paths: t.tsv, columns: {label: Topic, text: Text}}"
    assert checked("sst2", train=source, valid=source) == "data.train: t.tsv: has a header, but no rows"


def test_an_image_that_is_missing(checked, tmp_path):
    (tmp_path / "i").mkdir()
    (tmp_path / "i/1.png").write_bytes(b"not opened")
    (tmp_path / "i/metadata.jsonl").write_text(
        '{"file_name": "1.png", "text": "x"}\n{"file_name": "2.png", "text": "y"}\n'
    )
    source = "{kind: captioned-folder, path: i}"
    message = checked("scenes", train=source, valid=source)
    assert message == "data.train: i/metadata.jsonl:2: i/2.png: no such file"
    assert checked("scenes", train=source, valid=source, **{"filter.unreadable": "drop"}) == ""


def test_images_that_are_split_are_not_read(checked, tmp_path, monkeypatch):
    (tmp_path / "i").mkdir()
    for number in (1, 2):
        (tmp_path / f"i/{number}.png").write_bytes(b"not opened")
        (tmp_path / f"i/{number}.txt").write_text("x")
    monkeypatch.setattr(LazyImage, "encoded", None)  # what the hash of a row would read
    split = {"valid": "null", "split": "{valid: 0.4, more: 0.1}"}
    assert checked("scenes", train="{kind: captioned-folder, path: i}", **split) == ""


def test_a_pipe_is_not_read(checked, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert checked("phrasebook-de", train=GOOD, valid=files("pipe")) == ""
