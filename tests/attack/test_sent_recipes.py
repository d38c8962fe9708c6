"""Recipes and runs that someone sends: they call declared parts of what the person named, and import nothing.

First every name of every module is tried in every section that takes an import path, with a recorder in place
of what would call it; then crafted runs, with hashes that match, are given to the real command.
"""

import inspect
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import numpy as np
import pytest

import heedful as package
from heedful import parts, plugins
from heedful.artifacts.run_folder import RunFolder, read_json, write_card
from heedful.config import CustomSection
from heedful.data.functions import PythonSource
from heedful.data.images import LazyImage
from heedful.errors import DataError
from heedful.parts import load_reference
from heedful.recipes.yaml import dump_yaml, read_yaml
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


# Crafted runs -----------------------------------------------------------------------------------------------

RECIPE = {
    "task": {"kind": "image-classification"},
    "model": {
        "kind": "vision", "image_size": 4, "patch_size": 2, "channels": 1, "d_model": 4, "n_layers": 1,
        "layer": {"mixer": {"n_heads": 1}, "channels": {"d_ff": 4}},
    },
}  # fmt: skip
ROWS = [{"image": LazyImage(np.full((4, 4), 99 * n, np.uint8), str(n)), "label": "ab"[n]} for n in range(2)]

MINE = """
import importlib
from functools import partial
from importlib import import_module
from os import system
from pathlib import Path
from subprocess import Popen


class Norm:
    def __init__(self, path):
        Path("ran").touch()


def rows(path):
    Path("ran").touch()
    yield {"image": path, "label": "a"}


def __getattr__(name):
    Path("ran").touch()
    return Norm
"""
RUNS = "from pathlib import Path\nPath('ran').touch()\nclass Norm: ...\nclass Loss: ...\n"

NORM, LOSS, METRICS = ("model", "layer", "norm"), ("objective", "loss"), ("evaluation", "metrics")
OWN = "expected an import path of your own part, got one of Python or of heedful itself"
CLASS = "expected a class, or a function with the decorator @heedful.part, got "
NAMED = "would import the module '{}', which was not named as a plugin; if you trust it, add --plugin"
TRICKS = {
    "find_spec": (NORM, {"kind": "heedful.tasks.metrics.translation:find_spec", "name": "evil.x"}, OWN),
    "interop": (NORM, {"kind": "heedful.interop.conversion:import_run", "path": "x", "out": "ran"}, OWN),
    "imported here": (NORM, {"kind": "heedful.tasks.registry:import_module", "name": "evil"}, OWN),
    "of Python": (NORM, {"kind": "importlib:import_module", "name": "evil"}, OWN),
    "partial": (
        NORM,
        {"kind": "mine:partial", "func": "x"},
        "a class that mine defines, got one of the module f",
    ),
    "import_module": (NORM, {"kind": "mine:import_module", "name": "evil"}, f"{CLASS}a function"),
    "Popen": (
        METRICS,
        [{"kind": "mine:Popen", "args": "touch ran", "shell": True}],
        "got one of the module subp",
    ),
    "system": (METRICS, [{"kind": "mine:system", "command": "touch ran"}], f"{CLASS}a builtin"),
    "a class": (NORM, {"kind": "mine:Norm", "path": "x"}, "mine:Norm: expected a subclass of torch.nn"),
    "a function": (NORM, {"kind": "mine:rows", "path": "x"}, f"mine:rows: {CLASS}a function"),
    "__getattr__": (NORM, {"kind": "mine:Other"}, "the module mine has no 'Other'"),
    "a task": (("task", "kind"), "mine:Norm", "mine:Norm: expected a subclass of heedful.tasks.base.Task"),
    "a package": (NORM, {"kind": "evil:Norm"}, f"evil:Norm {NAMED.format('evil')}"),
    "a module": (NORM, {"kind": "evil.x:Norm"}, f"evil.x:Norm {NAMED.format('evil.x')}"),
    "a script": (LOSS, {"kind": "mine.script:Loss"}, "the plugin mine does not import mine.script"),
    "main": (LOSS, {"kind": "mine.__main__:Loss"}, "the plugin mine does not import mine.__main__"),
    "rows": (
        ("data", "test"),
        {"x": {"kind": "python", "function": "mine:rows", "arguments": {"path": "x"}}},
        f"mine:rows: {CLASS}a function",
    ),
}


@pytest.fixture(scope="module")
def honest(make_run, tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("honest") / "run", RECIPE, ROWS)


@pytest.fixture
def sent(honest, tmp_path):
    """A folder as it is unpacked: a run, a package that would like to run, and one of the person's own."""
    shutil.copytree(honest, tmp_path / "evilrun")
    for name, content in (("evil", RUNS), ("mine", MINE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(content)
    for name in ("evil/x.py", "mine/script.py", "mine/__main__.py", "evilrun/__init__.py"):
        (tmp_path / name).write_text(RUNS)
    return tmp_path


def craft(run: Path, key: tuple[str, ...], value: object) -> None:
    """Write a setting into the recipe of a run, and hashes that match."""
    folder = RunFolder(run)
    recipe = read_yaml(folder.recipe.read_text("utf-8"), "recipe").data
    section = recipe
    for name in key[:-1]:
        section = section[name]
    section[key[-1]] = value
    folder.recipe.write_text(dump_yaml(recipe), "utf-8")
    card = read_json(folder.card)
    card["files"] |= folder.hashes([folder.recipe])
    write_card(folder.card, card)


LOAD = """
import json
import sys

import heedful

messages = {}
for name in sys.argv[1:]:
    try:
        heedful.load(name, plugins=["./mine"]).evaluate("test")
    except heedful.RequestError as error:
        messages[name] = str(error)
print(json.dumps(messages))
"""


@pytest.mark.slow
def test_crafted_runs_run_nothing_in_python(sent, process):
    for trick, (key, value, _) in TRICKS.items():
        shutil.copytree(sent / "evilrun", sent / trick)
        craft(sent / trick, key, value)
    done = process("-c", LOAD, *TRICKS, cwd=sent)
    assert done.returncode == 0, done.stderr
    messages = json.loads(done.stdout)
    assert not {
        trick: messages.get(trick) for trick in TRICKS if TRICKS[trick][2] not in messages.get(trick, "")
    }
    assert not (sent / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trick", "verb"),
    [
        *zip(["find_spec", "__getattr__", "a script"], ["predict", "describe", "explain"], strict=True),
        ("rows", "evaluate"),
        *(pytest.param(trick, "describe", marks=pytest.mark.full) for trick in TRICKS if trick != "rows"),
    ],
)
def test_a_crafted_run_runs_nothing_and_the_command_names_what_it_would_import(trick, verb, sent, heedful):
    key, value, message = TRICKS[trick]
    craft(sent / "evilrun", key, value)
    inputs = ["x.png"] if verb == "explain" else []
    done = heedful("--plugin", "./mine", verb, "evilrun", *inputs, cwd=sent)
    assert done.status == 2, done.err
    assert message in done.err
    assert not (sent / "ran").exists()


@pytest.mark.slow
def test_a_declared_class_of_the_same_package_runs(sent, heedful):
    """Else the test above would see nothing."""
    assert heedful("describe", "evilrun", cwd=sent).status == 0
    craft(sent / "evilrun", NORM, {"kind": "mine:Own"})
    (sent / "mine" / "__init__.py").write_text(
        f"{MINE}\nimport torch\nclass Own(torch.nn.Identity):\n"
        "    def __init__(self):\n        super().__init__()\n        Path('ran').touch()\n"
    )
    done = heedful("--plugin", "./mine", "describe", "evilrun", cwd=sent)
    assert done.status == 0, done.err
    assert (sent / "ran").exists()


@pytest.mark.slow
def test_files_of_the_current_folder_are_not_imported_by_the_command(sent, process):
    """Modules with the names of all that is imported, and a distribution that declares a plugin."""
    craft(sent / "evilrun", NORM, {"kind": "evil:Norm"})
    (sent / "evil-1.dist-info").mkdir()
    (sent / "evil-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    (sent / "evil-1.dist-info" / "entry_points.txt").write_text("[heedful.plugins]\nx = evil\n")
    (sent / "started.py").write_text("import sys\nprint(*sys.modules)\n")
    before_us = {*process("-m", "started", cwd=sent).stdout.split()}
    assert "runpy" in before_us  # Python imports it before any code of heedful
    planted = {
        name for name in {*sys.modules, "MeCab", "ipadic", *sys.stdlib_module_names} if "." not in name
    }
    planted -= {*before_us, "heedful", "__main__"}
    assert {"torch", "typing", "re", "pydantic", "sacrebleu"} <= planted
    for name in planted:
        (sent / f"{name}.py").write_text(RUNS)
    done = process("-m", "heedful", "predict", "evilrun", cwd=sent)
    assert done.returncode == 2, done.stderr
    assert "evil:Norm would import the module 'evil', which was not named as a plugin" in done.stderr
    assert not (sent / "ran").exists()
    for name in planted:
        (sent / f"{name}.py").unlink()
    set_by_user = {**os.environ, "PYTHONPATH": str(sent), "OMP_NUM_THREADS": "1"}
    process("-m", "heedful", "--plugin", "evil", "predict", "evilrun", cwd=sent, env=set_by_user)
    assert (sent / "ran").exists()
