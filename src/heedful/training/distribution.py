"""Distributed training: processes started by `torchrun` or by `heedful.training.launch`.

Every function also works in a single process without a process group, as a no-op.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

# The other ranks wait while the first one validates and saves.
_TIMEOUT = timedelta(hours=12)

STORE, PARENT = "HEEDFUL_STORE", "HEEDFUL_PARENT"
"""Environment variables of a process started by `heedful.training.launch`: rendezvous file, parent PID."""

_PR_SET_PDEATHSIG = 1  # from Linux's prctl.h


@contextmanager
def process_group(device: torch.device | str = "cpu") -> Iterator[torch.device]:
    """Join the process group of `torchrun` or `heedful.training.launch` within the context.

    Yield this rank's device: the CPU, or the CUDA device of its local rank. If ``WORLD_SIZE`` is not set
    or 1, yield ``device`` unchanged and join nothing.
    """
    device = torch.device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if STORE in os.environ:
        _end_with(int(os.environ[PARENT]))
        rank, store = int(os.environ["RANK"]), Path(os.environ[STORE])
        ready_file(store, rank).touch()
        with joined(rank, int(os.environ["WORLD_SIZE"]), store):
            yield device
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
    try:
        yield device
    finally:
        dist.destroy_process_group()


@contextmanager
def joined(rank: int, n: int, store: Path) -> Iterator[None]:
    """Join a gloo process group of ``n`` processes on this machine, with ``store`` as rendezvous file."""
    dist.init_process_group(
        "gloo", init_method=store.resolve().as_uri(), rank=rank, world_size=n, timeout=_TIMEOUT
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def ready_file(store: Path, rank: int) -> Path:
    """Return the path of the file that a process creates just before it joins."""
    return store.with_name(f"ready-{rank}")


def _end_with(parent: int) -> None:
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
    return DistributedDataParallel(
        module, device_ids=devices, broadcast_buffers=False, find_unused_parameters=True
    )


def unwrap(module: Any) -> Any:
    """Return the module that `wrap` was called with."""
    return module.module if isinstance(module, DistributedDataParallel) else module


def without_sync(forward: nn.Module) -> AbstractContextManager[Any]:
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


def from_first(value: Any) -> Any:
    """Broadcast the JSON-serialisable ``value`` of the first process to all processes."""
    if world() == 1:
        return value
    text = json.dumps(value).encode() if is_first() else b""
    size = torch.tensor(len(text), device=_device())
    dist.broadcast(size, 0)
    data = torch.zeros(int(size), dtype=torch.uint8, device=_device())
    if is_first():
        data.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
    dist.broadcast(data, 0)
    return json.loads(data.cpu().numpy().tobytes())
