"""Run the tests with the lowest versions of direct dependencies that ``pyproject.toml`` allows.

    python tests/lowest_versions.py                          in a temporary environment (half an hour)
    python tests/lowest_versions.py --environment ENV        in a persistent environment
    python tests/lowest_versions.py -- tests/unit -k explain with other arguments for pytest

torch stays at the version of ``constraints.txt``, which has a small CPU build. Indirect dependencies are as
new as allowed. The exit status is that of pytest.
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
    """Yield the direct dependencies, including those of `EXTRAS`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for text in (
        *project["dependencies"],
        *(requirement_text for name in EXTRAS for requirement_text in extras[name]),
    ):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement


def lowest(requirement: Requirement) -> str:
    """Return the lower bound of a requirement.

    Raises:
        ValueError: The requirement has no lower bound.
    """
    for specifier in requirement.specifier:
        if specifier.operator == ">=":
            return specifier.version
    raise ValueError(f"{requirement.name}: expected a lower bound in pyproject.toml")


def pins() -> list[str]:
    """Return a pip pin per direct dependency; if two extras name the same one, the higher bound."""
    constrained = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    torch_pin = [line for line in constrained if line.startswith(f"{KEPT}==")]
    bounds: dict[str, list[str]] = {}
    for requirement in requirements():
        if requirement.name != KEPT:
            bounds.setdefault(requirement.name, []).append(lowest(requirement))
    return torch_pin + [f"{name}=={max(versions, key=_numbers)}" for name, versions in bounds.items()]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def installed(environment: Path) -> Path:
    """Create the environment, and return its Python."""
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    (environment / "lowest.txt").write_text("\n".join(pins()) + "\n", encoding="utf-8")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    project = f"{ROOT}[{','.join(EXTRAS)}]"
    subprocess.run([*pip, "-c", environment / "lowest.txt", "-e", project], check=True)
    print("\n".join(pins()), flush=True)
    return python


def main() -> int:
    """Install the lowest versions, and run the tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--environment", type=Path, help="folder of the environment")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        python = installed((args.environment or Path(temporary)).absolute())
        arguments = args.pytest or ["-n", "2", "--dist", "loadfile"]
        return subprocess.run([python, "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
