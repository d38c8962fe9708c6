"""Measure peak memory in a fresh process."""

import resource
import sys
from multiprocessing import get_context
from pathlib import Path

from harness.machine import peak_resident, status_bytes
from harness.runners import ContenderFactory


def added_memory(factory: ContenderFactory, name: str, rounds: int) -> float | None:
    """Return the MiB that a contender adds to its process at the peak, or None if it fails.

    Args:
        factory: builds the contender in another process.
        name: name of the contender.
        rounds: number of rounds.
    """
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (factory, name, rounds))


def _run(factory: ContenderFactory, name: str, rounds: int) -> float | None:
    if factory.prepare:
        factory.prepare()
    contender = factory.find(name)
    try:
        reset()
        bytes_before = current()
        work = contender.build()
        work(0)
        # The memory of the compiler does not count.
        if contender.compiled:
            reset()
        for round_number in range(rounds):
            work(round_number)
        return (peak_resident() - bytes_before) / 2**20
    except Exception as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def reset() -> None:
    """Reset the recorded peak, if the system supports it."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5", encoding="ascii")


def current() -> int:
    """Return the resident bytes of this process."""
    return status_bytes("VmRSS") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def available() -> int | None:
    """Return the bytes that can be allocated without swapping, or None if the system does not report it."""
    path = Path("/proc/meminfo")
    if not path.exists():
        return None
    lines = path.read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
