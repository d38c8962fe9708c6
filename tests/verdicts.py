"""Run the lab's experiments and their controls with other seeds, under two instruction sets.

    python tests/verdicts.py                          all of them, five shifts of all seeds (20 minutes)
    python tests/verdicts.py copying-in-context       some of them
    python tests/verdicts.py --shifts 8 --first 6     eight shifts, from the sixth on
    python tests/verdicts.py --under own              under the settings whose name has "own"

A first pass with the seeds as they are takes the time of each experiment; then the cheap ones come first.
Verdicts that are not the expected ones are printed as they occur and at the end; the exit status is 1 then.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.lab.experiment import Experiment, Size, perform
from heedful.lab.registry import experiment, experiments
from heedful.lab.seeds import shifted

SETTINGS: dict[str, dict[str, str]] = {
    "own instructions": {},
    "no avx2": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}


@dataclass(frozen=True)
class Attempt:
    """An experiment and its control under one shift of all seeds.

    Args:
        name: of the experiment.
        shift: of the seeds.
        flips: a line for each verdict that is not the expected one, and for each error.
        seconds: of wall time.
    """

    name: str
    shift: int
    flips: tuple[str, ...]
    seconds: float


def attempt(own: Experiment, shift: int, size: Size = "short") -> Attempt:
    """Run an experiment and its control."""
    flips, seconds = [], 0.0
    for control in (False, True):
        where = f"{own.name}{' (control)' if control else ''}, shift {shift}"
        try:
            with shifted(shift):
                made = perform(own, size, control=control)
        except Exception as error:
            flips.append(f"{where}: {error!r}")
            continue
        seconds += made.seconds
        if not made.as_expected:
            shown = ", ".join(f"{each.name} = {each.value:.4g}" for each in made.outcome.measured)
            flips.append(f"{where}: {made.outcome.verdict!r}, expected {made.expected!r} ({shown})")
    return Attempt(own.name, shift, tuple(flips), seconds)


def sweep(chosen: Sequence[Experiment], shifts: Sequence[int], size: Size = "short") -> Iterator[Attempt]:
    """Run all with their own seeds, then each with all shifts, the cheap ones first."""
    seconds: dict[str, float] = {}
    for own in chosen:
        made = attempt(own, 0, size)
        seconds[own.name] = made.seconds
        yield made
    for own in sorted(chosen, key=lambda each: seconds[each.name]):
        for shift in shifts:
            yield attempt(own, shift, size)


def run_here(asked: argparse.Namespace) -> int:
    """Sweep in this process, and print each attempt."""
    chosen = [experiment(name) for name in asked.names] or list(experiments().values())
    flips: list[str] = []
    for made in sweep(chosen, range(asked.first, asked.first + asked.shifts), asked.size):
        print(f"{made.name}, shift {made.shift}: {made.seconds:.1f} s", flush=True)
        for line in made.flips:
            print(f"  FLIP {line}", flush=True)
        flips += made.flips
    print(
        f"{len(chosen)} experiments, {len(flips)} flips" + "".join(f"\n  {line}" for line in flips),
        flush=True,
    )
    return 1 if flips else 0


def main() -> int:
    """Run this script once for each setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="experiments; without any, all")
    parser.add_argument("--shifts", type=int, default=5, help="how many shifts of the seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them; 0 keeps the seeds")
    parser.add_argument("--size", choices=("short", "long"), default="short", help="form of the experiments")
    parser.add_argument("--under", default="", help="a part of the names of settings")
    parser.add_argument("--here", action="store_true", help="in this process, under no setting")
    asked = parser.parse_args()
    if asked.here:
        return run_here(asked)
    failed = []
    for name, variables in SETTINGS.items():
        if asked.under in name:
            print(f"== {name}", flush=True)
            environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, str(Path(__file__)), "--here", *sys.argv[1:]]
            if subprocess.run(command, env=environment, check=False).returncode:
                failed.append(name)
    print("verdicts changed under: " + ", ".join(failed) if failed else "every verdict is the expected one")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
