"""Run contenders in this process or in a subprocess each.

Libraries interfere with each other within a process: one sets the number of threads for all, another leaves
idle worker threads behind. Comparisons therefore run each contender in its own subprocess.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from harness.contender import Contender, Work
from harness.machine import peak_resident, synchronise
from harness.quiet import Watch

TURN = 0.5
"""Minimum seconds of a turn; short work is repeated."""

DISTURBED = 0.1
"""Cores that other processes may use during a turn; if they use more, the turn is repeated."""

REST = 0.25
"""Seconds to wait before a turn, so that spinning threads of the previous contender go to sleep."""


@dataclass(frozen=True)
class ContenderFactory:
    """Picklable description of the contenders, from which a subprocess builds the same ones.

    Args:
        contenders: module-level function that returns the contenders.
        arguments: its arguments; picklable.
        prepare: called in each process before the first tensor is created, if given.
    """

    contenders: Callable[..., Sequence[Contender]]
    arguments: tuple[Any, ...]
    prepare: Callable[[], None] | None = None

    def find(self, name: str) -> Contender:
        """Return the contender with this name."""
        return next(c for c in self.contenders(*self.arguments) if c.name == name)


class LocalRunner:
    """Runs a contender in this process."""

    def __init__(self, contender: Contender, device: str) -> None:
        self.contender, self.device = contender, device

    def warm_up(self, times: int) -> tuple[float, float]:
        """Build the contender and run it ``times`` times; return the seconds of the first and last run."""
        self.work = self.contender.build()
        first = last = _timed(self.work, 0, self.device)
        # On several batches, because compilation for dynamic shapes needs more than one shape.
        for round_number in range(1, times):
            last = _timed(self.work, round_number, self.device)
        return first, last

    def turn(self, round_number: int, patience: int) -> tuple[float, bool]:
        """Return the seconds of the work on this round's batch, and whether other processes disturbed it.

        A disturbed turn is repeated up to ``patience`` times; the last repetition counts in any case.
        """
        for tries_left in reversed(range(patience + 1)):
            time.sleep(REST)
            watch = Watch()
            seconds = _timed(self.work, round_number, self.device, TURN)
            alone = watch.others() < DISTURBED
            if alone or not tries_left:
                break
            time.sleep(4 * REST)
        return seconds, not alone

    def peak(self) -> int:
        """Return 0: what it needs cannot be told from the rest of this process."""
        return 0

    def close(self) -> None:
        """Do nothing: there is no process to end."""


class ProcessError(RuntimeError):
    """A contender failed in its process; the message begins with the type of the error there."""


class ProcessRunner:
    """Runs a contender in a subprocess, with the methods of `LocalRunner`."""

    def __init__(self, name: str, factory: ContenderFactory, device: str) -> None:
        context = get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self.process = context.Process(target=_serve, args=(child_pipe, name, factory, device), daemon=True)
        self.process.start()
        child_pipe.close()

    def warm_up(self, times: int) -> tuple[float, float]:
        """See `LocalRunner.warm_up`."""
        first, last = self._ask("warm_up", times)
        return first, last

    def turn(self, number: int, patience: int) -> tuple[float, bool]:
        """See `LocalRunner.turn`."""
        seconds, disturbed = self._ask("turn", number, patience)
        return seconds, disturbed

    def peak(self) -> int:
        """Return the peak resident bytes of its process."""
        n_bytes: int = self._ask("peak")
        return n_bytes

    def _ask(self, method: str, *arguments: int) -> Any:
        self.pipe.send((method, arguments))
        try:
            failed, answer = self.pipe.recv()
        except EOFError:
            raise ProcessError("its process ended") from None
        if failed:
            raise ProcessError(answer)
        return answer

    def close(self) -> None:
        """End the subprocess."""
        self.pipe.close()
        self.process.join(5)
        self.process.kill()


def _serve(pipe: Connection, name: str, factory: ContenderFactory, device: str) -> None:
    """Serve method calls of the parent process until it closes the pipe."""
    try:
        if factory.prepare:
            factory.prepare()
        runner = LocalRunner(factory.find(name), device)
        methods = {"warm_up": runner.warm_up, "turn": runner.turn, "peak": peak_resident}
        while True:
            method, arguments = pipe.recv()
            try:
                pipe.send((False, methods[method](*arguments)))
            except Exception as error:
                pipe.send((True, f"{type(error).__name__}: {error}"))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _timed(work: Work, round_number: int, device: str, at_least: float = 0.0) -> float:
    """Return the mean seconds of the work, repeated until ``at_least`` seconds have passed."""
    gc.collect()
    synchronise(device)
    start, times = time.perf_counter(), 0
    while True:
        work(round_number)
        synchronise(device)
        times += 1
        elapsed = time.perf_counter() - start
        if elapsed >= at_least:
            return elapsed / times
