"""Handle SIGINT, SIGTERM and SIGHUP: the first lets training save and stop, a second ends it at once."""

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
    before = {number: signal.signal(number, request.handle) for number in caught}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
