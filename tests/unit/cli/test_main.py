"""The entry point of the command: what holds for every verb."""

import subprocess
import sys

import pytest

from heedful.cli.main import _run
from heedful.errors import RequestError

PROGRAM = """
import atexit, gc, sys
from heedful.cli.main import main
n_objects = len(gc.get_objects())
atexit.register(lambda: print(gc.get_freeze_count() >= n_objects, gc.isenabled()))
sys.argv = ["heedful", *sys.argv[1:]]
main()
"""


def test_what_was_imported_is_not_searched_for_garbage_at_exit():
    """Of torch's objects that takes half a second, at the end of every command."""
    for arguments, status in ((["--version"], 0), (["train", "no-such-recipe"], 2)):
        command = [sys.executable, "-c", PROGRAM, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        assert ended.stdout.splitlines()[-1] == "True True"
        assert ended.returncode == status


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        (["--training.max_updates", "5"], "training.max_updates=5"),
        (["--training.max_updates=5"], "training.max_updates=5"),
        (["--training.max_updates"], "training.max_updates=VALUE"),
        (["--num-train-epochs", "3"], "training.max_epochs=3"),
    ],
)
def test_a_setting_as_an_option_is_shown_as_it_is_written(arguments, written):
    with pytest.raises(RequestError) as refused:
        _run(["train", "base.yaml", *arguments])
    message = f"no such option; settings are written without dashes: {written}"
    assert str(refused.value) == f"{arguments[0].split('=')[0]}: {message}"
