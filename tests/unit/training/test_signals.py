"""Signals ask a training to stop, that of a terminal that leaves too, unless it is ignored."""

import os
import signal
import subprocess
import sys

import pytest

from heedful.training.signals import stop_signals


@pytest.fixture(autouse=True)
def handlers():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield before
    after = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted(number):
    with stop_signals() as request:
        assert not request.received
        os.kill(os.getpid(), number)
        assert request.received


def program(body):
    """What a program prints to a file while it is asked to stop, and its status."""
    # Whoever ran the tests may have it ignored (nohup), and programs inherit that.
    heard = "signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    lines = ["import os, signal, sys", "from heedful.training.signals import stop_signals", heard, body]
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=200
    )


def test_a_hangup_is_recorded_and_the_terminal_not_written_to():
    # The end of a terminal that nobody holds any more refuses what is written to it.
    done = program("""
held, terminal = os.openpty()
os.dup2(1, 9)
os.dup2(terminal, 2)
os.close(terminal)
with stop_signals() as request:
    os.close(held)
    os.kill(os.getpid(), signal.SIGHUP)
    print("to nobody", file=sys.stderr, flush=True)
    os.write(9, f"{request.received}".encode())
""")
    assert (done.returncode, done.stdout) == (0, "True")


def test_what_goes_to_a_file_still_does():
    done = program("""
with stop_signals() as request:
    os.kill(os.getpid(), signal.SIGHUP)
    print(request.received)
""")
    assert (done.returncode, done.stdout) == (0, "True\n")


def test_an_ignored_hangup_stays_ignored(handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not request.received
    finally:
        signal.signal(signal.SIGHUP, handlers[signal.SIGHUP])
