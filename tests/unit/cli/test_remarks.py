"""Notes: the first of each sort are logged with their inputs, the others as a count."""

import pytest
from typer.testing import CliRunner

from heedful.cli.main import app
from heedful.cli.remarks import FIRST, NoteLog
from heedful.tasks.prediction import Prediction

UNKNOWN = "1 of 3 words is unknown to this run (the first: 'zebra')"
CUT = "cut from 12 to 4 tokens; " + UNKNOWN


def lines(capsys, *texts):
    notes = NoteLog()
    for number, note in enumerate(texts):
        notes.add(Prediction("", note=note), f"input {number}")
    notes.summarize()
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_few_notes_are_logged_with_their_inputs(capsys):
    assert lines(capsys, None, UNKNOWN, None, CUT) == [
        f"heedful: {UNKNOWN}: 'input 1'",
        f"heedful: {CUT}: 'input 3'",
    ]


@pytest.mark.parametrize(("more", "count"), [(1, "1 more input "), (1_204, "1,204 more inputs ")])
def test_of_many_notes_the_first_are_logged_and_the_others_counted(capsys, more, count):
    *first, last = lines(capsys, *[UNKNOWN] * (FIRST + more))
    assert len(first) == FIRST
    assert last.startswith(f"heedful: … and {count}with unknown words")


def test_many_unknown_words_do_not_hide_other_notes(capsys):
    found = lines(capsys, *[UNKNOWN] * (3 * FIRST), CUT)
    assert found[FIRST] == f"heedful: {CUT}: 'input {3 * FIRST}'"
    assert len(found) == FIRST + 2


def test_other_notes_are_counted_too(capsys):
    *_, last = lines(capsys, *[CUT] * (FIRST + 2))
    assert last.startswith("heedful: … and 2 more inputs with a note")


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
