"""Recipes that someone sends: they call declared parts of what the person named, and import nothing.

Every name of every module is tried in every section that takes an import path, with a recorder in place of
what would call it.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import heedful as package
from heedful import parts, plugins
from heedful.config import CustomSection
from heedful.data.functions import PythonSource
from heedful.errors import DataError
from heedful.parts import load_reference
from heedful.tasks.registry import task_class

PLUGIN = '''
"""A package whose author has imported much, and declared a part for every section."""

import builtins
import functools
import importlib
import os
import pathlib
import shutil
import subprocess
import sys
from functools import *
from importlib import *
from importlib.util import *
from os import *
from runpy import *
from shutil import *
from subprocess import *

import numpy
import torch
from torch import nn
from torch.nn import *

import heedful
from heedful.interop.conversion import *
from heedful.nn.attention.scores import *
from heedful.nn.attention.self_attention import *
from heedful.nn.cells import *
from heedful.nn.norms import *
from heedful.nn.visibility import *
from heedful.objectives.cross_entropy import *
from heedful.runs.train import *
from heedful.tasks.classification import Classification, ClassificationConfig, ClassificationRecipe
from heedful.tasks.metrics.error_rates import *
from sent_plugin import further


class OwnScore(ScoreFunction):
    def forward(self, queries, keys): ...


class OwnCell(Cell):
    def forward(self, projected, state): ...


class OwnPattern(AttentionPattern):
    def sees(self, query, key): ...


class OwnModule(nn.Module):
    def forward(self, x, layout=None, cache=None): ...


class OwnLoss:
    def counts(self, batch): ...
    def __call__(self, hidden, heads, batch): ...


class OwnMetric:
    def __call__(self, rows, predictions): ...


class OwnTask(Classification): ...


@heedful.part
def own_rows(): ...


class Deletes:
    """A class that no section can use."""

    def __init__(self, path): shutil.rmtree(path)


class Opens(Popen):
    """Another."""


def delete(path):
    shutil.rmtree(path)


prepared = functools.partial(shutil.rmtree, "x")
erase = delete
read = lambda path: open(path).read()


asked = []


def __getattr__(name):
    asked.append(name)
    raise AttributeError(name)
'''

DECLARED = {
    "CustomScore": {"OwnScore"},
    "CustomCell": {"OwnCell"},
    "CustomVisible": {"OwnPattern"},
    "CustomNorm": {"OwnScore", "OwnCell", "OwnModule"},
    "CustomChannels": {"OwnScore", "OwnCell", "OwnModule"},
    "CustomMixer": {"OwnScore", "OwnCell", "OwnModule"},
    "CustomLoss": {"OwnLoss"},
    "CustomMetric": {"OwnLoss", "OwnMetric", "OwnScore", "OwnCell", "OwnModule", "FurtherMetric"},
    "task.kind": {"OwnTask"},
    "python": set(),
}
"""The classes that fit each section; a metric is what can be called. The marked function is called for any
section, which checks what it returns."""


def subclasses(base: type) -> Iterator[type]:
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


SECTIONS = [each for each in subclasses(CustomSection) if each.__name__ in DECLARED]
"""Every section of a recipe whose kind is an import path."""

ROOT = Path(package.__file__).parent


def test_all_places_that_take_an_import_path_are_attacked():
    assert {section.__name__ for section in SECTIONS} | {"task.kind", "python"} == DECLARED.keys()
    custom = {each.__name__ for each in subclasses(CustomSection) if each.__module__.startswith("heedful.")}
    assert custom - DECLARED.keys() == {"_CustomModule"}
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    callers = {name for name, text in texts.items() if re.search(r"(load|build)_reference\b", text)}
    assert callers == {"parts.py", "config.py", "data/functions.py", "tasks/registry.py"}


@pytest.fixture
def modules(draw, amount):
    """Modules of heedful, and those of Python that start programs."""
    names = [found.name for found in walk_packages([str(ROOT)], "heedful.") if "__main__" not in found.name]
    assert len(names) > 300
    metrics = [metric.partition(":")[0] for metric in parts.METRICS]
    own = [*draw.sample(names, amount(25, len(names))), *metrics, "heedful.tasks.metrics.translation"]
    python = ["os", "subprocess", "importlib", "importlib.util", "functools", "builtins", "runpy", "shutil"]
    return {name: import_module(name) for name in [*own, *python, "torch.nn", "numpy"]}


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    folder = tmp_path / "sent_plugin"
    folder.mkdir()
    (folder / "__init__.py").write_text(PLUGIN)
    metric = "class FurtherMetric:\n    def __call__(self, rows, predictions): ...\n"
    (folder / "further.py").write_text(f"import os\nfrom os import *\n{metric}")
    for name in ("script", "__main__"):
        (folder / f"{name}.py").write_text(f"import os\n{metric}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(plugins.VARIABLE, "sent_plugin")
    monkeypatch.setattr(parts, "_marked", {})
    load_reference("sent_plugin:OwnScore")
    sys.modules["sent_plugin"].asked.clear()  # the import of a submodule asks
    yield sys.modules["sent_plugin"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "sent_plugin"]:
        del sys.modules[name]


@pytest.fixture
def called(monkeypatch):
    """What a recipe would call, as pairs of a section and a part, in place of the calls."""
    found: list[tuple[str, object]] = []
    now = []

    def record(reference, settings, sizes):
        found.append((now[-1], load_reference(reference)))
        return []

    monkeypatch.setattr("heedful.config.build_reference", record)
    monkeypatch.setattr("heedful.data.functions.build_reference", record)

    def attempt(reference, settings):
        for section in SECTIONS:
            now.append(section.__name__)
            given = {name: value for name, value in settings.items() if name not in section.sizes}
            try:
                section.model_validate({"kind": reference, **given}).instance(
                    **dict.fromkeys(section.sizes, 1)
                )
            except ValueError:
                continue
        with suppress(ValueError, KeyError):
            found.append(("task.kind", task_class(reference)))
        now.append("python")
        with suppress(DataError):
            list(PythonSource(function=reference, arguments=settings).open(Path()))

    attempt.found = found
    return attempt


def required(target: object) -> dict[str, str]:
    """Return a value for each setting that a callable requires: without them nothing would be called."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return {}
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [each.name for each in parameters if each.default is each.empty and each.kind in kinds]
    return {name: "x" for name in needed if name not in ("root", "kind")}


@pytest.mark.slow
def test_no_name_of_a_module_is_called_but_declared_parts(plugin, modules, called, draw, amount):
    own = {each.__name__: each for each in (plugin, plugin.further)}
    names = {f"{name}:{key}": value for name, each in own.items() for key, value in vars(each).items()}
    others = {f"{name}:{key}": value for name, each in modules.items() for key, value in vars(each).items()}
    assert len(names) > 800
    assert len(others) > 2000
    kept = {name for name in names if name.partition(":")[2][:3] in ("Own", "own", "Fur")} | parts.METRICS
    tried = {
        *kept,
        *draw.sample([*names], amount(400, len(names))),
        *draw.sample([*others], amount(400, len(others))),
    }
    hidden = [
        f"sent_plugin{module}:{name}"
        for module in (".script", ".__main__", "", ".os")
        for name in ("a", "popen")
    ]
    before = {*sys.modules}
    for reference in filter(parts.is_reference, [*sorted(tried), *hidden]):
        called(reference, required((names | others).get(reference)))
    assert {*sys.modules} - before == set()
    assert plugin.asked == []
    fitting = {(section, each) for section, declared in DECLARED.items() for each in declared}
    expected = {
        (section, getattr(plugin.further if "Further" in each else plugin, each)) for section, each in fitting
    }
    expected |= {(section, plugin.own_rows) for section in DECLARED if section != "task.kind"}
    assert {*called.found} == expected | {
        ("CustomMetric", load_reference(metric)) for metric in parts.METRICS
    }
