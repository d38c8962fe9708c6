"""Where a contender works: in this process, or in one of its own.

Libraries disturb each other within a process: one sets the number of threads for all, another leaves
threads behind that wait for work. So whoever is compared has a process of its own.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from harness.contender import Contender, Work
from harness.machine import synchronise
from harness.quiet import Watch

TURN = 0.5
"""Seconds that a turn takes at least; short work is repeated."""

DISTURBED = 0.1
"""Cores that others may use during a turn; a turn in which they use more is taken again."""

REST = 0.25
"""Seconds before a turn, in which the waiting threads of the one before fall asleep."""


@dataclass(frozen=True)
class Field:
    """Who takes part, told so that another process finds the same.

    Args:
        contenders: a function at the top of a module.
        arguments: plain values to call it with.
        prepare: called in a process before its first tensor is made, where given.
    """

    contenders: Callable[..., Sequence[Contender]]
    arguments: tuple[Any, ...]
    prepare: Callable[[], None] | None = None

    def find(self, name: str) -> Contender:
        """The contender of this name."""
        return next(c for c in self.contenders(*self.arguments) if c.name == name)


class Seat:
    """A contender at work in this process."""

    def __init__(self, contender: Contender, device: str) -> None:
        self.contender, self.device = contender, device

    def warm_up(self, times: int) -> tuple[float, float]:
        """Build it and let it work; seconds of the first time and of the last."""
        self.work = self.contender.build()
        first = again = _timed(self.work, 0, self.device)
        # On other batches too: whoever compiles for a shape must have met several.
        for number in range(1, times):
            again = _timed(self.work, number, self.device)
        return first, again

    def turn(self, number: int, patience: int) -> tuple[float, bool]:
        """Seconds of the work on this round's batch, and whether others disturbed it.

        A disturbed turn is taken again up to ``patience`` times; then it counts all the same.
        """
        for left in reversed(range(patience + 1)):
            time.sleep(REST)
            watch = Watch()
            seconds = _timed(self.work, number, self.device, TURN)
            alone = watch.others() < DISTURBED
            if alone or not left:
                break
            time.sleep(4 * REST)
        return seconds, not alone

    def close(self) -> None:
        """Nothing to leave."""


class SeatApart:
    """A contender at work in a process of its own: the same methods, called from here."""

    def __init__(self, name: str, field: Field, device: str) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, name, field, device), daemon=True)
        self.process.start()
        theirs.close()

    def warm_up(self, times: int) -> tuple[float, float]:
        """As of a seat here."""
        first, again = self._ask("warm_up", times)
        return first, again

    def turn(self, number: int, patience: int) -> tuple[float, bool]:
        """As of a seat here."""
        seconds, disturbed = self._ask("turn", number, patience)
        return seconds, disturbed

    def _ask(self, method: str, *arguments: int) -> Any:
        self.pipe.send((method, arguments))
        try:
            failed, answer = self.pipe.recv()
        except EOFError:
            raise RuntimeError("its process ended") from None
        if failed:
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        """End its process."""
        self.pipe.close()
        self.process.join(5)
        self.process.kill()


def _serve(pipe: Connection, name: str, field: Field, device: str) -> None:
    """Do what is asked until nobody asks any more."""
    try:
        if field.prepare:
            field.prepare()
        seat = Seat(field.find(name), device)
        while True:
            method, arguments = pipe.recv()
            try:
                pipe.send((False, getattr(seat, method)(*arguments)))
            except Exception as error:
                pipe.send((True, f"{type(error).__name__}: {error}"))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


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
