"""Signals that stop a training, and fault injection for tests.

The first SIGINT, SIGTERM or SIGHUP lets training save and stop; a second one ends it at once.

Fault injection kills the process at a named point to check that a run can be resumed: if the environment
variable ``HEEDFUL_FAULT`` is ``point`` or ``point:n``, the process kills itself with SIGKILL (no cleanup
runs) the n-th time it reaches the point (n is 1 by default). If it is not set, `fault_point` does nothing.
The variable is read once, at the first point.
"""

import functools
import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)
HANGUP = getattr(signal, "SIGHUP", None)  # not defined on every system


class StopRequest:
    """Record whether a signal has requested training to stop."""

    def __init__(self) -> None:
        self.received = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the first signal; at the second, restore the default action and send the signal again."""
        if number == HANGUP:
            leave_terminal()
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.received = True


def leave_terminal() -> None:
    """Redirect terminal output to the null device: after a hangup, writing to the terminal would fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(null, number)
    os.close(null)


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Catch SIGINT, SIGTERM and SIGHUP within the context, and restore the old handlers after it.

    If SIGHUP is ignored (``nohup``), it stays ignored. Python can handle signals only in the main thread; in
    other threads nothing is caught.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    caught = list(CAUGHT)
    if HANGUP is not None and signal.getsignal(HANGUP) != signal.SIG_IGN:
        caught.append(HANGUP)
    old_handlers = {number: signal.signal(number, request.handle) for number in caught}
    try:
        yield request
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


# Fault injection --------------------------------------------------------------------------------------------

POINTS = (
    "after-update",
    "during-validation",
    "checkpoint-begin",
    "after-model-written",
    "after-sync",
    "before-rename",
    "while-replacing",
    "after-rename",
    "before-prune",
    "during-prune",
)
"""All points, in the order of an update that ends with a checkpoint.

``while-replacing`` is only reached if a checkpoint of the same update already exists.
"""

_remaining: int | None = None


def fault_point(point: str) -> None:
    """Mark that the process has reached ``point``; kill it if a fault is set for this point."""
    global _remaining
    fault, count = _fault()
    if point != fault:
        return
    _remaining = (count if _remaining is None else _remaining) - 1
    if _remaining == 0:
        os.kill(os.getpid(), signal.SIGKILL)


@functools.cache
def _fault() -> tuple[str, int]:
    point, _, count = os.environ.get("HEEDFUL_FAULT", "").partition(":")
    return point, int(count) if count.isdecimal() else 1
