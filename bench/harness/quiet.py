"""Whether the machine was ours alone: other processes spoil a measurement on few cores."""

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")


class Watch:
    """Counts the processor time that others use.

    On Linux alone; elsewhere nobody is seen.
    """

    def __init__(self) -> None:
        self.begin, self.busy, self.own = time.perf_counter(), _busy(), _own()

    def others(self) -> float:
        """Cores that were busy for others on average since this watch began, stolen time included."""
        wall = time.perf_counter() - self.begin
        used = (_busy() - self.busy) - (_own() - self.own)
        return max(used, 0.0) / wall if wall else 0.0


def _busy() -> float:
    """Seconds of all cores at work since the machine started."""
    if not STAT.exists():
        return 0.0
    fields = [int(n) for n in STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, interrupt, soft, steal = fields[:8]
    return (user + nice + system + interrupt + soft + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """Seconds of this process and of its children that have ended."""
    return sum(os.times()[:4]) if STAT.exists() else 0.0
