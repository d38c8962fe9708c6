"""Callbacks that warn: a loss that rises, threads that wait for the processor."""

import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from heedful.training import distribution
from heedful.training.callbacks import Event, Stopped, Updated, Validated
from heedful.training.fast_paths import FEWEST_TOKENS

WINDOW = 30.0
"""Seconds over which the waiting time is measured."""

SHARE = 0.1
"""Share of the time a thread may wait without a warning; measured: 0.01 alone, 0.45 beside a program."""


AVERAGED = 10
"""Number of first and last updates over which the loss is averaged."""

RISE = 0.02
"""Relative rise of the loss that is considered noise."""


class LossNotice:
    """Warn at the end of training if the loss is higher than at the beginning.

    Means over several updates are compared, since single losses are noisy. Divergence within these first
    updates is detected by the loss of the first one: all of the last losses are more than twice as large.

    Args:
        log: called with the warning.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log = log
        self.last_losses: list[float] = []
        self.first_losses: list[float] = []

    def __call__(self, event: Event) -> None:
        """See `heedful.training.callbacks.Callback`."""
        if isinstance(event, Updated):
            self.first_losses = (
                [*self.first_losses, event.loss] if len(self.first_losses) < AVERAGED else self.first_losses
            )
            self.last_losses = [*self.last_losses[1 - AVERAGED :], event.loss]
        elif isinstance(event, Stopped) and event.reason not in ("failed", "signal"):
            self._compare()

    def _compare(self) -> None:
        if len(self.first_losses) < 2:
            return
        n_losses = (
            len(self.first_losses) if len(self.first_losses) == AVERAGED else len(self.first_losses) // 2
        )
        first_mean, last_mean = (
            statistics.fmean(self.first_losses[:n_losses]),
            statistics.fmean(self.last_losses[-n_losses:]),
        )
        initial_loss = min(first_mean, self.first_losses[0])
        if last_mean > first_mean + RISE * abs(first_mean) or min(self.last_losses[-n_losses:]) > 2 * abs(
            self.first_losses[0]
        ):
            self.log(
                f"warning: training diverged: the loss ended at {last_mean:,.4g} and began at "
                f"{initial_loss:,.4g}; lower schedule.peak, raise schedule.warmup or set training.clip_norm"
            )


class ContentionNotice:
    """Warn once if the threads of a training wait for the processor, and name the better settings.

    There is no warning for one thread or several processes, which lose only the time that other programs
    take, nor on systems that do not measure the waiting time.

    Args:
        log: called with the warning.
        tokens_per_update: the setting in the recipe.
        clock: returns the elapsed seconds.
        waited: returns the seconds in which threads were ready but did not run; None if unknown.
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
        self.window_start: tuple[float, float] | None = None
        self.is_done = torch.get_num_threads() == 1 or distribution.world() > 1

    def __call__(self, event: Event) -> None:
        """See `heedful.training.callbacks.Callback`."""
        if isinstance(event, Validated):
            self.window_start = None  # do not measure validation
        if self.is_done or not isinstance(event, Updated):
            return
        waited, now = self.waited(), self.clock()
        if waited is None:
            self.is_done = True
        elif self.window_start is None:
            self.window_start = now, waited
        elif now - self.window_start[0] >= WINDOW:
            share = (waited - self.window_start[1]) / (now - self.window_start[0]) / torch.get_num_threads()
            self.window_start = now, waited
            if share > SHARE:
                self.is_done = True
                self.log(_message(share, self.tokens_per_update))


def _message(share: float, tokens_per_update: int) -> str:
    threads = torch.get_num_threads()
    remedy = (
        f"set training.processes={threads} in a new run: processes of one thread lose less time"
        if tokens_per_update >= threads * FEWEST_TOKENS
        else "set training.threads=1, also with --resume: with few tokens per update, it loses least time"
    )
    return (
        f"other programs use the processor: each thread waited for it {share:.0%} of the time, and the other "
        f"threads waited for that thread; {remedy}"
    )


def seconds_waited(tasks: Path = Path("/proc/self/task")) -> float | None:
    """Return the seconds in which threads of this process were ready but did not run, or None if unknown.

    All threads are counted: the calling thread spins at the barrier while another one waits.
    """
    files = list(tasks.glob("*/schedstat"))
    waits = []
    for file in files:
        with suppress(OSError, ValueError, IndexError):  # a thread that has ended
            waits.append(int(file.read_text("ascii").split()[1]))
    return sum(waits) / 1e9 if waits else None
