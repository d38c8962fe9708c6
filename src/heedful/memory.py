"""How this process takes memory from the system, and how much there is.

A training step on a CPU takes and frees the same large tensors again and again. By default each goes
back to the system when it is freed, and comes again in small pages, which have to be filled with zeros
and looked up. Kept, and in large pages, a step takes three quarters of the time (`docs/performance.md`).
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedful.errors import RequestError

# From glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


# What torch says where it cannot have the memory, or where so much cannot even be asked for.
_SIGNS = ("allocat", "memory", "overflow")


@contextmanager
def room_for(words: str) -> Iterator[None]:
    """Tell memory that is not there as an error of the request, in these words.

    Raises:
        RequestError: instead of torch's errors.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(sign in str(error).lower() for sign in _SIGNS):
            raise
        raise RequestError(words) from error


def machine_memory(root: Path = Path("/")) -> int | None:
    """The most bytes that a process can have here; None where the system does not tell.

    It is the least of the machine's memory, what the control groups of this process allow, and what its
    address space may hold. Swap does not count: every update reads and writes all that training keeps.

    Args:
        root: of the file system that is asked for control groups.
    """
    return min((*_physical(), *_address_space(), *_control_groups(root)), default=None)


def gibibytes(n: int) -> str:
    """A number of bytes, for people."""
    return f"{n / 2**30:,.1f} GiB"


def _physical() -> Iterator[int]:
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        if pages > 0 and size > 0:
            yield pages * size


def _address_space() -> Iterator[int]:
    with suppress(ImportError, OSError):  # not on every system
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit


def _control_groups(root: Path) -> Iterator[int]:
    """The limits of the control groups of Linux that this process is in, and of those above them."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, group = line.split(":", 2)
            mounted = root / "sys/fs/cgroup"
            if number == "0":  # version 2
                yield from _limits(mounted, group, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _limits(mounted / "memory", group, "memory.limit_in_bytes")


def _limits(mounted: Path, group: str, name: str) -> Iterator[int]:
    folder = mounted / group.lstrip("/")
    for place in (folder, *folder.parents):
        with suppress(OSError, ValueError):  # it is not seen from inside a container, or is the word "max"
            yield int((place / name).read_text(encoding="ascii"))
        if place == mounted:
            return


def ask_for_large_pages() -> None:
    """Let torch ask Linux for large pages; to be called before the first tensor is made.

    A value that the environment has already stays.
    """
    if sys.platform == "linux":
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def keep_freed_memory() -> bool:
    """Keep what is freed for the next tensor, where the C library is glibc; whether it is.

    The process then holds on to the most memory it ever had.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST) and mallopt(_TRIM_THRESHOLD, _LARGEST))
