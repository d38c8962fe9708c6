"""Run the lab's experiments and their controls with other seeds, under two instruction sets.

    python tests/verdicts.py                          all experiments, five shifts of all seeds (20 minutes)
    python tests/verdicts.py copying-in-context       the named experiments
    python tests/verdicts.py --shifts 8 --first 6     eight shifts, from the sixth on
    python tests/verdicts.py --under own              under settings with "own" in their name

A first pass with the original seeds measures the time of each experiment; then the cheap ones run first.
Unexpected verdicts are printed as they occur and again at the end; the exit status is then 1.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.lab.experiment import Experiment, Size
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
        name: name of the experiment.
        shift: offset added to all seeds.
        flips: a line for each unexpected verdict and for each error.
        seconds: wall time.
    """

    name: str
    shift: int
    flips: tuple[str, ...]
    seconds: float


def attempt(subject: Experiment, shift: int, size: Size = "short") -> Attempt:
    """Run an experiment and its control."""
    flips, seconds = [], 0.0
    for control in (False, True):
        label = f"{subject.name}{' (control)' if control else ''}, shift {shift}"
        try:
            with shifted(shift):
                result = subject.run(size, control=control)
        except Exception as error:
            flips.append(f"{label}: {error!r}")
            continue
        seconds += result.seconds
        if not result.as_expected:
            measured = ", ".join(f"{each.name} = {each.value:.4g}" for each in result.measured)
            flips.append(f"{label}: {result.verdict!r}, expected {result.expected!r} ({measured})")
    return Attempt(subject.name, shift, tuple(flips), seconds)


def sweep(chosen: Sequence[Experiment], shifts: Sequence[int], size: Size = "short") -> Iterator[Attempt]:
    """Run all experiments with original seeds, then each with all shifts, the cheapest first."""
    seconds: dict[str, float] = {}
    for subject in chosen:
        outcome = attempt(subject, 0, size)
        seconds[subject.name] = outcome.seconds
        yield outcome
    for subject in sorted(chosen, key=lambda each: seconds[each.name]):
        for shift in shifts:
            yield attempt(subject, shift, size)


def run_here(args: argparse.Namespace) -> int:
    """Sweep in this process, and print each attempt."""
    chosen = [experiment(name) for name in args.names] or list(experiments().values())
    flips: list[str] = []
    for outcome in sweep(chosen, range(args.first, args.first + args.shifts), args.size):
        print(f"{outcome.name}, shift {outcome.shift}: {outcome.seconds:.1f} s", flush=True)
        for line in outcome.flips:
            print(f"  FLIP {line}", flush=True)
        flips += outcome.flips
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
    parser.add_argument("--shifts", type=int, default=5, help="number of shifts of the seeds")
    parser.add_argument("--first", type=int, default=1, help="first shift; 0 keeps the seeds")
    parser.add_argument("--size", choices=("short", "long"), default="short", help="form of the experiments")
    parser.add_argument("--under", default="", help="run only settings whose name contains this")
    parser.add_argument(
        "--here", action="store_true", help="run in this process, without changing the environment"
    )
    args = parser.parse_args()
    if args.here:
        return run_here(args)
    failed = []
    for name, variables in SETTINGS.items():
        if args.under in name:
            print(f"== {name}", flush=True)
            environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, str(Path(__file__)), "--here", *sys.argv[1:]]
            if subprocess.run(command, env=environment, check=False).returncode:
                failed.append(name)
    print("verdicts changed under: " + ", ".join(failed) if failed else "all verdicts as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
