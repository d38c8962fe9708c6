"""Interleaved measurement of contenders: A B C A B C ...

The speed of a machine drifts, especially of a virtual one. So the measurements are interleaved: in each
round every contender runs once on the same batch, and ratios are computed within rounds.
"""

import fcntl
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from harness.contender import Contender
from harness.runners import ContenderFactory, LocalRunner, ProcessError, ProcessRunner
from harness.seats import Runner, Seats
from heedful.memory import machine_memory

STRETCH = 120.0
"""Seconds after which the lock is released between two turns, for others that wait for it."""


class Lock:
    """File lock for benchmarks that share a machine; without a path it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self.file: IO[str] | None = path.open("a") if path else None
        self.since: float | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Acquire the lock if it is not held; keep it afterwards unless it has been held for `STRETCH`."""
        if self.file and self.since is None:
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self.since = time.monotonic()
        yield
        if self.since and time.monotonic() - self.since > STRETCH:
            self.release()
            time.sleep(0.5)

    def release(self) -> None:
        """Release the lock."""
        if self.file and self.since is not None:
            fcntl.flock(self.file, fcntl.LOCK_UN)
            self.since = None


@dataclass
class Timing:
    """Measurements of a contender.

    Args:
        seconds: time of each round's turn.
        disturbed: number of these turns that other processes disturbed.
        first: seconds of building and the first call, in which a compiled contender compiles.
        failure: error message if it could not run.
    """

    seconds: list[float] = field(default_factory=list)
    disturbed: int = 0
    first: float = 0.0
    failure: str = ""

    @property
    def compile_seconds(self) -> float:
        """What the first call took beyond the work itself."""
        return max(self.first - statistics.median(self.seconds), 0.0) if self.seconds else self.first


def measure(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    factory: ContenderFactory | None = None,
    warm_up: int = 3,
    patience: int = 0,
    device: str = "cpu",
    lock: Lock | None = None,
) -> dict[str, Timing]:
    """Build and warm up every contender, then measure them in turn for ``rounds`` rounds.

    With a ``factory`` each contender runs in a subprocess, otherwise all run in this process. Where memory
    does not suffice for all subprocesses, some end between their turns (`harness.seats`).
    A disturbed turn is repeated up to ``patience`` times; the last repetition counts in any case.
    """
    lock = lock or Lock(None)
    timings = {c.name: Timing() for c in contenders}

    def make(contender: Contender) -> Runner:
        return ProcessRunner(contender.name, factory, device) if factory else LocalRunner(contender, device)

    seats = Seats(make, warm_up, limit=machine_memory())
    try:
        order = []
        for contender in contenders:
            with lock.held():
                if _prepare(seats, contender, timings[contender.name]):
                    order.append(contender)
        _log_memory(seats)
        # A fixed order would give every contender the same predecessor, whose heat and caches it inherits.
        shuffle = random.Random(0)
        for round_number in range(rounds):
            shuffle.shuffle(order)
            for contender in order:
                with lock.held():
                    seconds, disturbed = seats.turn(contender, round_number, patience)
                timings[contender.name].seconds.append(seconds)
                timings[contender.name].disturbed += disturbed
            log(f"round {round_number + 1} of {rounds}")
    finally:
        lock.release()
        seats.close()
    return timings


def _log_memory(seats: Seats) -> None:
    """Log what all contenders need together, and which do not fit beside the others."""
    needed = sum(seats.needs.values()) / 2**30
    if seats.ended:
        log(
            f"the contenders need {needed:.1f} GiB together, more than is available: some end between their "
            "turns, and are built and warmed up again for each, which takes longer"
        )
    elif needed:
        log(f"the contenders need {needed:.1f} GiB together")


def _prepare(seats: Seats, contender: Contender, timing: Timing) -> bool:
    """Warm up a contender; return whether it works. Only a failure of heedful is raised."""
    try:
        timing.first, last = seats.start(contender)
    except Exception as error:
        text = str(error) if isinstance(error, ProcessError) else f"{type(error).__name__}: {error}"
        timing.failure = text.strip().splitlines()[0][:120]
        log(f"{contender.name}: {timing.failure}")
        if contender.library == "heedful":
            raise
        return False
    log(f"{contender.name}: first {timing.first:.2f} s, then {last:.3f} s")
    return True


def log(text: str) -> None:
    """Print to standard error."""
    print(text, file=sys.stderr, flush=True)
