"""``heedful explain --out words.csv``: the scores of the words of many inputs are those of each alone."""

import csv
import json

import pytest
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.errors import RequestError, WorkError

VIEWS = ["occlusion", "integrated-gradients"]


@pytest.fixture
def write(explained, tmp_path):
    """The rows of the table of a run, and the error if there was one."""

    def call(name, *arguments, out="words.csv"):
        run, _ = explained(name)
        given = ["explain", str(run.folder.path), *map(str, arguments), "--device", "cpu"]
        outcome = CliRunner().invoke(app, [*given, "--out", str(tmp_path / out)])
        rows = []
        if (tmp_path / out).exists():
            with (tmp_path / out).open(encoding="utf-8", newline="") as file:
                separator = "\t" if out.endswith(".tsv") else ","
                rows = [numbers(row) for row in csv.DictReader(file, delimiter=separator)]
        error = None if isinstance(outcome.exception, SystemExit) else outcome.exception
        return rows, error, outcome.stderr

    return call


def numbers(row):
    """A row with numbers in place of the texts of a score and a probability."""
    return {**row, **{name: float(row[name]) if row.get(name) else None for name in ("score", "probability")}}


def expected(run, task_input, own):
    """The rows of an input, as texts."""
    seen = run.explain(task_input, kinds=[], views=VIEWS)
    rows = [{**own, "view": view, **row} for view in VIEWS for row in seen.word_scores(view)]
    weights = seen.provenance["weights"][:12]
    return [
        {**row, "index": str(row["index"]), "unknown": json.dumps(row["unknown"]), "weights": weights}
        for row in rows
    ]


@pytest.mark.parametrize(
    "name", ["classification", "tagging", "translation", "regression", "answers", "pairs"]
)
def test_inputs_of_the_command_line_have_the_scores_that_they_have_alone(write, explained, name):
    run, given = explained(name)
    text = given if isinstance(given, str) else "\t".join(given)
    found, error, _ = write(name, text, text, "--view", VIEWS[0], "--view", VIEWS[1], out="words.tsv")
    assert error is None
    assert found == 2 * expected(run, given, {"input": text})


def test_rows_of_a_table_keep_their_fields_and_those_that_cannot_be_read_are_named(
    write, explained, tmp_path
):
    (tmp_path / "in.csv").write_text('id,body\n7,"the cat"\n8,\n9,#N/A\n10,the mat\n', "utf-8")
    options = [
        "--inputs",
        tmp_path / "in.csv",
        "--column",
        "text=body",
        "--view",
        VIEWS[0],
        "--view",
        VIEWS[1],
    ]
    found, error, log = write("classification", *options)
    run, _ = explained("classification")
    own = [{"id": "7", "body": "the cat"}, {"id": "10", "body": "the mat"}]
    assert found == [row for fields in own for row in expected(run, fields["body"], fields)]
    assert isinstance(error, WorkError)
    assert str(error) == "1 of 3 inputs could not be explained"
    assert "in.csv:4: the field body is #N/A" in log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], r"--out .*: a table has scores of words, .*: occlusion, .*; add --view NAME"),
        (["a", "--view", "gradients"], r"--out .*; leave out --view gradients"),
        (["a", "--view", "occlusion", "--json"], r"--json: not supported with --out"),
        (["a", "--view", "occlusion", "--pair", "b"], r"--pair: not supported with a table"),
        (["--view", "occlusion"], r"no input: give INPUT or --inputs FILE"),
        (["", "--view", "occlusion"], r"the input must not be empty"),
    ],
)
def test_wrong_requests_write_nothing(write, arguments, message):
    found, error, _ = write("classification", *arguments)
    assert found == []
    assert isinstance(error, RequestError)
    with pytest.raises(RequestError, match=message):
        raise error


def test_a_table_does_not_replace_its_input(write, tmp_path):
    (tmp_path / "words.csv").write_text("text\nthe cat\n", "utf-8")
    _, error, _ = write("classification", "--inputs", tmp_path / "words.csv", "--view", "occlusion")
    assert "is an input, which it would replace" in str(error)
    assert (tmp_path / "words.csv").read_text("utf-8") == "text\nthe cat\n"


def test_no_view_but_those_of_words_has_scores_of_words(explained):
    from heedful.cli.word_tables import VIEWS_OF_WORDS

    run, given = explained("classification")
    seen = run.explain(given, kinds=[], views=["all"])
    assert [name for name, values in seen.views.items() if "scores" in values] == VIEWS_OF_WORDS
