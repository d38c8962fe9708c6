"""What is imported is what `pyproject.toml` names, and every lower bound is one."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def names(requirements):
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def imported(folder):
    """Modules of others that files import, at their top or inside functions, with the first file of each."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module]
            else:
                continue
            for module in modules:
                found.setdefault(module.split(".")[0], path.relative_to(ROOT))
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names | {"heedful"}}


@pytest.mark.slow
def test_what_is_imported_is_a_direct_dependency():
    """Not only what another dependency happens to bring.

    pydantic and fastapi fix the versions of their core, and ``uvicorn[standard]`` names uvloop.
    """
    used = ("tensorboard", "heic", "excel", "constraints", "serve")
    extras = [package for extra in used for package in EXTRAS[extra]]
    wanted = names([*PROJECT["dependencies"], *extras]) | {"pydantic-core", "starlette", "uvloop"}
    of_module = packages_distributions()
    modules = imported(ROOT / "src" / "heedful")
    assert {"torch", "PIL", "nltk"} <= modules.keys()
    missing = {
        f"{path}: {name}"
        for name, path in modules.items()
        if not wanted & {canonicalize_name(each) for each in of_module.get(name, [name])}
    }
    assert missing == set()


@pytest.mark.parametrize(
    "text", [*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]
)
def test_every_dependency_has_a_lower_bound_that_the_constraints_satisfy(text):
    requirement = Requirement(text)
    assert [each.operator for each in requirement.specifier if each.operator in (">=", "==")] == [">="]
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    version = pinned.get(canonicalize_name(requirement.name))
    assert version is None or Version(version) in requirement.specifier
