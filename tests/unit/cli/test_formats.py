"""The formats of inputs and outputs, each chosen by itself."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.cli.output import one_line, unescaped


def run_command(verb, run, *arguments, status=0, stdin=None):
    done = CliRunner().invoke(app, [verb, str(run), *map(str, arguments), "--device", "cpu"], input=stdin)
    assert done.exit_code == status, (done.stderr, done.exception)
    return done


def answers(run, *arguments, **options):
    return run_command("predict", run, *arguments, **options).stdout.splitlines()


@given(st.text() | st.text("\\nr\n\rx"))
@example("C:\\new")
def test_what_is_written_in_a_line_is_read_back(text):
    assert unescaped(one_line(text)) == text


@pytest.mark.parametrize("name", ["in.txt", "-"])
def test_lines_have_answers_in_json(letters, tmp_path, name):
    (tmp_path / "in.txt").write_text("a\nb\n")
    source = {"stdin": "a\nb\n"} if name == "-" else {}
    found = answers(letters, name if name == "-" else tmp_path / name, "--to", "jsonl", **source)
    assert [json.loads(line)["input"] for line in found] == [{"text": "a"}, {"text": "b"}]
    assert [json.loads(line)["output"] for line in found] == answers(letters, tmp_path / "in.txt")


def test_json_lines_have_answers_in_lines(letters, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    (tmp_path / "in.log").write_text((tmp_path / "in.jsonl").read_text())
    (tmp_path / "in.txt").write_text("a\nb\n")
    expected = answers(letters, tmp_path / "in.txt")
    assert answers(letters, tmp_path / "in.jsonl", "--to", "lines") == expected
    assert answers(letters, tmp_path / "in.log", "--from", "jsonl", "--to", "lines") == expected
    whole = answers(letters, tmp_path / "in.jsonl")
    assert answers(letters, tmp_path / "in.log", "--from", "jsonl") == whole
    assert answers(letters, tmp_path / "in.log", "--jsonl") == whole


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.txt"])
def test_a_file_of_any_name_is_read_as_lines_if_asked_for(letters, tmp_path, name):
    (tmp_path / name).write_text('{"text": "a"}\ntext,id\na\\nb\n')
    found = answers(letters, tmp_path / name, "--from", "lines", "--to", "jsonl")
    texts = ['{"text": "a"}', "text,id", "a\\nb"]
    assert [json.loads(line)["input"] for line in found] == [{"text": text} for text in texts]


def test_escapes_are_read_as_outputs_write_them(letters, tmp_path):
    texts = ["a\nb", "a\\nb", "C:\\x", "\\", "a\r\n", "b"]
    (tmp_path / "in.txt").write_text("".join(one_line(text) + "\n" for text in texts), newline="")
    found = answers(letters, tmp_path / "in.txt", "--from", "escaped", "--to", "jsonl")
    assert [json.loads(line)["input"]["text"] for line in found] == texts
    vectors = run_command("embed", letters, tmp_path / "in.txt", "--from", "escaped").stdout.splitlines()
    assert [json.loads(line)["text"] for line in vectors] == texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jsonl", "--to", "lines"], "--jsonl is not supported with --to; use --from and --to"),
        (["--jsonl", "--from", "lines"], "--jsonl is not supported with --from; use --from and --to"),
        (
            ["--n-best", "2"],
            "--n-best 2 requires --to jsonl",
        ),
        (["--from", "lines", "--column", "a"], "--column requires a table"),
    ],
)
def test_formats_that_do_not_fit_are_refused(letters, tmp_path, arguments, message):
    (tmp_path / "in.txt").write_text("a\n")
    done = CliRunner().invoke(app, ["predict", str(letters), str(tmp_path / "in.txt"), *arguments])
    assert done.exit_code != 0
    assert message in str(done.exception)
