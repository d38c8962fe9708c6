"""Every input explained by itself: a folder of pages with a list, and JSON lines."""

import html
import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.errors import RequestError, WorkError
from heedful.explain.json_format import json_pieces

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "explanation.schema.json"
VIEW = ["--view", "occlusion", "--kind", "none"]
TABLE = 'id,body\nA 7/x,"the cat"\nA 7 x,the mat\n,a dog\n../Index,the log\nindex,the log sat\n'


@pytest.fixture
def explain(explained, tmp_path):
    """Runs the command; returns its error."""

    def call(*arguments, name="classification"):
        run, _ = explained(name)
        given = ["explain", str(run.folder.path), *map(str, arguments), "--device", "cpu"]
        outcome = CliRunner().invoke(app, given)
        return None if isinstance(outcome.exception, SystemExit) else outcome.exception

    (tmp_path / "in.csv").write_text(TABLE, "utf-8")
    return call


def given(tmp_path):
    return ["--inputs", tmp_path / "in.csv", "--column", "text=body", *VIEW]


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_has_a_page_for_each_input_and_a_list(explain, explained, tmp_path, exists):
    run, _ = explained("classification")
    folder = tmp_path / "pages"
    if exists:
        folder.mkdir()
    assert explain(*given(tmp_path), "--out", folder) is None
    names = ["A-7-x", "A-7-x-2", "3", "Index-2", "index-3"]
    texts = ["the cat", "the mat", "a dog", "the log", "the log sat"]
    assert {path.name for path in folder.iterdir()} == {f"{name}.html" for name in [*names, "index"]}
    index = (folder / "index.html").read_text("utf-8")
    assert re.findall(r'<a href="(.*?)\.html">', index) == names
    for name, text in zip(names, texts, strict=True):
        alone = run.explain(text, kinds=[], views=["occlusion"])
        assert (folder / f"{name}.html").read_text("utf-8") == alone.page()
        assert f'dir="auto">{text}</span>' in index
    assert alone.provenance["weights"] in index


def test_another_field_names_the_pages(explain, tmp_path):
    assert explain(*given(tmp_path), "--id", "body", "--out", tmp_path / "pages") is None
    names = {path.stem for path in (tmp_path / "pages").iterdir()}
    assert names == {"the-cat", "the-mat", "a-dog", "the-log", "the-log-sat", "index"}
    error = explain(*given(tmp_path), "--id", "case", "--out", tmp_path / "other")
    assert re.match(r"--id case: input 1 has no such field; expected one of 'id', 'body'", str(error))


def test_an_input_that_cannot_be_explained_is_in_the_list_with_its_reason(explain, tmp_path):
    (tmp_path / "in.csv").write_text("id,body\n1,the cat\n2,#N/A\n", "utf-8")
    error = explain(*given(tmp_path), "--out", tmp_path / "pages")
    assert isinstance(error, WorkError)
    assert str(error) == "1 of 2 inputs could not be explained"
    index = html.unescape((tmp_path / "pages" / "index.html").read_text("utf-8"))
    assert "not explained: " in index
    assert "#N/A" in index
    assert not (tmp_path / "pages" / "2.html").exists()


def test_json_lines_are_the_explanations_with_the_fields_of_their_inputs(explain, explained, tmp_path):
    run, _ = explained("classification")
    assert explain(*given(tmp_path), "--out", tmp_path / "all.jsonl") is None
    schema = Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    lines = (tmp_path / "all.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert [each["row"]["body"] for each in found] == [
        "the cat",
        "the mat",
        "a dog",
        "the log",
        "the log sat",
    ]
    for each in found:
        schema.validate(each)
        alone = run.explain(each["input"], kinds=[], views=["occlusion"])
        assert {**json.loads("".join(json_pieces(alone))), "row": each["row"]} == each


def test_inputs_of_the_command_line_have_numbers(explain, tmp_path):
    out = tmp_path / "pages"
    assert explain("the cat", "a dog", *VIEW, "--out", out) is None
    assert {path.name for path in out.iterdir()} == {"1.html", "2.html", "index.html"}


def test_a_hostile_input_is_text_in_the_list(explain, tmp_path):
    text = "<script>alert(1)</script> cat"
    assert explain(text, *VIEW, "--out", tmp_path / "pages") is None
    index = (tmp_path / "pages" / "index.html").read_text("utf-8")
    assert html.escape(text) in index
    assert "<script" not in index


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "pages", "--json"], r"--json: not supported with --out .*pages"),
        (["--out", "x.json", "--id", "a"], r"--id: names the pages of a folder; add --out FOLDER"),
        (["--out", "nowhere/pages"], r"--out .*nowhere"),
        (["--out", "run"], r"--out .*run: is a run; choose another folder"),
        (["--out", "file"], r"--out .*file: is a file"),
    ],
)
def test_wrong_requests_write_nothing(explain, tmp_path, arguments, message):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "file").write_text("")
    before = {*tmp_path.rglob("*")}
    error = explain("the cat", *VIEW, "--out", tmp_path / arguments[1], *arguments[2:])
    assert isinstance(error, RequestError)
    assert re.match(message, str(error))
    assert {*tmp_path.rglob("*")} == before


def test_nothing_is_written_if_no_input_can_be_explained(explain, tmp_path):
    assert isinstance(explain("", *VIEW, "--out", tmp_path / "pages"), RequestError)
    assert not (tmp_path / "pages").exists()


def test_a_page_of_each_can_have_attention(explain, tmp_path):
    out = tmp_path / "pages"
    assert explain("the cat", "a dog", "--layer", "2", "--exact", "2.1", "--out", out) is None
    assert '"layer":1' in (out / "2.html").read_text("utf-8")
