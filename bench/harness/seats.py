"""Contenders that are ready for their turn; where memory is short, some end and are built again for it."""

import math
from collections.abc import Callable

from harness import memory
from harness.contender import Contender
from harness.runners import LocalRunner, ProcessRunner

Runner = LocalRunner | ProcessRunner

SPARE = 1 << 30
"""Bytes that stay free for the system and for this process."""


class Seats:
    """Runners of contenders, as many at one time as fit in memory.

    A contender whose need is not known yet is expected to need twice as much as the largest one so far.

    Args:
        make: returns the runner of a contender.
        warm_up: how often the work runs before its first turn.
        available: returns the bytes that can be allocated on the machine.
        limit: the most bytes of all together, such as of a container; None: not limited.
    """

    def __init__(
        self,
        make: Callable[[Contender], Runner],
        warm_up: int,
        available: Callable[[], int | None] = memory.available,
        limit: int | None = None,
    ) -> None:
        self.make, self.warm_up, self.available, self.limit = make, warm_up, available, limit
        self.needs: dict[str, int] = {}
        self.ended: set[str] = set()
        self._ready: dict[str, Runner] = {}  # the one that ran last is the last

    def start(self, contender: Contender) -> tuple[float, float]:
        """Build and warm up a contender; return the seconds of the first and of the last run."""
        name = contender.name
        self._make_room(self.needs.get(name, 2 * max(self.needs.values(), default=0)))
        before = self.available()
        runner = self.make(contender)
        try:
            seconds = runner.warm_up(self.warm_up)
            peak = runner.peak()
        except BaseException:
            runner.close()
            raise
        after = self.available()
        # Processes that it started in turn, such as compilers, are in the difference alone.
        used = max(0, before - after) if before is not None and after is not None else 0
        self.needs[name] = max(peak, used, self.needs.get(name, 0))
        self._ready[name] = runner
        return seconds

    def turn(self, contender: Contender, round_number: int, patience: int) -> tuple[float, bool]:
        """Return the seconds of a turn, and whether other processes disturbed it (`LocalRunner.turn`)."""
        if contender.name not in self._ready:
            self.start(contender)
        runner = self._ready[contender.name] = self._ready.pop(contender.name)
        return runner.turn(round_number, patience)

    def close(self) -> None:
        """End all."""
        while self._ready:
            self._ready.popitem()[1].close()

    def _make_room(self, n_bytes: int) -> None:
        """End contenders, first those that have waited longest, until there are so many bytes."""
        while self._ready and self._free() < n_bytes + SPARE:
            name = next(iter(self._ready))
            self._ready.pop(name).close()
            self.ended.add(name)

    def _free(self) -> float:
        """Return the bytes that another contender may use."""
        limits = [self.available()]
        if self.limit is not None:
            limits.append(self.limit - sum(self.needs[name] for name in self._ready))
        return min((n for n in limits if n is not None), default=math.inf)
