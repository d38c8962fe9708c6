"""Programs that use heedful pass strict type checkers, which also find mistakes in them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import sampled

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


def mypy(folder):
    """The files and lines that mypy reports."""
    done = run("mypy", "--strict", "--follow-imports=silent", "--output=json", str(PROGRAMS), cwd=folder)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [(entry["file"], entry["line"]) for entry in found]


def pyright(folder):
    """The files and lines that pyright's strict mode reports."""
    settings = {
        "include": [str(PROGRAMS)],
        "typeCheckingMode": "strict",
        "extraPaths": [str(Path(heedful.__file__).parents[1])],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = run("basedpyright", "--outputjson", "--pythonpath", sys.executable, cwd=folder)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [entry for entry in found if entry["severity"] == "error"]
    return [(entry["file"], entry["range"]["start"]["line"] + 1) for entry in errors]


@pytest.mark.parametrize("check", sampled([mypy, pyright], [pyright]))
def test_a_program_passes_and_mistakes_are_found(check, tmp_path):
    """Both at once: reading torch takes the checkers longest."""
    found = {(Path(file).name, line) for file, line in check(tmp_path)}
    assert found == {("mistakes.py", line) for line in EXPECTED}
