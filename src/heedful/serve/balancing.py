"""Engines move between runs: from one that nobody uses to one whose requests wait."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from heedful.serve.service import Served

CHECK_SECONDS = 1.0
"""Seconds between two checks."""

CHECKS = 3
"""Number of checks in a row at which a run must be busy, or idle: a new engine takes seconds to load."""

BUSY_SECONDS = 0.3
"""A run is busy if its requests take longer than this, by the measured rate, or one was refused."""

FRONT_BYTES = 64 << 20
"""Memory of the front."""


@dataclass(eq=False)
class _Load:
    """For how many checks a run has been busy, or idle."""

    busy: int = 0
    idle: int = 0
    admitted: int = 0
    refused: int = 0


@dataclass(eq=False)
class Balancer:
    """Moves engines between the runs of a service; each keeps at least one.

    Args:
        runs: the runs.
        memory: bytes that all engines may take; None: not known.
    """

    runs: Sequence[Served]
    memory: int | None = None
    _loads: dict[Served, _Load] = field(init=False)

    def __post_init__(self) -> None:
        self._loads = {run: _Load() for run in self.runs}

    async def watch(self) -> None:
        """Check the runs until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if (move := self.check()) is not None:
                source, target = move
                if await source.engines.remove():
                    await target.engines.add()
                    source.fit_bounds()
                    target.fit_bounds()

    def check(self) -> tuple[Served, Served] | None:
        """Note how busy each run is; return the runs from which and to which an engine moves, if any."""
        for run, load in self._loads.items():
            admission = run.admission
            waits = admission.requests > run.engines.n and admission.backlog > BUSY_SECONDS
            load.busy = load.busy + 1 if waits or admission.refused > load.refused else 0
            load.refused = admission.refused
            is_unused = not admission.requests and admission.admitted == load.admitted
            load.idle = load.idle + 1 if is_unused else 0
            load.admitted = admission.admitted
        busy = [run for run, load in self._loads.items() if load.busy >= CHECKS]
        idle = [run for run, load in self._loads.items() if load.idle >= CHECKS and run.engines.n > 1]
        if not busy or not idle:
            return None
        target = max(busy, key=lambda run: run.admission.backlog)
        source = max(idle, key=lambda run: run.engines.n)
        added = target.engines.run.memory - source.engines.run.memory
        if self.memory is not None and self._needed() + added > self.memory:
            return None
        self._loads[target].busy = 0
        return source, target

    def _needed(self) -> int:
        return FRONT_BYTES + sum(run.engines.n * run.engines.run.memory for run in self.runs)
