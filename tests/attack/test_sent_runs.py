"""Runs that someone sends, crafted with hashes that match, in real processes: none of their code runs."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from heedful.artifacts.run_folder import RunFolder, write_card
from heedful.data.images import LazyImage
from heedful.recipes.yaml import dump_yaml, read_yaml

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
    card = json.loads(folder.card.read_text("utf-8"))
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
