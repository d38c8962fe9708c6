"""What a terminal is given, and what a pipe; plain lines that can be read back."""

import io
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from heedful.cli import main, output
from heedful.cli.main import app
from heedful.errors import RequestError, escaped
from heedful.explain.drawing.terminal import COLOUR, heat_map
from heedful.files import is_unicode
from heedful.training.callbacks import Progress, Started

NASTY = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202edrow\u2066\u2069 naïve நாய் 👩\u200d🔬 \u05d0\u200e"


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self):
        return True


@pytest.fixture
def at_terminal(monkeypatch):
    """Makes standard output a terminal, and returns that; called in the test, because pytest sets it too."""

    def make():
        stream = Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        return stream

    return make


TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = {unicodedata.lookup(f"{name} MARK") for name in ("LEFT-TO-RIGHT", "RIGHT-TO-LEFT", "ARABIC LETTER")}


def steering(text):
    """The characters that steer a terminal, by Unicode's own tables."""
    controls = {sign for sign in text if unicodedata.category(sign) in ("Cc", "Cs")} - {"\t", "\n"}
    turns = {sign for sign in text if unicodedata.bidirectional(sign) in TURNS}
    return controls | turns | (MARKS & {*text})


def read_back(line):
    return re.sub(r"\\([nr\\])", lambda found: {"n": "\n", "r": "\r"}.get(found[1], "\\"), line)


@given(st.text() | st.text("\\nr\n\rx"))
@example("C:\\new")
@example("two\nlines")
def test_a_plain_line_is_one_line_and_can_be_read_back(text):
    line = output.one_line(text)
    assert not {"\n", "\r"} & {*line}
    assert read_back(line) == text


@given(st.text(st.sampled_from("\\nrx")))
def test_a_text_whose_backslashes_are_not_in_doubt_is_unchanged(text):
    assert (output.one_line(text) == text) == (not re.search(r"\\[nr\\]", text))


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs"])))
@example("\u05d0\u200e1\u200f\u061c2")
def test_nothing_that_steers_a_terminal_is_left(text):
    assert not steering(escaped(text))
    assert steering(text) or escaped(text) == text
    if is_unicode(text):  # it is also how JSON writes them
        assert json.loads(escaped(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize(
    "write", [output.result, output.write_result, lambda x: output.result_in_pieces([x])]
)
def test_a_terminal_is_not_steered_by_results(at_terminal, write):
    terminal = at_terminal()
    write(NASTY)
    assert terminal.getvalue().removesuffix("\n") == escaped(NASTY)
    assert not steering(terminal.getvalue())


def test_json_at_a_terminal_is_still_exact(at_terminal):
    terminal = at_terminal()
    output.json_result({"text": NASTY})
    line = terminal.getvalue()
    assert not steering(line)
    assert json.loads(line) == {"text": NASTY}


def test_pipes_get_results_unchanged(capsys):
    output.result(NASTY)
    output.json_result({"text": NASTY})
    assert capsys.readouterr().out == f"{NASTY}\n{json.dumps({'text': NASTY}, ensure_ascii=False)}\n"


def test_a_heat_map_keeps_its_colours_and_no_others(at_terminal):
    terminal = at_terminal()
    drawn = heat_map(["a", NASTY], ["b", "c"], [[0.0, 1.0], [0.5, 0.3]], style=COLOUR)
    output.result(drawn)
    assert terminal.getvalue() == drawn + "\n"
    output.result("\x1b[48;5;17m not a cell\x1b[0m")
    assert "\x1b[48;5;17m not" not in terminal.getvalue()


def test_answers_do_not_steer_a_terminal(make_run, classifier, tmp_path, at_terminal):
    terminal = at_terminal()
    run = make_run(tmp_path / "run", classifier, [{"text": x, "label": f"{x}{NASTY}"} for x in "ab"])
    (tmp_path / "in.txt").write_text("a\nb\n")
    for options in ((), ("--jsonl",)):
        if options:
            (tmp_path / "in.txt").write_text('{"text": "a", "id": "\\u009b\\u001b"}\n')
        main._run(["predict", str(run), str(tmp_path / "in.txt"), *options])
    views = [part for name in ("gradients", "losses", "lens") for part in ("--view", name)]
    main._run(["explain", str(run), f"a {NASTY}", *views])
    shown = terminal.getvalue()
    assert shown.count("drow") >= 5
    assert not steering(shown)


def test_the_name_of_a_described_recipe_does_not_steer_a_terminal(at_terminal, tmp_path):
    from heedful.recipes.resolve import shipped_recipes

    path = tmp_path / "na\x1b]0;owned\x07\u202eme[red].yaml"
    path.write_bytes(shipped_recipes()["phrasebook-tags"].read_bytes())
    terminal = at_terminal()
    main._run(["describe", str(path)])
    shown = terminal.getvalue()
    assert "owned" in shown
    assert "[red]" in shown  # rich would take it for a colour
    assert not {"\x1b]", "\x07", "\u202e"} & {*re.findall(r"\x1b\]|\x07|\u202e", shown)}


MESSAGES = [
    lambda: output.log(NASTY),
    lambda: main._warn(NASTY, UserWarning),
    lambda: main._failed(NASTY, 1),
    lambda: main._status_of(lambda: main._run([NASTY])),
    lambda: main._status_of(lambda: main._run(["predict", f"--{NASTY}"])),
    lambda: main._status_of(lambda: main._run(["predict", "run", NASTY])),
    lambda: Progress()(Started(0, damaged=(NASTY,))),
]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_messages_steer_no_terminal_even_later(message, is_terminal, monkeypatch, capsys):
    """What is written to a file may be shown by a terminal some day."""
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    message()
    (shown,) = (line for line in stream.getvalue().split("\n") if "owned" in line)  # not the progress bar
    assert not steering(shown)


WRITERS = {
    "predict": (["RUN", "in.txt", "--out"], "x.csv"),
    "embed": (["RUN", "in.txt", "--out"], "x.npy"),
    "evaluate": (["RUN", "in.txt", "--output"], "x.jsonl"),
    "explain": (["RUN", "a", "--out"], "x.html"),
    "describe": (["RUN", "--plot", "schedule", "--out"], "x.svg"),
    "compare": (["RUN", "--out"], "x.svg"),
}


@pytest.mark.parametrize("verb", WRITERS)
def test_a_folder_that_does_not_exist_is_told_from_a_file_in_its_place(verb, letters, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\n")
    command, name = WRITERS[verb]
    arguments = [str(letters) if each == "RUN" else each for each in command]

    def refusal(path):
        with pytest.raises(RequestError) as raised:
            CliRunner().invoke(app, [verb, *arguments, path], catch_exceptions=False)
        return str(raised.value).partition(": cannot be written: ")

    missing, file = f"a b/c/{name}", f"in.txt/c/{name}"
    assert refusal(missing) == (
        f"{command[-1]} {missing}",
        ": cannot be written: ",
        "the folder a b/c does not exist; create it: mkdir -p 'a b/c'",
    )
    assert refusal(file)[2] == "in.txt is a file, not a folder; choose another path"
    assert not (tmp_path / "a b").exists()
