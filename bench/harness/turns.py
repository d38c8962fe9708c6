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
from harness.runners import ContenderFactory, LocalRunner, ProcessRunner

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

    With a ``factory`` each contender runs in a subprocess, otherwise all run in this process.
    A disturbed turn is repeated up to ``patience`` times; the last repetition counts in any case.
    """
    lock = lock or Lock(None)
    timings = {c.name: Timing() for c in contenders}
    runners: dict[str, LocalRunner | ProcessRunner] = {}
    try:
        for contender in contenders:
            with lock.held():
                runner = (
                    ProcessRunner(contender.name, factory, device)
                    if factory
                    else LocalRunner(contender, device)
                )
                if _prepare(runner, contender, timings[contender.name], warm_up):
                    runners[contender.name] = runner
        # A fixed order would give every contender the same predecessor, whose heat and caches it inherits.
        order, shuffle = list(runners), random.Random(0)
        for round_number in range(rounds):
            shuffle.shuffle(order)
            for name in order:
                with lock.held():
                    seconds, disturbed = runners[name].turn(round_number, patience)
                timings[name].seconds.append(seconds)
                timings[name].disturbed += disturbed
            log(f"round {round_number + 1} of {rounds}")
    finally:
        lock.release()
        for runner in runners.values():
            runner.close()
    return timings


def _prepare(
    runner: LocalRunner | ProcessRunner,
    contender: Contender,
    timing: Timing,
    warm_up: int,
) -> bool:
    """Warm up a contender; return whether it works. Only a failure of heedful is raised."""
    try:
        timing.first, last = runner.warm_up(warm_up)
    except Exception as error:
        runner.close()
        text = str(error) if isinstance(runner, ProcessRunner) else f"{type(error).__name__}: {error}"
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
