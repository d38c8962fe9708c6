"""Ctrl-C and the polite kill: finish the update, save, leave; the second one ends at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether a signal has asked the training to stop."""

    def __init__(self) -> None:
        self.received = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; die of the second as if nobody had caught it."""
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.received = True


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Catch SIGINT and SIGTERM for the time of the context; the old handlers come back after it.

    Signals can only be handled from the main thread; elsewhere nothing is caught.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.handle) for number in CAUGHT}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
