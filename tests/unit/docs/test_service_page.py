"""The page of the service names what there is, and nothing else."""

import ast
import re
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install -e '.[serve]'")

from heedful.serve.answering import CONSTRAINTS, EMBED_OPTIONS, EXPLAIN_OPTIONS, SHARED_OPTIONS, TASK_OPTIONS
from heedful.serve.app import app_of
from heedful.serve.metrics import Metrics
from heedful.serve.service import Limits, Service

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "service.md").read_text(encoding="utf-8")
SOURCES = sorted((ROOT / "src" / "heedful" / "serve").glob("*.py"))


def rows(heading):
    """The cells of the last table of a section, by the code in the first one of each row."""
    section = re.search(rf"^##+ {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]
    table = re.findall(r"^\| (.+?) \|$", section.split("\n### ")[0], re.MULTILINE)
    cells = [re.split(r" (?<!\\)\| ", line) for line in table]
    return {
        name: own
        for own in cells
        for name in re.findall(r"`([^`]+)`|^(\d{3})$", own[0])
        for name in name
        if name
    }


def test_routes():
    paths = app_of(Service({}, Limits())).app.app.openapi()["paths"]
    there = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert {*rows("Routes")} == {*there, "GET /openapi.json", "GET /"}


def test_metrics():
    families = {f.name + "_total" * (f.type == "counter"): f for f in Metrics().registry.collect()}
    table = rows("Metrics")
    assert {*table} == {*families}
    for name, family in families.items():
        assert table[name][1] == family.type


def test_labels_of_metrics():
    labels = {
        metric._name + "_total" * (metric._type == "counter"): metric._labelnames
        for metric in vars(Metrics()).values()
        if hasattr(metric, "_labelnames")
    }
    assert labels
    for name, names in labels.items():
        assert tuple(re.findall(r"`(\w+)`", rows("Metrics")[name][2])) == names


def test_limits():
    table = rows("Limits")
    assert {name: cells[1] for name, cells in table.items()} == {
        name: str(value) for name, value in asdict(Limits()).items()
    }


def refusals():
    """The status and the reason of every refusal in the code that names them."""
    for path in SOURCES:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "RefusedError":
                yield tuple(arg.value if isinstance(arg, ast.Constant) else None for arg in call.args[1:3])


def test_statuses():
    found = {str(status) for status, _ in refusals() if status} | {"401", "403", "405", "421", "431", "500"}
    assert len(found) > 7
    assert {*rows("Errors")} == found


def test_reasons():
    found = {reason for _, reason in refusals() if reason} | {"tokens", "requests"}
    assert len(found) > 8
    text = rows("Metrics")["heedful_refused_total"][3]
    assert {*re.findall(r"`(\w+)`", text)} == found


def test_options():
    found = {*SHARED_OPTIONS, *TASK_OPTIONS, *CONSTRAINTS, *EMBED_OPTIONS, *EXPLAIN_OPTIONS}
    section = PAGE.split("### Options\n")[1].split("\n## ")[0]
    named = {
        n
        for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
        for n in re.findall(r"`(\w+)`", row)
    }
    assert named == found
