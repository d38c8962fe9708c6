"""Train on a CPU with several processes of few threads each, which one command starts and ends.

The threads of one process synchronise after every parallel operation, and all wait if another program
delays one of them. Processes synchronise once per update, so they lose less time beside other programs, and
none on an idle machine (``docs/performance.md``, *Beside other work*).
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from heedful.errors import WorkError
from heedful.training import distribution

_START_LIMIT, _END_LIMIT, _FAILURE_LIMIT = 300.0, 60.0, 20.0

_CONNECTION = "gloo/transport"
"""Part of torch's error message if another process closed its connection."""


@contextmanager
def launched(n: int, run: Path, threads_of_each: int | None = None) -> Iterator[None]:
    """Start ``n - 1`` processes that train ``run`` together with this one, which becomes rank 0.

    They inherit the environment and run ``heedful train RUN --resume``: the run folder must contain the
    recipe and the prepared data. They receive no terminal signals (this process does, and all stop after the
    same update), and they end when this process ends, whatever the cause.

    Args:
        n: number of processes, including this one.
        run: the run folder.
        threads_of_each: threads per process; None: divide the threads of this process.

    Raises:
        WorkError: one of the processes ended early.
    """
    threads = torch.get_num_threads()
    if n == 1:
        yield
        return
    each = threads_of_each or max(1, threads // n)
    with tempfile.TemporaryDirectory(prefix="heedful-") as name:
        folder = Path(name)
        started = [_start(rank, n, each, run, folder) for rank in range(1, n)]
        try:
            torch.set_num_threads(each)
            _wait_until_ready(started, folder)
            with _explain_failures(started, folder), distribution.joined(0, n, folder / "store"):
                distribution.barrier()  # the other processes wait here for the data
                yield
            _wait_until_ended(started)
        finally:
            for process in started:
                process.kill()
                process.wait()
            torch.set_num_threads(threads)


def with_threads(n: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it uses ``n`` threads: it runs here while the other processes wait."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(n)
        try:
            return function(*arguments)
        finally:
            torch.set_num_threads(before)

    return call


def _start(rank: int, n: int, threads: int, run: Path, folder: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **_loopback(),
        "WORLD_SIZE": str(n),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in map(str, sys.path)),
        distribution.STORE: str(folder / "store"),
        distribution.PARENT: str(os.getpid()),
    }
    # -P: import from the same sys.path as this process; -m alone would put the current folder first.
    command = [sys.executable, "-P", "-m", "heedful", "train", str(run), "--resume", "--device", "cpu"]
    with (folder / f"{rank}.err").open("wb") as errors:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def _loopback() -> Mapping[str, str]:
    """Make gloo use the loopback interface, which stays up when a laptop changes networks."""
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        with suppress(OSError, AttributeError):  # not on every system
            names = [name for _, name in socket.if_nameindex()]
            if interface := next((name for name in ("lo", "lo0") if name in names), None):
                os.environ["GLOO_SOCKET_IFNAME"] = interface
    return {key: os.environ[key] for key in ("GLOO_SOCKET_IFNAME",) if key in os.environ}


def _wait_until_ready(started: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait until every process is about to join; fail if one ends or takes too long to start."""
    deadline = time.monotonic() + _START_LIMIT
    waiting = list(range(1, len(started) + 1))
    while waiting:
        waiting = [rank for rank in waiting if not distribution.ready_file(folder / "store", rank).exists()]
        _require_alive(started, folder)
        if time.monotonic() > deadline:
            raise WorkError(
                f"process {waiting[0] + 1} of {len(started) + 1} did not start within {_START_LIMIT:.0f} s; "
                "set training.processes=1"
            )
        time.sleep(0.01)


@contextmanager
def _explain_failures(started: list[subprocess.Popen[bytes]], folder: Path) -> Iterator[None]:
    """Name the process that ended if torch reports only a closed connection."""
    try:
        yield
    except RuntimeError as error:
        # The failing process closes its connections before it ends, so others may end before it.
        deadline = time.monotonic() + (_FAILURE_LIMIT if _CONNECTION in str(error) else 1.0)
        while time.monotonic() < deadline and not any(is_cause for is_cause, _ in _ended(started, folder)):
            time.sleep(0.01)
        _require_alive(started, folder)
        raise


def _require_alive(started: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Raise `WorkError` if a process has ended; of several, name one that failed by itself."""
    for _, how in sorted(_ended(started, folder), key=lambda each: not each[0]):
        raise WorkError(f"{how}; continue with --resume") from None


def _ended(started: list[subprocess.Popen[bytes]], folder: Path) -> list[tuple[bool, str]]:
    """Return for each ended process whether it failed by itself (no lost connection), and a message."""
    found = []
    for rank, process in enumerate(started, 1):
        if (status := process.poll()) is not None:
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            errors = (folder / f"{rank}.err").read_text("utf-8", errors="replace").strip()
            last = f": {errors.splitlines()[-1]}" if errors else ""
            found.append(
                (_CONNECTION not in last, f"process {rank + 1} of {len(started) + 1} ended ({how}){last}")
            )
    return found


def _wait_until_ended(started: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _END_LIMIT
    for process in started:
        with suppress(subprocess.TimeoutExpired):  # it has finished its work and is killed later
            process.wait(max(0.0, deadline - time.monotonic()))
