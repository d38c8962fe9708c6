"""The walks of CONTRIBUTING.md: what they say to write is enough to train, to predict and for the laws."""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
WALK = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Two walks")[2]
COPIED = ("src", "tests/laws", "tests/conftest.py", "pyproject.toml")
ROWS = "".join(f"{label}\t{text}\n" for label, text in [("one", "a red dog"), ("two", "the cat sleeps")] * 12)
SMALL = ["d_model=12", "d_ff=17", "n_heads=3", "n_layers=1", "kernel=3", "max_length=15"]


class Line(NamedTuple):
    """A line of code, and the table that it goes into."""

    table: str
    path: str
    code: str


FILES = re.findall(r"A new file, \*\*([\w/.]+)\*\*:\n\n```python\n(.*?)```", WALK, re.DOTALL)
LINES = [Line(*found) for found in re.findall(
    r"ine in `(\w+)` of\s`([\w/.]+)`[^`]*:\n\n```python\n([^\n]*\n)```", WALK
)]  # fmt: skip


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
    for line in LINES:
        _add(folder / line.path, line)
    (folder / "rows.tsv").write_text(ROWS, encoding="utf-8")
    return folder


def _add(path, line):
    text = path.read_text(encoding="utf-8")
    for name, statement in imports():
        if f"{name}(" in line.code and statement not in text:
            text = text.replace("\nfrom heedful.", f"\n{statement}from heedful.", 1)
    begun, n = re.subn(
        rf"^({line.table}\b.*\{{\n)", lambda found: found[1] + line.code, text, count=1, flags=re.M
    )
    assert n == 1, line
    path.write_text(begun, encoding="utf-8")


@pytest.fixture(scope="module")
def python(copy, process, environment):
    """Python that finds the copy, and nothing else of the project."""
    env = {**environment, "PYTHONPATH": str(copy / "src")}

    def run(*arguments, **settings):
        done = process(*arguments, cwd=copy, env=env, timeout=900, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def test_the_walks_are_two_files_and_three_lines():
    assert len(FILES) == 2
    assert [line.table for line in LINES] == ["MIXERS", "MIXERS", "CLASS"]


@pytest.mark.slow
def test_what_was_added_trains_and_predicts(python, copy):
    source = "{kind: tsv, paths: rows.tsv, columns: {label: 0, text: 1}}"
    overrides = [
        *(f"data.{part}={source}" for part in ("train", "valid", "test.test")),
        *(f"model.{size}" for size in SMALL),
        "model.mixer=moving-average",
        "objective.loss=focal",
        "tokenizer.subwords={kind: word}",
        "schedule.warmup=1",
        "training={max_updates: 4, tokens_per_update: 90, validate_every: 2, save_every: 2}",
    ]
    (copy / "mine.yaml").write_text("base: my-own-labels\n", encoding="utf-8")
    python("-m", "heedful", "train", "mine.yaml", *overrides, "--out", "run")
    done = python("-m", "heedful", "predict", "run", input="a red dog\n\nthe cat\n")
    assert len(done.stdout.splitlines()) == 3
    recipe = (copy / "run" / "recipe.yaml").read_text(encoding="utf-8")
    assert "mixer: moving-average" in recipe
    assert "loss: focal" in recipe


@pytest.mark.slow
def test_the_laws_hold_what_was_added(python):
    chosen = "moving or focal or registry or every_mixer or every_objective"
    done = python("-m", "pytest", "tests/laws", "-k", chosen, "-p", "no:cacheprovider")
    assert "[100%]" in done.stdout
    listed = python("-m", "pytest", "tests/laws", "-k", "moving or focal", "--collect-only").stdout
    for name in ("encoder, moving-average", "vit, moving-average", "moving average", "class, focal"):
        assert name in listed
