"""Training in several processes, which `torchrun` or the command itself (`start_processes`) starts.

Functions of ranks also work in a single process without a process group, as no-ops.

On a CPU, one command starts several processes of few threads each. The threads of one process synchronise
after every parallel operation, and all wait if another program delays one of them. Processes synchronise once
per update, so they lose less time beside other programs, and none on an idle machine
(``docs/benchmarks/performance.md``, *Beside other work*).
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from heedful.errors import RequestError, WorkError
from heedful.files import scratch_folder

Value = TypeVar("Value")

# The other ranks wait while the first one validates and saves.
_TIMEOUT = timedelta(hours=12)

STORE, PARENT = "HEEDFUL_STORE", "HEEDFUL_PARENT"
"""Environment variables of a process started by `start_processes`: rendezvous file, parent PID."""

WORLD_SIZE, RANK, LOCAL_RANK = "WORLD_SIZE", "RANK", "LOCAL_RANK"
"""Environment variables of torchrun: number of processes, of this one, and of this one on its machine."""

MOST_PROCESSES = 1 << 16
"""More processes are taken for a mistake."""

MAX_SHOWN = 60
"""The most characters of a value in a message."""

UNSET = "torchrun sets it; unset WORLD_SIZE to train in one process"
"""The remedy for environment variables that do not fit."""

_PR_SET_PDEATHSIG = 1  # from Linux's prctl.h


@contextmanager
def process_group(device: torch.device | str = "cpu") -> Iterator[torch.device]:
    """Join the process group of `torchrun` or `start_processes` within the context.

    Yield this rank's device: the CPU, or the CUDA device of its local rank. If ``WORLD_SIZE`` is not set
    or 1, yield ``device`` unchanged and join nothing.

    Raises:
        RequestError: an environment variable of `torchrun` is malformed or missing.
        WorkError: the processes cannot connect.
    """
    device = torch.device(device)
    n = _number_in(WORLD_SIZE, range(1, MOST_PROCESSES + 1), default="1")
    if n == 1:
        yield device
        return
    rank = _number_in(RANK, range(n))
    if device.type == "cuda":
        n_devices = torch.cuda.device_count()
        device = torch.device("cuda", _number_in(LOCAL_RANK, range(n_devices), default="0"))
        torch.cuda.set_device(device)
    if STORE in os.environ:
        store = Path(os.environ[STORE])
        _end_with_parent(_number_in(PARENT, range(2**31)))
        try:
            ready_file(store, rank).touch()
        except (OSError, ValueError):
            raise RequestError(
                f"environment variable {STORE}: expected a file in an existing folder, got "
                f"{str(store)[:MAX_SHOWN]!r}; {UNSET}"
            ) from None
        group = join_group(rank, n, store)
    else:
        _check_address()
        group = _group("nccl" if device.type == "cuda" else "gloo")
    with ExitStack() as stack:
        try:
            stack.enter_context(group)
        except (RuntimeError, ValueError, OSError) as error:
            line = str(error).strip().partition("\n")[0]
            raise WorkError(f"the processes of the training cannot connect: {line}; {UNSET}") from error
        yield device


def _number_in(name: str, accepted: range, default: str = "") -> int:
    """Return the number in an environment variable.

    Raises:
        RequestError: it is missing, or not one of the accepted numbers.
    """
    text = os.environ.get(name, default)
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) in accepted):
        expected = f"expected a whole number from {accepted.start} to {accepted.stop - 1}"
        raise RequestError(f"environment variable {name}: {expected}, got {text[:MAX_SHOWN]!r}; {UNSET}")
    return int(text)


def _check_address() -> None:
    """Check the address of the first process, for which torch would wait long.

    Raises:
        RequestError: there is no such address.
    """
    _number_in("MASTER_PORT", range(1 << 16))
    host = os.environ.get("MASTER_ADDR", "")
    try:
        is_known = bool(host) and bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        is_known = False
    if not is_known:
        raise RequestError(
            f"environment variable MASTER_ADDR: expected the name or address of a machine, got "
            f"{host[:MAX_SHOWN]!r}; {UNSET}"
        )


def join_group(rank: int, n: int, store: Path) -> AbstractContextManager[None]:
    """Join a gloo process group of ``n`` processes on this machine, with ``store`` as rendezvous file."""
    return _group("gloo", init_method=store.resolve().as_uri(), rank=rank, world_size=n)


@contextmanager
def _group(backend: str, **options: Any) -> Iterator[None]:
    dist.init_process_group(backend, timeout=_TIMEOUT, **options)
    try:
        yield
    finally:
        dist.destroy_process_group()


def ready_file(store: Path, rank: int) -> Path:
    """Return the path of the file that a process creates just before it joins."""
    return store.with_name(f"ready-{rank}")


def _end_with_parent(parent: int) -> None:
    """Make the system kill this process when its parent ends (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has already ended
        sys.exit(1)


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_first() -> bool:
    """Return whether this process is rank 0, which validates, saves and logs."""
    return rank() == 0


def barrier() -> None:
    """Wait until every process has called this function."""
    if world() > 1:
        dist.barrier()


def wrap(module: nn.Module) -> nn.Module:
    """Wrap a module in `DistributedDataParallel` if there are several processes.

    Buffers are not broadcast: training only writes running statistics, and those of the first process are
    saved. Unused parameters are allowed: a tagger does not use the pooler of a pretrained encoder.
    """
    if world() == 1:
        return module
    device = next(module.parameters()).device
    devices = [device.index] if device.type == "cuda" else None
    with warnings.catch_warnings():
        # Its new name, forward_sync_buffers, also synchronises buffers at the start, which gloo fails at.
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        return DistributedDataParallel(
            module, device_ids=devices, broadcast_buffers=False, find_unused_parameters=True
        )


def without_sync(forward: nn.Module) -> AbstractContextManager[None]:
    """Return a context without gradient synchronisation, for all micro-batches except the last."""
    return forward.no_sync() if isinstance(forward, DistributedDataParallel) else nullcontext()


def _device() -> torch.device:
    on_cuda = dist.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, which must all pass the same shape."""
    if world() == 1:
        return values
    summed = values.to(_device(), copy=True)
    dist.all_reduce(summed)
    return summed.to(values.device)


def sum_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of each count over all processes, which must all pass the same keys."""
    if world() == 1:
        return dict(counts)
    names = sorted(counts)
    summed = sum_over_ranks(torch.tensor([counts[name] for name in names], dtype=torch.int64))
    return dict(zip(names, summed.tolist(), strict=True))


def from_first(value: Value) -> Value:
    """Broadcast the ``value`` of the first process to all processes."""
    values = [value]
    if world() > 1:
        dist.broadcast_object_list(values, src=0, device=_device())
    return values[0]


_START_LIMIT, _END_LIMIT, _FAILURE_LIMIT = 300.0, 60.0, 20.0

_CONNECTION = "gloo/transport"
"""Part of torch's error message if another process closed its connection."""


@contextmanager
def start_processes(n: int, run: Path, threads_per_process: int | None = None) -> Iterator[None]:
    """Start ``n - 1`` processes that train ``run`` together with this one, which becomes rank 0.

    They inherit the environment and run ``heedful train RUN --resume``: the run folder must contain the
    recipe and the prepared data. They receive no terminal signals (this process does, and all stop after the
    same update), and they end when this process ends, whatever the cause.

    Args:
        n: number of processes, including this one.
        run: the run folder.
        threads_per_process: threads per process; None: divide the threads of this process.

    Raises:
        WorkError: one of the processes ended early.
    """
    if n == 1:
        yield
        return
    n_threads = threads_per_process or max(1, torch.get_num_threads() // n)
    started: list[subprocess.Popen[bytes]] = []
    with scratch_folder() as folder, using_threads(n_threads):
        try:
            for rank in range(1, n):
                started.append(_start(rank, n, n_threads, run, folder))
            _wait_until_ready(started, folder)
            with _explain_failures(started, folder), join_group(0, n, folder / "store"):
                barrier()  # the other processes wait here for the data
                yield
            deadline = time.monotonic() + _END_LIMIT
            for process in started:
                with suppress(subprocess.TimeoutExpired):  # it has finished its work and is killed below
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for process in started:
                process.kill()
                process.wait()


@contextmanager
def using_threads(n: int | None) -> Iterator[None]:
    """Let torch use ``n`` threads within the context, or in a function that is decorated; None: as before."""
    n_before = torch.get_num_threads()
    torch.set_num_threads(n or n_before)
    try:
        yield
    finally:
        torch.set_num_threads(n_before)


def _start(rank: int, n: int, threads: int, run: Path, folder: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **_loopback(),
        WORLD_SIZE: str(n),
        RANK: str(rank),
        LOCAL_RANK: str(rank),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in map(str, sys.path)),
        STORE: str(folder / "store"),
        PARENT: str(os.getpid()),
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
        waiting = [rank for rank in waiting if not ready_file(folder / "store", rank).exists()]
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
        while time.monotonic() < deadline and not any(
            is_cause for is_cause, _ in _ended_processes(started, folder)
        ):
            time.sleep(0.01)
        _require_alive(started, folder)
        raise


def _require_alive(started: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Raise `WorkError` if a process has ended; of several, name one that failed by itself."""
    for _, message in sorted(_ended_processes(started, folder), key=lambda failure: not failure[0]):
        raise WorkError(f"{message}; continue with --resume (in Python: heedful.resume)") from None


def _ended_processes(started: list[subprocess.Popen[bytes]], folder: Path) -> list[tuple[bool, str]]:
    """Return for each ended process whether it failed by itself (no lost connection), and a message."""
    ended = []
    for rank, process in enumerate(started, 1):
        if (status := process.poll()) is not None:
            reason = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            errors = (folder / f"{rank}.err").read_text("utf-8", errors="replace").strip()
            last_line = f": {errors.splitlines()[-1]}" if errors else ""
            ended.append(
                (
                    _CONNECTION not in last_line,
                    f"process {rank + 1} of {len(started) + 1} ended ({reason}){last_line}",
                )
            )
    return ended
