"""Contenders in turn: A B C A B C ...

The speed of a machine drifts, most of all of a rented one. So nobody is measured in one stretch: in
each round everybody gets one turn on the same batch, and ratios are formed within rounds.
"""

import fcntl
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from harness.contender import Contender, Work
from harness.machine import synchronise
from harness.quiet import Watch

STRETCH = 120.0
"""Seconds after which a lock that others wait for is given up between two turns."""

TURN = 0.5
"""Seconds that a turn takes at least; short work is repeated."""

DISTURBED = 0.1
"""Cores that others may use during a turn; a turn in which they use more is taken again."""

REST = 0.25
"""Seconds before a turn, in which the waiting threads of the one before fall asleep."""


class Lock:
    """Lets benchmarks that share a machine take turns: a lock on a file, or nothing."""

    def __init__(self, path: Path | None) -> None:
        self.file: IO[str] | None = path.open("a") if path else None
        self.since: float | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the lock where it is not held; keep it afterwards if it was not held for long."""
        if self.file and self.since is None:
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self.since = time.monotonic()
        yield
        if self.since and time.monotonic() - self.since > STRETCH:
            self.release()
            time.sleep(0.5)

    def release(self) -> None:
        """Let the others go on."""
        if self.file and self.since is not None:
            fcntl.flock(self.file, fcntl.LOCK_UN)
            self.since = None


@dataclass
class Timing:
    """What was measured of a contender.

    Args:
        seconds: of each round's turn.
        disturbed: how many of these turns others disturbed.
        first: seconds of building and the first call, in which a compiled contender compiles.
        failure: why it could not take part.
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
    warm_up: int = 3,
    patience: int = 0,
    device: str = "cpu",
    lock: Lock | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Build and warm up every contender, then let them take turns for ``rounds`` rounds.

    A disturbed turn is taken again up to ``patience`` times; then it counts all the same.
    """
    lock, say = lock or Lock(None), say or log
    timings = {c.name: Timing() for c in contenders}
    works: dict[str, Work] = {}
    for contender in contenders:
        with lock.held():
            works |= _prepare(contender, timings[contender.name], warm_up, device, say)
    # A fixed order would give every contender the same predecessor, whose heat and caches it inherits.
    order, shuffle = list(works), random.Random(0)
    for number in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            with lock.held():
                _turn(works[name], number, device, patience, timings[name])
        say(f"round {number + 1} of {rounds}")
    lock.release()
    return timings


def _prepare(
    contender: Contender, timing: Timing, warm_up: int, device: str, say: Callable[[str], None]
) -> dict[str, Work]:
    """Its work, warmed up; nothing where it fails: a peer that cannot run is no reason to stop."""
    try:
        work = contender.build()
        timing.first = again = _timed(work, 0, device)
        # On other batches too: whoever compiles for a shape must have met several.
        for number in range(1, warm_up):
            again = _timed(work, number, device)
        say(f"{contender.name}: first {timing.first:.2f} s, then {again:.3f} s")
    except Exception as error:
        timing.failure = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"
        say(f"{contender.name}: {timing.failure}")
        if contender.library == "heedful":
            raise
        return {}
    return {contender.name: work}


def _turn(work: Work, number: int, device: str, patience: int, timing: Timing) -> None:
    for left in reversed(range(patience + 1)):
        time.sleep(REST)
        watch = Watch()
        seconds = _timed(work, number, device, TURN)
        alone = watch.others() < DISTURBED
        if alone or not left:
            timing.seconds.append(seconds)
            timing.disturbed += not alone
            return
        time.sleep(4 * REST)


def _timed(work: Work, number: int, device: str, at_least: float = 0.0) -> float:
    """Seconds of the work, the mean over as many repetitions as ``at_least`` seconds hold."""
    gc.collect()
    synchronise(device)
    begin, times = time.perf_counter(), 0
    while True:
        work(number)
        synchronise(device)
        times += 1
        passed = time.perf_counter() - begin
        if passed >= at_least:
            return passed / times


def log(text: str) -> None:
    """Say it to whoever watches."""
    print(text, file=sys.stderr, flush=True)
