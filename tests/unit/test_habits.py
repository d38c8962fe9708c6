"""The files for contributors agree with the project: workflow, hooks, editors, citation, templates."""

import configparser
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from ruamel.yaml import YAML

import heedful

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
TARGETS = set(re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read_yaml(path):
    return YAML(typ="safe").load((ROOT / path).read_text(encoding="utf-8"))


WORKFLOW = read_yaml(".github/workflows/tests.yml")
JOBS = WORKFLOW["jobs"]
MATRIX = JOBS["tests"]["strategy"]["matrix"]["include"]
HOOKS = [hook for repo in read_yaml(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]


def commands(job):
    """What a job runs, for each entry of its matrix."""
    entries = job.get("strategy", {}).get("matrix", {}).get("include", [])
    targets = [entry["target"] for entry in entries] or [""]
    for step in job["steps"]:
        for target in targets:
            yield step.get("run", "").replace("${{ matrix.target }}", target)


def made(text):
    """The targets that make is called with."""
    return {target for called in re.findall(r"\bmake((?: [a-z-]+)+)", text) for target in called.split()}


# The workflow ---------------------------------------------------------------------------------------------


def test_the_targets_are_those_of_the_makefile():
    assert {"check", "test", "test-all", "lint", "types"} <= TARGETS
    assert "PYTEST" not in TARGETS


def test_the_workflow_runs_on_pushes_pull_requests_a_schedule_and_by_hand():
    assert WORKFLOW["on"].keys() == {"push", "pull_request", "schedule", "workflow_dispatch"}


def test_the_workflow_calls_targets_that_exist():
    called = set().union(*(made(command) for command in commands(JOBS["tests"])))
    assert called == {"test", "check"} <= TARGETS
    assert {entry["python"]: entry["target"] for entry in MATRIX}["3.11"] == "test"


def test_the_whole_sweep_is_that_of_the_script():
    (step,) = (each for each in JOBS["all"]["steps"] if "CI_FULL" in each.get("env", {}))
    interpreter, script = step["run"].split()
    text = (ROOT / script).read_text(encoding="utf-8")
    assert text.startswith(f"#!/usr/bin/env {interpreter}\n")
    assert "CI_FULL" in text
    assert made(text.partition("set -")[2]) == {"test", "test-all"} <= TARGETS


def test_the_workflow_installs_the_browser_of_the_script():
    packages = r"apt-get install -y --no-install-recommends ([\w -]+?) ?[\\};]"
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (wanted,) = re.findall(packages, script)
    for job in JOBS.values():
        assert re.findall(packages, "\n".join(step.get("run", "") for step in job["steps"])) == [wanted]


def test_versions_of_python_start_at_the_lowest_and_include_the_classifiers():
    versions = [Version(entry["python"]) for entry in MATRIX]
    lowest = min(Version(each.version) for each in SpecifierSet(PROJECT["requires-python"]))
    assert versions == [Version(f"3.{minor}") for minor in range(lowest.minor, lowest.minor + len(versions))]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert {Version(each) for each in named} <= set(versions)
    assert lowest in map(Version, named)


# Hooks and editors ----------------------------------------------------------------------------------------


def test_hooks_are_local_and_their_commands_exist():
    assert {repo["repo"] for repo in read_yaml(".pre-commit-config.yaml")["repos"]} == {"local"}
    called = set()
    for hook in HOOKS:
        if hook["language"] == "pygrep":
            re.compile(hook["entry"].encode())
        else:
            assert hook["language"] == "system"
            assert hook["entry"].startswith("make ")
            assert made(hook["entry"]) <= TARGETS
            called |= made(hook["entry"])
    assert called == {"lint", "types"}


def pattern(name):
    (hook,) = (each for each in HOOKS if each["id"] == name)
    return re.compile(hook["entry"].encode(), re.M if "--multiline" in hook.get("args", []) else 0)


@pytest.mark.parametrize(
    "name, wrong, right",
    [
        ("trailing-whitespace", [b"a \n", b"a\t\n", b"a\r\n", b" \n", b"a "], [b"a b\n", b"\n", b"a"]),
        ("end-of-file", [b"a", b"a\nb", b"a\n\n", b"a\n\n\n"], [b"a\n", b"a\n\nb\n", b""]),
    ],
)
def test_patterns_of_hooks_find_what_they_are_named_after(name, wrong, right):
    assert [text for text in wrong if not pattern(name).search(text)] == []
    assert [text for text in right if pattern(name).search(text)] == []


@pytest.mark.slow
def test_pre_commit_accepts_its_configuration(tmp_path, monkeypatch):
    pytest.importorskip("pre_commit", reason="pre-commit is not installed: pip install -e '.[dev]'")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path))
    command = [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_editors_know_the_line_length_of_ruff():
    settings = configparser.ConfigParser()
    settings.read_string("[top]\n" + (ROOT / ".editorconfig").read_text(encoding="utf-8"))
    assert settings["top"]["root"] == "true"
    assert settings["*.py"].getint("max_line_length") == PYPROJECT["tool"]["ruff"]["line-length"]
    every = settings["*"]
    assert (every["charset"], every["end_of_line"], every["insert_final_newline"]) == ("utf-8", "lf", "true")
    assert every.getint("indent_size") == 4
    assert settings["Makefile"]["indent_style"] == "tab"


# Citation and templates -----------------------------------------------------------------------------------


def test_the_citation_is_that_of_the_project():
    cited = read_yaml("CITATION.cff")
    assert cited["cff-version"] == "1.2.0"
    assert cited["message"]
    assert str(cited["version"]) == PROJECT["version"] == heedful.__version__
    assert (cited["title"], cited["abstract"]) == (PROJECT["name"], PROJECT["description"])
    assert (cited["license"], cited["keywords"]) == (PROJECT["license"], PROJECT["keywords"])
    assert cited["authors"] == PROJECT["authors"]
    assert all(author["name"] in (ROOT / "LICENSE").read_text("utf-8") for author in cited["authors"])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_have_what_a_form_needs(path):
    form = read_yaml(path)
    if path.stem == "config":
        assert form.keys() == {"blank_issues_enabled"}
        return
    assert all(form[key] for key in ("name", "description", "body"))
    names = [part["id"] for part in form["body"]]
    assert len(set(names)) == len(names)
    assert all(part["attributes"]["label"] for part in form["body"])
    assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_there_are_templates_for_bugs_and_features():
    assert {path.stem for path in TEMPLATES} == {"bug", "feature", "config"}


def test_the_checks_of_a_pull_request_exist():
    text = (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text(encoding="utf-8")
    assert {"test"} == made(text) <= TARGETS
    assert all((ROOT / name).is_file() for name in re.findall(r"`(\w+\.md)`", text))
