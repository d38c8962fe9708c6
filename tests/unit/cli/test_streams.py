"""The command with streams that are closed, and with names that are not UTF-8; in processes of its own."""

import os
import subprocess
import sys

import pytest


def command(redirected, *arguments, **settings):
    """``heedful`` with arguments, after a redirection as the shell writes it."""
    line = f'exec "$0" -m heedful "$@" {redirected}'
    return subprocess.run(
        ["bash", "-c", line, sys.executable, *arguments], capture_output=True, timeout=200, **settings
    )


def test_closed_output_is_no_failure():
    done = command(">&-", "--version")
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_input_is_told():
    done = command("<&-", "predict", "run")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"heedful: standard input is closed")


def test_what_cannot_be_told_does_not_stand_among_results():
    done = command("2>&-", "predict", "run", "nothing.txt")
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_name_that_is_not_utf_8_stands_in_a_message(tmp_path):
    done = command("", "predict", "run", b"na\xffme.txt", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1
    assert rb"na\udcffme.txt: no such file" in done.stderr


@pytest.mark.parametrize("name", [b"na\xffme", "nämé".encode()])
def test_a_name_comes_back_as_it_is(name):
    program = "import sys; from heedful.cli import output;output.open_streams(); output.result(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, name], capture_output=True, check=True, timeout=200)
    assert done.stdout == name + b"\n"


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["2>/dev/full", "2</dev/null", "2>&-"])
def test_a_broken_standard_error_changes_neither_results_nor_the_status(broken):
    done = command(broken, "predict", "run", "nothing.txt")
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")
    done = command(broken, "--bogus")
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")
    done = command(broken, "recipes")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == command("", "recipes").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "why"), [(">/dev/full", b"No space left on device"), ("1</dev/null", b"Bad file descriptor")]
)
@pytest.mark.parametrize("argument", ["recipes", "--version", "--help"])
def test_a_standard_output_that_refuses_is_a_failure_under_its_own_name(broken, why, argument):
    done = command(broken, argument)
    assert done.returncode == 1
    assert done.stderr == b"heedful: standard output cannot be written: " + why + b"\n"


@pytest.fixture
def unread():
    """The number of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("argument", ["recipes", "--version", "--help"])
def test_a_reader_who_leaves_ends_the_command_quietly(argument, unread):
    done = command(f">&{unread}", argument, pass_fds=[unread])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_failure_keeps_its_status_when_nobody_reads(unread):
    done = command(f">&{unread} 2>&1", "predict", "run", "nothing.txt", pass_fds=[unread])
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


WRITER = """
import os
from heedful.cli import output
output.open_streams()
os.set_blocking({number}, False)
for _ in range(200):
    output.{way}("x" * 999)
os.write({other}, b"done")
"""


@pytest.mark.parametrize(("number", "way"), [(1, "result"), (2, "log")])
def test_a_stream_that_does_not_block_is_waited_for(number, way):
    """Whoever shares a pipe may have made it non-blocking, and it holds less than is written here."""
    program = WRITER.format(number=number, way=way, other=3 - number)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=200)
    assert done.returncode == 0
    streams = {1: done.stdout, 2: done.stderr}
    assert streams == {number: (b"x" * 999 + b"\n") * 200, 3 - number: b"done"}


TEXTS = """
import sys
from types import SimpleNamespace
from heedful.cli import output
from heedful.cli.explain_inputs import Inputs
output.open_streams()
from heedful.tasks.task_info import Columns
run = SimpleNamespace(task=SimpleNamespace(columns=Columns((), ("a",), ("b",))))
print(ascii(Inputs([sys.argv[1]], pair=sys.argv[2]).read(run)))
"""


def test_texts_of_the_command_line_are_utf_8_whatever_the_locale():
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    texts = ["café".encode(), b"na\xffme"]
    done = subprocess.run(
        [sys.executable, "-c", TEXTS, *texts], capture_output=True, env=environment, timeout=200
    )
    assert done.stdout.decode() == ascii([("café", "na\udcffme")]) + "\n", done.stderr
