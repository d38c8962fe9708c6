"""What is reported once of a training that does not go as it should."""

import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from heedful.training import distribution
from heedful.training.companions import FEWEST_TOKENS
from heedful.training.events import Event, Stopped, Updated, Validated

WINDOW = 30.0
"""Seconds over which the waiting is measured."""

SHARE = 0.1
"""Share of the time that a thread may wait without a message; measured: 0.01 alone, 0.45 beside a program."""


AVERAGED = 10
"""Updates at either end over which the loss is averaged."""

RISE = 0.02
"""Rise of the loss, as a share of it, that is noise."""


class LossNotice:
    """Warns at the end of a training whose loss is above that with which it began.

    Means of several updates are compared, since the loss of one is noisy. A training that diverges within
    these first updates shows by the loss of its very first one: all of the last are twice as large.

    Args:
        log: gets the line.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log = log
        self.losses: list[float] = []
        self.first: list[float] = []

    def __call__(self, event: Event) -> None:
        """See `heedful.training.events.Callback`."""
        if isinstance(event, Updated):
            self.first = [*self.first, event.loss] if len(self.first) < AVERAGED else self.first
            self.losses = [*self.losses[1 - AVERAGED :], event.loss]
        elif isinstance(event, Stopped) and event.reason not in ("failed", "signal"):
            self._compare()

    def _compare(self) -> None:
        if len(self.first) < 2:
            return
        half = len(self.first) if len(self.first) == AVERAGED else len(self.first) // 2
        first, last = statistics.fmean(self.first[:half]), statistics.fmean(self.losses[-half:])
        began = min(first, self.first[0])
        if last > first + RISE * abs(first) or min(self.losses[-half:]) > 2 * abs(self.first[0]):
            self.log(
                f"warning: the loss ended at {last:,.4g}, above {began:,.4g} where it began: training "
                "diverged; lower schedule.peak, raise schedule.warmup or set training.clip_norm"
            )


class ContentionNotice:
    """Says once that a training by several threads waits for the processor, and what would lose less.

    It is silent for one thread and for several processes, which lose what the other programs take and no
    more, and on systems that do not measure it.

    Args:
        log: gets the line.
        tokens_per_update: the recipe's.
        clock: seconds that have passed.
        waited: seconds for which threads were ready to run, and did not; None: not known.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        tokens_per_update: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        waited: Callable[[], float | None] = lambda: seconds_waited(),
    ) -> None:
        self.log, self.clock, self.waited = log, clock, waited
        self.tokens_per_update = tokens_per_update
        self.begin: tuple[float, float] | None = None
        self.done = torch.get_num_threads() == 1 or distribution.world() > 1

    def __call__(self, event: Event) -> None:
        """See `heedful.training.events.Callback`."""
        if isinstance(event, Validated):
            self.begin = None  # what it did is not training
        if self.done or not isinstance(event, Updated):
            return
        waited, now = self.waited(), self.clock()
        if waited is None:
            self.done = True
        elif self.begin is None:
            self.begin = now, waited
        elif now - self.begin[0] >= WINDOW:
            share = (waited - self.begin[1]) / (now - self.begin[0]) / torch.get_num_threads()
            self.begin = now, waited
            if share > SHARE:
                self.done = True
                self.log(_message(share, self.tokens_per_update))


def _message(share: float, tokens_per_update: int) -> str:
    threads = torch.get_num_threads()
    way_out = (
        f"Processes of one thread lose less: training.processes={threads} in a new run"
        if tokens_per_update >= threads * FEWEST_TOKENS
        else "With updates of so few tokens, one thread loses least: training.threads=1, also with --resume"
    )
    return (
        f"other programs use the processor: each thread waited for it {share:.0%} of the time, and the other "
        f"threads of this training for that one. {way_out}"
    )


def seconds_waited(tasks: Path = Path("/proc/self/task")) -> float | None:
    """Return the seconds that threads of this process were ready to run without a processor, or None.

    The calling thread alone would show nothing: it spins at the barrier while another thread waits.
    """
    files = list(tasks.glob("*/schedstat"))
    waits = []
    for file in files:
        with suppress(OSError, ValueError, IndexError):  # a thread that has ended
            waits.append(int(file.read_text("ascii").split()[1]))
    return sum(waits) / 1e9 if waits else None
