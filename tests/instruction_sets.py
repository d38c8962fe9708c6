"""Run unit tests, laws and parity under other instruction sets and numbers of threads.

    python tests/instruction_sets.py            all settings, one after the other (an hour or two)
    python tests/instruction_sets.py avx2       settings with "avx2" in their name
    python tests/instruction_sets.py -- -k law  with additional pytest arguments

The last line lists the settings that failed; the exit status is then 1.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("tests/unit", "tests/laws", "tests/parity")
SETTINGS: dict[str, tuple[dict[str, str], int]] = {
    "own instructions, 1 thread": ({}, 1),
    "avx2 for torch, 1 thread": ({"ATEN_CPU_CAPABILITY": "avx2"}, 1),
    "avx2 for oneDNN, 1 thread": ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, 1),
    "no avx2, 1 thread": ({"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}, 1),
    "own instructions, 2 threads": ({}, 2),
    "own instructions, 4 threads": ({}, 4),
}


def passes(name: str, pytest_arguments: list[str]) -> bool:
    """Return whether the tests pass under a setting."""
    variables, threads = SETTINGS[name]
    print(f"== {name}", flush=True)
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "--timeout",
        "1200",
        "--threads",
        str(threads),
        *pytest_arguments,
    ]
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": str(threads)}
    return subprocess.run([*pytest, *FOLDERS], cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    """Run the selected settings."""
    arguments = sys.argv[1:]
    separator = arguments.index("--") if "--" in arguments else len(arguments)
    words, pytest_arguments = arguments[:separator], arguments[separator + 1 :]
    settings = [name for name in SETTINGS if all(word in name for word in words)]
    failed = [name for name in settings if not passes(name, pytest_arguments)]
    print(
        f"{len(settings) - len(failed)} of {len(settings)} settings passed"
        + "".join(f"\n  {n}" for n in failed)
    )
    return 1 if failed or not settings else 0


if __name__ == "__main__":
    sys.exit(main())
