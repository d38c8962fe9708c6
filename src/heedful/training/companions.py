"""Training on a CPU by several processes of few threads, which one command starts and ends.

The threads of one process meet at the end of every parallel operation, and wait there for a thread that
another program keeps from its core. Processes meet once an update. So they lose less beside other work, and
nothing where there is none (``docs/performance.md``, *Beside other work*).
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
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from heedful.errors import WorkError
from heedful.nn.declarations import claims
from heedful.training import distribution

Processes = int | Literal["auto"]

LARGEST = 20_000_000
"""Parameters up to which ``auto`` takes several processes: each holds weights, gradients and optimizer."""

FEWEST_TOKENS = 1024
"""Tokens of an update for each process: with fewer, adding up gradients costs more than the threads did."""

WORTH_SECONDS = 60
"""A process takes a few seconds to start."""

_START_LIMIT, _END_LIMIT, _FAILURE_LIMIT = 300.0, 60.0, 20.0

_CONNECTION = "gloo/transport"
"""In what torch says where another process has closed its connection."""


def choose_processes(
    wanted: Processes,
    model: nn.Module,
    *,
    tokens_per_update: int,
    seconds: float | None,
    device: torch.device,
) -> int:
    """Return how many processes train; 1 where `torchrun` has started several already.

    ``auto`` takes one for each thread that torch would use, if the device is a CPU, the model has at most
    `LARGEST` parameters and no part that couples the sequences of a batch (the parts of an update would
    change its results), and the training is estimated to take at least `WORTH_SECONDS`. The rule reads no
    clock; the result is kept in the run's recipe, so that a resumed run has as many.

    Args:
        wanted: what the recipe says.
        model: what will be trained.
        tokens_per_update: the recipe's.
        seconds: an estimate of the whole training; None: unknown, taken as long.
        device: where.
    """
    if distribution.world() > 1 or device.type != "cpu":
        return 1
    if wanted != "auto":
        return wanted
    small = sum(p.numel() for p in model.parameters()) <= LARGEST and not claims(model, "couples_batch")
    if not small or (seconds is not None and seconds < WORTH_SECONDS):
        return 1
    return max(1, min(torch.get_num_threads(), tokens_per_update // FEWEST_TOKENS))


@dataclass(frozen=True)
class Companions:
    """The processes that train together with this one.

    Args:
        threads: of this process before it shared them.
    """

    threads: int

    def alone(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let the function, which runs in this process while the others wait, use all threads."""

        @wraps(function)
        def call(*arguments: Any) -> Any:
            own = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            try:
                return function(*arguments)
            finally:
                torch.set_num_threads(own)

        return call


@contextmanager
def companions(n: int, run: Path, threads_of_each: int | None = None) -> Iterator[Companions]:
    """Start ``n - 1`` processes that train ``run`` with this one, which becomes the first of them.

    They get this command's environment and run ``heedful train RUN --resume``: the run's folder must hold the
    recipe and the prepared data. They hear no signals of the terminal (this process hears them, and all stop
    after the same update), and end with this process, however it ends.

    Args:
        n: how many there are, this one included.
        run: the run's folder.
        threads_of_each: None: they share those of this process.

    Raises:
        WorkError: one of them ended early.
    """
    threads = torch.get_num_threads()
    if n == 1:
        yield Companions(threads)
        return
    each = threads_of_each or max(1, threads // n)
    with tempfile.TemporaryDirectory(prefix="heedful-") as name:
        place = Path(name)
        started = [_start(rank, n, each, run, place) for rank in range(1, n)]
        try:
            torch.set_num_threads(each)
            _wait_until_ready(started, place)
            with _clear_failures(started, place), distribution.joined(0, n, place / "store"):
                distribution.barrier()  # where the others wait for the data
                yield Companions(threads)
            _wait_until_ended(started)
        finally:
            for process in started:
                process.kill()
                process.wait()
            torch.set_num_threads(threads)


def _start(rank: int, n: int, threads: int, run: Path, place: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **_loopback(),
        "WORLD_SIZE": str(n),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in map(str, sys.path)),
        distribution.STORE: str(place / "store"),
        distribution.PARENT: str(os.getpid()),
    }
    # It imports from where this process does: -m alone would look in the current folder first.
    command = [sys.executable, "-P", "-m", "heedful", "train", str(run), "--resume", "--device", "cpu"]
    with (place / f"{rank}.err").open("wb") as errors:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def _loopback() -> Mapping[str, str]:
    """Let gloo talk through the interface that stays when a laptop changes networks."""
    if "GLOO_SOCKET_IFNAME" not in os.environ:
        with suppress(OSError, AttributeError):  # not on every system
            names = [name for _, name in socket.if_nameindex()]
            if own := next((name for name in ("lo", "lo0") if name in names), None):
                os.environ["GLOO_SOCKET_IFNAME"] = own
    return {key: os.environ[key] for key in ("GLOO_SOCKET_IFNAME",) if key in os.environ}


def _wait_until_ready(started: list[subprocess.Popen[bytes]], place: Path) -> None:
    """Wait until every process is about to join, so that one that cannot start is not waited for."""
    deadline = time.monotonic() + _START_LIMIT
    waiting = list(range(1, len(started) + 1))
    while waiting:
        waiting = [rank for rank in waiting if not distribution.ready_file(place / "store", rank).exists()]
        _require_alive(started, place)
        if time.monotonic() > deadline:
            raise WorkError(
                f"process {waiting[0] + 1} of {len(started) + 1} did not start within {_START_LIMIT:.0f} s; "
                "set training.processes=1"
            )
        time.sleep(0.01)


@contextmanager
def _clear_failures(started: list[subprocess.Popen[bytes]], place: Path) -> Iterator[None]:
    """Name the process that ended, where torch reports that the connection to it was closed."""
    try:
        yield
    except RuntimeError as error:
        # It closes its connections before it ends, and the others may end before it, for want of them.
        deadline = time.monotonic() + (_FAILURE_LIMIT if _CONNECTION in str(error) else 1.0)
        while time.monotonic() < deadline and not any(is_first for is_first, _ in _ended(started, place)):
            time.sleep(0.01)
        _require_alive(started, place)
        raise


def _require_alive(started: list[subprocess.Popen[bytes]], place: Path) -> None:
    """Refuse to go on without a process that has ended; of several, name one that was the first."""
    for _, how in sorted(_ended(started, place), key=lambda each: not each[0]):
        raise WorkError(f"{how}; continue with --resume") from None


def _ended(started: list[subprocess.Popen[bytes]], place: Path) -> list[tuple[bool, str]]:
    """Which processes have ended: whether for a reason of its own, not for want of another one; and how."""
    found = []
    for rank, process in enumerate(started, 1):
        if (status := process.poll()) is not None:
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            errors = (place / f"{rank}.err").read_text("utf-8", errors="replace").strip()
            last = f": {errors.splitlines()[-1]}" if errors else ""
            found.append(
                (_CONNECTION not in last, f"process {rank + 1} of {len(started) + 1} ended ({how}){last}")
            )
    return found


def _wait_until_ended(started: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _END_LIMIT
    for process in started:
        with suppress(subprocess.TimeoutExpired):  # it is killed then: its work is done
            process.wait(max(0.0, deadline - time.monotonic()))
