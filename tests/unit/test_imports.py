"""Imports go one way: a module may import only from its own layer's row or from rows above it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "heedful"

BASE = {
    "errors",
    "checks",
    "config",
    "plugins",
    "parts",
    "files",
    "tables",
    "svg",
    "memory",
    "hardware",
    "forks",
    "typing",
    "identifiers",
    "limits",
    "records",
}

# What each package may import besides itself. The order is the architecture.
BELOW: dict[str, set[str]] = {name: set() for name in BASE} | {
    "errors": {"identifiers"},
    "config": {"parts"},
    "checks": {"errors"},
    "plugins": {"errors", "checks"},
    "parts": {"errors", "plugins"},
    "files": {"errors", "typing"},
    "memory": {"errors"},
    "limits": {"errors"},
    "records": {"errors", "config", "files", "typing"},
}
BELOW["nn"] = BELOW["text"] = BELOW["artifacts"] = BASE
BELOW["models"] = {*BASE, "nn"}
BELOW["data"] = {*BASE, "nn", "text"}
BELOW["objectives"] = {*BASE, "nn", "data"}
BELOW["engine"] = {*BASE, "nn", "models"}
BELOW["decoding"] = {*BASE, "nn", "engine"}
BELOW["training"] = {*BELOW["data"], *BELOW["engine"], "data", "objectives", "engine", "artifacts"}
BELOW["recipes"] = BELOW["training"] | BELOW["decoding"] | {"training", "decoding"}
BELOW["tasks"] = BELOW["recipes"] | {"recipes"}
BELOW["runs"] = BELOW["tasks"] | {"tasks"}
BELOW["model_summary"] = BELOW["explain"] = BELOW["interop"] = BELOW["runs"] | {"runs"}
BELOW["lab"] = BELOW["explain"] | {"explain", "model_summary"}
BELOW["api"] = BELOW["explain"] | {"explain", "interop"}
BELOW["serve"] = BELOW["api"] | {"api"}
BELOW["cli"] = BELOW["lab"] | BELOW["serve"] | {"lab", "serve"}


def imported(path: Path) -> set[str]:
    """First components below ``heedful`` of everything a file imports, at any depth of its code."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names]
    return {p[1] for p in parts if p[0] == "heedful" and len(p) > 1}


PACKAGES = sorted({path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE})


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_modules_import_only_what_lies_below_them(folder):
    layer = folder.relative_to(PACKAGE).parts[0]
    allowed = BELOW[layer] | {layer, "__version__"}
    wrong = {path.name: sorted(imported(path) - allowed) for path in sorted(folder.glob("*.py"))}
    assert not {name: names for name, names in wrong.items() if names}


@pytest.mark.parametrize("name", sorted(BASE))
def test_the_base_imports_nothing_of_heedful(name):
    assert imported(PACKAGE / f"{name}.py") <= BELOW[name]


def modules() -> dict[str, Path]:
    """All files, by the names that they are imported by."""
    parts = {path: path.relative_to(PACKAGE.parent).with_suffix("").parts for path in PACKAGE.rglob("*.py")}
    return {".".join(p for p in own if p != "__init__"): path for path, own in parts.items()}


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports below a node, those in functions too, but not those for types alone."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Import | ast.ImportFrom):
            yield each
        elif not (isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"):
            yield from statements(each)


def test_no_modules_import_each_other():
    known = modules()
    found: dict[str, set[str]] = {}
    for module, path in known.items():
        names = set()
        for statement in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(statement, ast.ImportFrom):
                whole = [f"{statement.module}.{alias.name}" for alias in statement.names]
                names |= {name if name in known else str(statement.module) for name in whole}
            else:
                names |= {alias.name for alias in statement.names}
        found[module] = names & known.keys() - {module}
    assert len(found) > 250
    assert found["heedful.cli.train"] >= {"heedful.cli.output", "heedful.api.training"}
    list(TopologicalSorter(found).static_order())  # raises CycleError, which names the modules


def test_every_package_has_its_place():
    packages = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert packages <= set(BELOW)


@pytest.mark.slow
def test_loading_a_run_does_not_load_the_compiler():
    """It takes as long to import as torch itself, and is needed in long trainings alone."""
    code = "import sys, heedful.api.run, heedful.explain.capture; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_loading_a_run_imports_neither_explanations_nor_other_formats():
    unused = ("explain", "interop", "lab", "model_summary")
    code = (
        f"import sys, heedful; heedful.load; sys.exit(any(f'heedful.{{n}}' in sys.modules for n in {unused}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
