"""Programs that use heedful pass strict type checkers, which also find mistakes in them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import heedful

PROGRAMS = Path(__file__).parent / "typed"
EXPECTED = [
    number
    for number, line in enumerate((PROGRAMS / "mistakes.py").read_text(encoding="utf-8").splitlines(), 1)
    if line.endswith("# error")
]

pytestmark = pytest.mark.slow


def run(*command, cwd):
    package = str(Path(heedful.__file__).parents[1])
    environment = {**os.environ, "MYPYPATH": package, "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def mypy(name, folder):
    """The lines of a program that mypy reports."""
    file = str(PROGRAMS / name)
    done = run("mypy", "--strict", "--follow-imports=silent", "--output=json", file, cwd=folder)
    return [json.loads(line)["line"] for line in done.stdout.splitlines() if line.startswith("{")]


def pyright(name, folder):
    """The lines of a program that pyright's strict mode reports."""
    settings = {
        "include": [str(PROGRAMS / name)],
        "typeCheckingMode": "strict",
        "extraPaths": [str(Path(heedful.__file__).parents[1])],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = run("basedpyright", "--outputjson", "--pythonpath", sys.executable, cwd=folder)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [entry["range"]["start"]["line"] + 1 for entry in found if entry["severity"] == "error"]


@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_program_passes(check, tmp_path):
    assert check("program.py", tmp_path) == []


@pytest.mark.parametrize("check", [mypy, pyright])
def test_mistakes_are_found(check, tmp_path):
    found = sorted(set(check("mistakes.py", tmp_path)))
    assert found == EXPECTED
