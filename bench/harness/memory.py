"""Peak memory: in a process of its own, where nothing else has been."""

import resource
import sys
from multiprocessing import get_context
from pathlib import Path

from harness.seats import Field


def of_contender(field: Field, name: str, rounds: int) -> float | None:
    """MiB that a contender's work adds at its peak to what its process held before; None if it fails.

    Args:
        field: where another process finds it.
        name: of the contender.
        rounds: how often it works.
    """
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (field, name, rounds))


def _run(field: Field, name: str, rounds: int) -> float | None:
    if field.prepare:
        field.prepare()
    contender = field.find(name)
    try:
        reset()
        before = current()
        work = contender.build()
        work(0)
        # The compiler's own memory is not the step's.
        if contender.compiled:
            reset()
        for number in range(rounds):
            work(number)
        return (peak() - before) / 2**20
    except Exception as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def reset() -> None:
    """Forget the peak so far, where the system can."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5", encoding="ascii")


def peak() -> int:
    """Bytes of this process, since `reset`."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def current() -> int:
    """Bytes of this process."""
    return _status("VmRSS") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(key: str) -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = status.read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)
