"""Several processes as one: started by `torchrun`, or by the command itself (`heedful.training.companions`).

Every function also works in a single process without a process group, where it changes nothing.
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

# The first rank validates and saves while the others wait for it.
_TIMEOUT = timedelta(hours=12)

STORE, PARENT = "HEEDFUL_STORE", "HEEDFUL_PARENT"
"""Environment variables of a process that another one started to train with it: the file through which they
find each other, and the number of that process."""

_PR_SET_PDEATHSIG = 1  # from Linux's prctl.h


@contextmanager
def process_group(device: torch.device | str = "cpu") -> Iterator[torch.device]:
    """Join the processes that `torchrun` or `heedful.training.companions` started, for this context.

    Yields this rank's device: the CPU, or the CUDA device of its local rank. Without ``WORLD_SIZE``
    above 1 in the environment, nothing is started and ``device`` comes back as it is.
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
    """Be one of ``n`` processes on CPUs of this machine that find each other through the file ``store``."""
    dist.init_process_group(
        "gloo", init_method=store.resolve().as_uri(), rank=rank, world_size=n, timeout=_TIMEOUT
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def ready_file(store: Path, rank: int) -> Path:
    """The file that a process makes when it is about to join."""
    return store.with_name(f"ready-{rank}")


def _end_with(parent: int) -> None:
    """Let the system end this process when its parent ends, where it can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before
        sys.exit(1)


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_first() -> bool:
    """Whether this process is the one that validates, saves and reports."""
    return rank() == 0


def barrier() -> None:
    """Wait until every process is here."""
    if world() > 1:
        dist.barrier()


def wrap(step: nn.Module) -> nn.Module:
    """`DistributedDataParallel` around the step where there are several processes.

    Buffers are not sent around: while training, running statistics are only written, and those that
    are saved are the first process's. An objective need not use all of a model: a tagger's does not use the
    pooler of an encoder that was pretrained with one.
    """
    if world() == 1:
        return step
    device = next(step.parameters()).device
    devices = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(
        step, device_ids=devices, broadcast_buffers=False, find_unused_parameters=True
    )


def without_sync(forward: nn.Module) -> AbstractContextManager[Any]:
    """For all micro-batches but the last: gradients stay on this rank for now."""
    return forward.no_sync() if isinstance(forward, DistributedDataParallel) else nullcontext()


def _device() -> torch.device:
    on_cuda = dist.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes; every process must call with the same shape."""
    if world() == 1:
        return values
    summed = values.to(_device(), copy=True)
    dist.all_reduce(summed)
    return summed.to(values.device)


def sum_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """The sum of each count over all processes, which must all name the same counts."""
    if world() == 1:
        return dict(counts)
    names = sorted(counts)
    summed = sum_over_ranks(torch.tensor([counts[name] for name in names], dtype=torch.int64))
    return dict(zip(names, summed.tolist(), strict=True))


def from_first(value: Any) -> Any:
    """The first process's ``value`` (anything that JSON can hold), on every process."""
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
