"""The walks of CONTRIBUTING.md: what they say to write is enough to train, to score and for the laws."""

import ast
import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from tiers import sampled

from heedful.runs.reading import read_recipe

ROOT = Path(__file__).parents[2]
WALK = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Two walks")[2]
COPIED = ("src", "tests/laws", "tests/support", "tests/conftest.py", "pyproject.toml")
SHORT = [
    *(f"model.{size}" for size in ("d_model=12", "layer.channels.d_ff=17", "n_layers=1")),
    "data.train.limit=60",
    "data.valid.limit=20",
    "schedule.warmup=1",
    *(f"training.{size}" for size in ("max_updates=4", "validate_every=2", "save_every=2")),
]


class Line(NamedTuple):
    """A line of code, and the table that it goes into."""

    table: str
    path: str
    code: str


class Section(NamedTuple):
    """A class that goes before a table of the same file."""

    table: str
    path: str
    code: str


FILES = re.findall(r"A new file, \*\*([\w/.]+)\*\*:\n\n```python\n(.*?)```", WALK, re.DOTALL)
LINES = [Line(*found) for found in re.findall(
    r"ine in `(\w+)` of\s`([\w/.]+)`[^`]*:\n\n```python\n([^\n]*\n)```", WALK
)]  # fmt: skip
SECTIONS = [Section(*found) for found in re.findall(
    r"section in recipes, before `(\w+)` of `([\w/.]+)`[^`]*:\n\n```python\n(.*?)```", WALK, re.DOTALL
)]  # fmt: skip
COMMANDS = re.findall(r"`heedful train (\S+) (\S+)`", WALK)


def imports():
    """One for each class of the new files."""
    for path, code in FILES:
        module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        yield from (
            (name, f"from {module} import {name}\n") for name in re.findall(r"^class (\w+)", code, re.M)
        )


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The project as it is when somebody has done what is written."""
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    for path, code in FILES:
        (folder / path).write_text(code, encoding="utf-8")
    for section in SECTIONS:
        path = folder / section.path
        text = _imported(path.read_text(encoding="utf-8"), section.code)
        before, table, after = text.partition(f"\n{section.table}: ")
        path.write_text(f"{before}\n{section.code}\n{table}{after}", encoding="utf-8")
    for line in LINES:
        _add(folder / line.path, line)
    return folder


def _add(path, line):
    """Append a line to the table of a file."""
    text = _imported(path.read_text(encoding="utf-8"), line.code)
    tables = [
        node.value for node in ast.parse(text).body if re.match(rf"{line.table}\b.* = ", ast.unparse(node))
    ]
    assert len(tables) == 1, line
    table = ast.get_source_segment(text, tables[0])
    entries, closing = table[:-1].rstrip().removesuffix(","), table[-1]
    path.write_text(text.replace(table, f"{entries},\n{line.code}{closing}"), encoding="utf-8")


def _imported(text, code):
    """The text of a file with the imports that the code needs."""
    for name, statement in imports():
        if re.search(rf"\b{name}\(", code) and statement not in text:
            text = text.replace("\nfrom heedful.", f"\n{statement}from heedful.", 1)
    return text


@pytest.fixture(scope="module")
def python(copy, process, environment):
    """Python that finds the copy, and nothing else of the project."""
    env = {**environment, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": ""}

    def run(*arguments, **settings):
        done = process(*arguments, cwd=copy, env=env, timeout=900, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def test_the_walks_are_two_files_a_section_and_four_lines():
    assert len(FILES) == 2
    assert len(SECTIONS) == 1
    assert [line.table for line in LINES] == ["MIXERS", "MIXERS", "ENCODERS", "CLASS"]


def test_each_ends_in_a_command_that_trains_on_what_is_built_in():
    assert [override for _, override in COMMANDS] == [
        "model.layer.mixer=moving-average",
        "objective.loss=focal",
    ]
    for recipe, _ in COMMANDS:
        data = read_recipe(recipe)[0].data
        assert {source.kind for source in (data.train, data.valid, *data.test.values())} == {"built-in"}


@pytest.mark.slow
@pytest.mark.parametrize("command", sampled(COMMANDS, COMMANDS[1:]), ids=" ".join)
def test_what_was_added_trains_and_is_scored(python, copy, command):
    recipe, override = command
    python("-m", "heedful", "train", recipe, override, *SHORT, "--out", recipe)
    word = override.partition("=")[2]
    assert re.search(rf"(kind|loss): {word}\n", (copy / recipe / "recipe.yaml").read_text(encoding="utf-8"))
    done = python("-m", "heedful", "evaluate", recipe, "--split", "test", "--limit", "20", "--json")
    assert json.loads(done.stdout)["splits"][0]["scores"]


@pytest.mark.slow
def test_the_laws_hold_what_was_added(python):
    chosen = "moving or focal or registry or every_mixer or every_objective"
    done = python("-m", "pytest", "tests/laws", "-k", chosen, "-p", "no:cacheprovider", "-vv")
    assert "[100%]" in done.stdout
    for name in ("encoder, moving-average", "vit, moving-average", "moving average", "class, focal"):
        assert f"[{name}] PASSED" in done.stdout
