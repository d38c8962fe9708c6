"""Run unit tests, laws and parity under other instruction sets and numbers of threads.

    python tests/instruction_sets.py            all of them, one after the other (an hour or two)
    python tests/instruction_sets.py avx2       those whose name has "avx2"
    python tests/instruction_sets.py -- -k law  with further arguments for pytest

The last line says which failed; the exit status is 1 then.
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


def passes(name: str, more: list[str]) -> bool:
    """Whether the tests pass under a setting."""
    variables, threads = SETTINGS[name]
    print(f"== {name}", flush=True)
    pytest = [sys.executable, "-m", "pytest", "--timeout", "1200", "--threads", str(threads), *more]
    environment = {**os.environ, **variables, "OMP_NUM_THREADS": str(threads)}
    return subprocess.run([*pytest, *FOLDERS], cwd=ROOT, env=environment, check=False).returncode == 0


def main() -> int:
    """Run the settings that were asked for."""
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    wanted, more = given[:cut], given[cut + 1 :]
    chosen = [name for name in SETTINGS if all(word in name for word in wanted)]
    failed = [name for name in chosen if not passes(name, more)]
    print(
        f"{len(chosen) - len(failed)} of {len(chosen)} settings passed" + "".join(f"\n  {n}" for n in failed)
    )
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
