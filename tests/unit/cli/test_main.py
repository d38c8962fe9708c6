"""The entry point of the command: what holds for every verb."""

import re
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
        (["--max_epochs", "3"], "training.max_epochs=3"),
        (["--max-minutes=3"], "training.max_minutes=3"),
    ],
)
def test_a_setting_as_an_option_is_shown_as_it_is_written(arguments, written):
    with pytest.raises(RequestError) as refused:
        _run(["train", "base.yaml", *arguments])
    message = f"no such option; settings are written without dashes: {written}"
    assert str(refused.value) == f"{arguments[0].split('=')[0]}: {message}"


def run_main(*arguments):
    command = [sys.executable, "-m", "heedful", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("place", [0, 1, 99])
def test_quiet_leaves_results_and_errors(place):
    usual, quiet = (
        run_main(*["recipes", "--json"][:place], *flags, *["recipes", "--json"][place:])
        for flags in ([], ["--quiet"])
    )
    assert quiet.stdout == usual.stdout
    assert quiet.stderr == ""
    wrong = run_main(*["recipes", "nosuch"][:place], "--quiet", *["recipes", "nosuch"][place:])
    assert wrong.returncode == 2
    assert wrong.stderr == "heedful: unknown recipe 'nosuch'; heedful recipes lists them\n"


def test_verbose_shows_versions_and_where_an_error_was_raised():
    wrong = run_main("recipes", "nosuch", "--verbose")
    assert wrong.returncode == 2
    first, *_, last = wrong.stderr.splitlines()
    assert re.fullmatch(r"\[ +\d+\.\d\d s\] heedful \S+: CPython \S+, torch .*", first)
    assert "cli/recipes.py" in wrong.stderr
    assert last == "heedful: unknown recipe 'nosuch'; heedful recipes lists them"


def test_one_of_quiet_and_verbose():
    wrong = run_main("recipes", "--quiet", "--verbose")
    assert wrong.returncode == 2
    assert wrong.stderr == "heedful: --quiet and --verbose: expected one of them\n"
