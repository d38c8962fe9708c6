"""Answers come while the input stays open; the first notes of each sort are logged, the others counted."""

import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from heedful.cli.answers import FIRST, NoteLog, located
from heedful.cli.input_streams import Source
from heedful.cli.inputs import check_objects
from heedful.cli.main import app
from heedful.data.lines import Location, Record
from heedful.errors import RequestError
from heedful.tasks.embedding import Embedding
from heedful.tasks.prediction import Prediction

UNKNOWN = "1 of 3 words is unknown to this run ('zebra')"
CUT = "cut from 12 to 4 tokens; " + UNKNOWN


def lines_from(stream, n, seconds=240.0):
    """So many lines of a pipe, or what has come of them in that time."""
    found, until = b"", time.monotonic() + seconds
    while found.count(b"\n") < n and select.select([stream], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(stream.fileno(), 4096)
        if not chunk:
            break
        found += chunk
    return found.decode().splitlines()


@pytest.mark.slow
def test_a_process_answers_while_its_input_stays_open(letters):
    command = [sys.executable, "-m", "heedful", "predict", str(letters), "--device", "cpu"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            answers = []
            for given in (b"a\nb\n", b"b\n"):
                process.stdin.write(given)
                answers.append(lines_from(process.stdout, given.count(b"\n")))
            process.stdin.close()
            rest = lines_from(process.stdout, 1)
            assert process.wait(120) == 0
        finally:
            process.kill()
    assert [len(each) for each in (*answers, rest)] == [2, 1, 0]
    assert answers[1] == answers[0][1:]
    assert {*answers[0], *answers[1]} <= {"a", "b"}


def log_lines(capsys, *texts):
    notes = NoteLog()
    for number, note in enumerate(texts):
        notes.add(Prediction("", notes=(note,) if note else ()), f"input {number}")
    notes.summarize()
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_few_notes_are_logged_with_their_inputs(capsys):
    assert log_lines(capsys, None, UNKNOWN, None, CUT) == [
        f"heedful: {UNKNOWN}: 'input 1'",
        f"heedful: {CUT}: 'input 3'",
    ]


@pytest.mark.parametrize(("more", "count"), [(1, "1 more input "), (1_204, "1,204 more inputs ")])
def test_of_many_notes_the_first_are_logged_and_the_others_counted(capsys, more, count):
    *first, last = log_lines(capsys, *[UNKNOWN] * (FIRST + more))
    assert len(first) == FIRST
    assert last.startswith(f"heedful: … and {count}with unknown words")


def test_many_unknown_words_do_not_hide_other_notes(capsys):
    found = log_lines(capsys, *[UNKNOWN] * (3 * FIRST), CUT)
    assert found[FIRST] == f"heedful: {CUT}: 'input {3 * FIRST}'"
    assert len(found) == FIRST + 2


def test_other_notes_are_counted_too(capsys):
    *_, last = log_lines(capsys, *[CUT] * (FIRST + 2))
    assert last.startswith("heedful: … and 2 more inputs with a note")


@pytest.mark.parametrize("n", [1, FIRST + 3])
def test_inputs_that_are_hardly_texts_are_counted_in_one_line_for_each_kind(capsys, n):
    notes = NoteLog()
    for number in range(n):
        for text in ("a\0b", ["a", "\0"], " ", "\t", "a", "", ["a"], None):
            notes.add(Prediction("x"), text, f"f:{number + 7}")
        notes.add(Prediction("x", notes=(CUT,)), "a")
        notes.add(Prediction("", notes=("the input is empty",)), "  ")
        notes.add(Prediction("", error="f:1: no JSON"), "\0")
    notes.summarize()
    found = [line for line in capsys.readouterr().err.splitlines() if line.startswith("heedful: ")]
    assert [line for line in found if "as text" in line] == [
        f"heedful: {2 * n} inputs with NUL characters, which are read as text (first at f:7)",
        f"heedful: {2 * n} inputs of white space alone, which is read as text (first at f:7)",
    ]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (Prediction("", notes=("the input is empty",)), "f:3: the input is empty"),
        (Embedding(None, notes=("the input is empty",)), "f:3: the input is empty"),
        (Prediction("x", notes=("the question is empty",)), "f:3: the question is empty"),
        (Prediction("", error="the path of an image is empty"), "f:3: the path of an image is empty"),
        (Embedding(None, error="the path of an image is empty"), "f:3: the path of an image is empty"),
        (Prediction("x", notes=(CUT,)), CUT),
        (Prediction("", error="a.png: no such file"), "f:3: a.png: no such file"),
        (Prediction("", error="f:3: no JSON"), "f:3: no JSON"),
    ],
)
def test_what_an_empty_input_says_begins_with_its_location(given, shown):
    record = Record(Location("f", 3), {}, {})
    answer = located(record, given)
    assert (answer.error or answer.notes[0]) == shown
    assert located(Record(Location(""), {}, {}), given) == given


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_lines_of_text_that_are_not_json_have_the_remedy_of_a_verb(verb, letters, tmp_path):
    """Not that of a recipe, which may name another kind of source."""

    def refusal(*arguments):
        command = [verb, str(letters), *arguments, "--device", "cpu"]
        with pytest.raises(RequestError) as raised:
            CliRunner().invoke(app, command, input="a b\n", catch_exceptions=False)
        assert "kind:" not in str(raised.value)
        return str(raised.value)

    assert "standard input:1: not JSON lines" in refusal("--jsonl")
    assert "; for lines of text, leave out --jsonl or --from jsonl" in refusal("--jsonl")
    (tmp_path / "in.txt").write_text("a b\n")
    assert "; leave it out (predict and score write JSON" in refusal(str(tmp_path / "in.txt"), "--jsonl")
    (tmp_path / "in.jsonl").write_text("a b\n")
    assert refusal(str(tmp_path / "in.jsonl")).endswith("add --from lines; name a table .csv")
    done = CliRunner().invoke(app, ["predict", str(letters), str(tmp_path / "in.jsonl"), "--from", "lines"])
    assert done.exit_code == 0


def test_errors_are_always_logged(capsys):
    notes = NoteLog()
    for number in range(FIRST + 5):
        notes.add(Prediction("", error=f"line {number}: no JSON"), None)
    notes.summarize()
    assert len(capsys.readouterr().err.splitlines()) == FIRST + 5


def test_a_file_of_unknown_words_does_not_flood(letters, tmp_path):
    (tmp_path / "lines.txt").write_text("c\na\n" * 80, "utf-8")
    done = CliRunner().invoke(
        app, ["predict", str(letters), str(tmp_path / "lines.txt"), "--device", "cpu"], catch_exceptions=False
    )
    assert len(done.stdout.splitlines()) == 160
    *first, last = [line for line in done.stderr.splitlines() if "unknown" in line]
    assert len(first) == FIRST
    assert last.startswith(f"heedful: … and {80 - FIRST} more inputs with unknown words")


@pytest.mark.parametrize(
    ("columns", "text", "expected"),
    [
        (["text"], 'a "b"\n\n', [{"text": 'a "b"'}, {"text": ""}]),
        (["text", "pair"], "a\tb c\n\t\n", [{"text": "a", "pair": "b c"}, {"text": "", "pair": ""}]),
    ],
)
def test_lines_of_text_with_jsonl_are_refused_with_a_command_that_converts_them(
    tmp_path, columns, text, expected
):
    file = tmp_path / "new lines.txt"
    file.write_text(text)
    with pytest.raises(RequestError, match="--jsonl requires JSON lines, got lines of text") as caught:
        check_objects(Source.of(str(file)), columns)
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    subprocess.run(str(caught.value).partition("convert them: ")[2], shell=True, cwd=tmp_path, check=True)
    converted = tmp_path / "NEW.jsonl"
    assert [json.loads(line) for line in converted.read_text().splitlines()] == expected
    check_objects(Source.of(str(converted)), columns)


def test_jsonl_asks_for_objects_before_it_predicts(letters, tmp_path):
    (tmp_path / "lines.txt").write_text("a\n")
    request = ["predict", str(letters), str(tmp_path / "lines.txt"), "--jsonl", "--n-best", "2"]
    with pytest.raises(RequestError, match=r"convert them: jq -Rc '\{text: \.\}'"):
        CliRunner().invoke(app, request, catch_exceptions=False)
