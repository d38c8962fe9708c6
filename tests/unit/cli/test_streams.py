"""The command with streams that are closed, and with names that are not UTF-8; in processes of its own."""

import subprocess
import sys

import pytest


def command(redirected, *arguments, **settings):
    """``heedful`` with arguments, after a redirection as the shell writes it."""
    line = f'exec "$0" -m heedful "$@" {redirected}'
    return subprocess.run(
        ["sh", "-c", line, sys.executable, *arguments], capture_output=True, timeout=200, **settings
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
    program = (
        "import sys; from heedful.cli import main, output; main._open_streams(); output.result(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", program, name], capture_output=True, check=True, timeout=200)
    assert done.stdout == name + b"\n"
