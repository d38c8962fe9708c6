"""Detect other processes, which distort measurements on few cores."""

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")


class Watch:
    """Measures the CPU time that other processes use.

    Works on Linux only; on other systems the result is 0.
    """

    def __init__(self) -> None:
        self.begin, self.busy, self.own = time.perf_counter(), _busy(), _own()

    def others(self) -> float:
        """Return the mean number of cores that other processes used since the start, steal time included."""
        wall = time.perf_counter() - self.begin
        busy_elsewhere = (_busy() - self.busy) - (_own() - self.own)
        return max(busy_elsewhere, 0.0) / wall if wall else 0.0


def _busy() -> float:
    """Return the busy seconds of all cores since the machine started."""
    if not STAT.exists():
        return 0.0
    fields = [int(n) for n in STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, interrupt, soft, steal = fields[:8]
    return (user + nice + system + interrupt + soft + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    return sum(os.times()[:4]) if STAT.exists() else 0.0
