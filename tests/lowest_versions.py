"""Run the tests with the lowest versions of direct dependencies that ``pyproject.toml`` allows.

    python tests/lowest_versions.py                          in a temporary environment (half an hour)
    python tests/lowest_versions.py --environment ENV        in one that is kept and used again
    python tests/lowest_versions.py -- tests/unit -k explain with other arguments for pytest

torch stays at the version of ``constraints.txt``, whose build for CPUs is small. What the dependencies
depend on themselves is as new as they allow. The exit status is that of pytest.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
EXTRAS = ("tensorboard", "dev")
KEPT = "torch"


def requirements() -> Iterator[Requirement]:
    """What is installed directly: dependencies, and those of `EXTRAS`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for text in (*project["dependencies"], *(each for name in EXTRAS for each in extras[name])):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement


def lowest(requirement: Requirement) -> str:
    """The lower bound of a requirement.

    Raises:
        ValueError: it has none.
    """
    for each in requirement.specifier:
        if each.operator == ">=":
            return each.version
    raise ValueError(f"{requirement.name}: expected a lower bound in pyproject.toml")


def pins() -> list[str]:
    """A line for pip for each direct dependency; the higher bound where two extras name the same one."""
    constrained = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    kept = [line for line in constrained if line.startswith(f"{KEPT}==")]
    bounds: dict[str, list[str]] = {}
    for each in requirements():
        if each.name != KEPT:
            bounds.setdefault(each.name, []).append(lowest(each))
    return kept + [f"{name}=={max(found, key=_numbers)}" for name, found in bounds.items()]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def installed(environment: Path) -> Path:
    """Make the environment, and return its Python."""
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    (environment / "lowest.txt").write_text("\n".join(pins()) + "\n", encoding="utf-8")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = f"{ROOT}[{','.join(EXTRAS)}]"
    subprocess.run([*pip, "-c", environment / "lowest.txt", "-e", wanted], check=True)
    print("\n".join(pins()), flush=True)
    return python


def main() -> int:
    """Install, and run the tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--environment", type=Path, help="a folder for it")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        python = installed((asked.environment or Path(temporary)).absolute())
        arguments = asked.pytest or ["-n", "2", "--dist", "loadfile"]
        return subprocess.run([python, "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
