"""Likely mistakes in the data of a recipe are logged once, when its rows are first read."""

import pytest

from heedful.artifacts.run_folder import RunFolder
from heedful.runs.prepare import prepare
from heedful.runs.reading import read_recipe

PAIRS = "{{kind: tsv, paths: {0}, columns: {{source: {1}, target: {2}}}}}"
LABELS = "{{kind: tsv, paths: {0}, columns: {{text: 0, label: 1}}}}"


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The lines about likely mistakes that preparing the data of a recipe logs."""
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()

    def prepared(recipe, train, valid, *overrides):
        data = [f"data.train={train}", f"data.valid={valid}"]
        data += ["data.test=null"] if not any(text.startswith("data.test") for text in overrides) else []
        settings, _ = read_recipe(recipe, [*data, "tokenizer.subwords={kind: word}", *overrides])
        lines = []
        prepare(settings, folder, lines.append)
        return [line for line in lines if line.startswith(("data.train", "data.valid", "data.test"))]

    (tmp_path / "a.tsv").write_text("one\ttwo\nthree\tfour\n")
    (tmp_path / "b.tsv").write_text("one\ttwo\nfive\tsix\nseven\teight\n")
    return prepared


def test_the_target_is_the_source(notes):
    data = PAIRS.format("a.tsv", 0, 0), PAIRS.format("b.tsv", 0, 1)
    expected = (
        "data.train: source and target are identical in 2 of 2 (100.0%) rows; check the files and columns"
    )
    assert notes("phrasebook-de", *data) == [expected]
    assert notes("phrasebook-de", *data) == []  # the run has its data


def test_validation_rows_are_training_rows(notes):
    shared = "data.valid: 1 of 3 (33.3%) rows are also training rows; its scores are too high"
    assert notes("phrasebook-de", PAIRS.format("a.tsv", 0, 1), PAIRS.format("b.tsv", 0, 1)) == [shared]


def test_rows_of_test_sets_are_training_rows(notes, tmp_path):
    (tmp_path / "broken.tsv").write_text("three\tfour\nseven\n")
    train, valid = PAIRS.format("a.tsv", 0, 1), PAIRS.format("b.tsv", 1, 0)
    tests = {"own": PAIRS.format("b.tsv", 0, 1), "broken": PAIRS.format("broken.tsv", 0, 1), "other": valid}
    overrides = [f"data.test.{name}={source}" for name, source in tests.items()]
    assert notes("phrasebook-de", train, valid, "data.test.test.limit=3", *overrides) == [
        "data.test.test: limit reads at most 3 rows of built-in",
        "data.test.own: 1 of 3 (33.3%) rows are also training rows; its scores are too high",
        "data.test.broken: 1 of 1 (100.0%) rows are also training rows; its scores are too high",
    ]


@pytest.mark.parametrize("value", ["{}.5", "7"], ids=["all different", "all but one equal"])
def test_numbers_are_not_classes(notes, tmp_path, value):
    """For which 1 and 1.0 would be two, many would be the wrong column, and few of them hard to score."""
    rows = ["first\t1", "second\t1.0", *(f"text {n}\t{value.format(n)}" for n in range(400))]
    (tmp_path / "n.tsv").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "v.tsv").write_text("other\t1\n")
    assert notes("my-own-numbers", LABELS.format("n.tsv"), LABELS.format("v.tsv"), "data.split=null") == []
    assert notes("my-own-labels", LABELS.format("n.tsv"), LABELS.format("v.tsv"), "data.split=null")


def test_labels_of_a_classification(notes, tmp_path):
    rows = ["good\tpos", *["bad\tneg"] * 398, "worse\tNeg", "fine\tpos"]
    (tmp_path / "c.tsv").write_text("".join(f"{row}\n" for row in rows))
    data = LABELS.format("c.tsv")
    assert notes("sst2", data, data, "task.labels=null") == [
        "data.train: 'Neg' (1) and 'neg' (398) look alike, but differ in upper and lower case; they are "
        "different classes; make them equal if they are one",
        "data.train: 398 of 401 (99.3%) rows have the label 'neg'; accuracy says little about a model",
        "data.valid: 401 of 401 (100.0%) rows are also training rows; its scores are too high",
    ]


def test_lines_of_running_text_may_be_equal(notes, tmp_path):
    (tmp_path / "t.txt").write_text("one two\nthree\n")
    data = "{kind: text, paths: t.txt, documents: line}"
    assert notes("phrasebook-lm", data, data) == []


@pytest.mark.parametrize(("n_rows", "noted"), [(19, False), (23, True)])
def test_almost_every_row_has_a_label_of_its_own(n_rows, noted, notes, tmp_path):
    (tmp_path / "c.tsv").write_text("".join(f"text {i}\tid {i}\n" for i in range(n_rows)))
    (tmp_path / "v.tsv").write_text("another\tid 3\n")
    lines = notes("sst2", LABELS.format("c.tsv"), LABELS.format("v.tsv"), "task.labels=null")
    first, last = "data.train: 23 different labels in 23 rows, such as 'id 0',", "is label the right column?"
    lines = [line for line in lines if "header: true" not in line]
    assert [line.startswith(first) and line.endswith(last) for line in lines] == [True] * noted


@pytest.mark.parametrize(("n_tags", "noted"), [(11, False), (12, True)])
def test_tags_that_are_words(n_tags, noted, notes, tmp_path):
    tokens = "".join(f"word\ttag{i % n_tags}\n\n" for i in range(23))
    (tmp_path / "t.conll").write_text(tokens)
    data = "{kind: conll, paths: t.conll, columns: {words: 0, tags: 1}}"
    lines = notes("phrasebook-tags", data, data)
    assert any(f"{n_tags} different tags in 23 words" in line for line in lines) == noted


@pytest.mark.parametrize(("first", "cut"), [("one", 1), ("one two", 2)])
def test_every_row_is_truncated(first, cut, notes, tmp_path):
    (tmp_path / "c.tsv").write_text(f"{first}\tx\nthree four\ty\n")
    (tmp_path / "v.tsv").write_text("two\tx\n")
    files = (PAIRS.format(f"{name}.tsv", 0, 1) for name in "cv")
    expected = ["data.train: every row was truncated (source longer than 1); check the limit"]
    assert notes("phrasebook-de", *files, "data.filter.max_length=1") == expected * (cut == 2)
