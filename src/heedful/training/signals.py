"""Ctrl-C, the polite kill, a terminal that leaves: finish the update, save, end; the second ends at once."""

import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)
HANGUP = getattr(signal, "SIGHUP", None)  # not on every system


class StopRequest:
    """Whether a signal has asked the training to stop."""

    def __init__(self) -> None:
        self.received = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; die of the second as if nobody had caught it."""
        if number == HANGUP:
            leave_terminal()
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.received = True


def leave_terminal() -> None:
    """Let output that went to a terminal go nowhere: it has left, and writing to it would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(nowhere, number)
    os.close(nowhere)


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Catch SIGINT, SIGTERM and SIGHUP for the time of the context; the old handlers come back after it.

    SIGHUP stays ignored where it is (``nohup``): the training is to outlive its terminal. Signals can only be
    handled from the main thread; elsewhere nothing is caught.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    caught = list(CAUGHT)
    if HANGUP is not None and signal.getsignal(HANGUP) != signal.SIG_IGN:
        caught.append(HANGUP)
    before = {number: signal.signal(number, request.handle) for number in caught}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
