"""Contenders in turn: A B C A B C ...

The speed of a machine drifts, most of all of a rented one. So nobody is measured in one stretch: in
each round everybody gets one turn on the same batch, and ratios are formed within rounds.
"""

import fcntl
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from harness.contender import Contender
from harness.seats import Field, Seat, SeatApart

STRETCH = 120.0
"""Seconds after which a lock that others wait for is given up between two turns."""


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
    apart: Field | None = None,
    warm_up: int = 3,
    patience: int = 0,
    device: str = "cpu",
    lock: Lock | None = None,
    log: Callable[[str], None] | None = None,
) -> dict[str, Timing]:
    """Build and warm up every contender, then let them take turns for ``rounds`` rounds.

    Each in a process of its own where ``apart`` says how to find it there; all in this one otherwise.
    A disturbed turn is taken again up to ``patience`` times; then it counts all the same.
    """
    lock, log = lock or Lock(None), log or log
    timings = {c.name: Timing() for c in contenders}
    seats: dict[str, Seat | SeatApart] = {}
    try:
        for contender in contenders:
            with lock.held():
                seat = SeatApart(contender.name, apart, device) if apart else Seat(contender, device)
                if _prepare(seat, contender, timings[contender.name], warm_up, log):
                    seats[contender.name] = seat
        # A fixed order would give every contender the same predecessor, whose heat and caches it inherits.
        order, shuffle = list(seats), random.Random(0)
        for number in range(rounds):
            shuffle.shuffle(order)
            for name in order:
                with lock.held():
                    seconds, disturbed = seats[name].turn(number, patience)
                timings[name].seconds.append(seconds)
                timings[name].disturbed += disturbed
            log(f"round {number + 1} of {rounds}")
    finally:
        lock.release()
        for seat in seats.values():
            seat.close()
    return timings


def _prepare(
    seat: Seat | SeatApart, contender: Contender, timing: Timing, warm_up: int, log: Callable[[str], None]
) -> bool:
    """Whether it can take part: a peer that cannot is no reason to stop."""
    try:
        timing.first, again = seat.warm_up(warm_up)
    except Exception as error:
        seat.close()
        text = str(error) if isinstance(seat, SeatApart) else f"{type(error).__name__}: {error}"
        timing.failure = text.strip().splitlines()[0][:120]
        log(f"{contender.name}: {timing.failure}")
        if contender.library == "heedful":
            raise
        return False
    log(f"{contender.name}: first {timing.first:.2f} s, then {again:.3f} s")
    return True


def log(text: str) -> None:
    """Say it to whoever watches."""
    print(text, file=sys.stderr, flush=True)
