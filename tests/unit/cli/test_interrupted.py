"""Ctrl-C while a verb still imports ends the command, whatever the libraries do with KeyboardInterrupt."""

import subprocess
import sys

import pytest

# Like torch's beginning: what it was told is lost.
GREEDY = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass
except KeyboardInterrupt:
    pass
"""

# Shells start what is to run in the background deaf to interrupts, and so these tests may be.
PROGRAM = """
import signal, sys
from heedful.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main._stop_cleanly()
exec(sys.argv[1], {"__name__": sys.argv[2]})
print("went on")
"""


def run(code, importer, tmp_path):
    (tmp_path / "greedy.py").write_text(GREEDY)
    (tmp_path / "outer.py").write_text("import greedy")
    arguments = [sys.executable, "-c", PROGRAM, code, importer]
    return subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, timeout=200)


@pytest.mark.parametrize(
    "code", ["import greedy", "import outer", "def f():\n  from outer import greedy\nf()"]
)
def test_at_once_while_a_verb_imports(code, tmp_path):
    done = run(code, "heedful.cli.train", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "heedful: interrupted\n")


@pytest.mark.parametrize(
    "code, importer", [("import outer", "heedful.runs.train"), (GREEDY, "heedful.cli.train")]
)
def test_as_an_exception_when_there_may_be_something_to_put_away(code, importer, tmp_path):
    done = run(code, importer, tmp_path)
    assert (done.returncode, done.stdout) == (0, "went on\n")
