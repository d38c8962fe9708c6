"""Memory allocation settings of this process, and the amount of memory available.

A training step on a CPU repeatedly allocates and frees the same large tensors. By default, freed memory
returns to the system and is allocated again in small pages, which must be zeroed and mapped. If memory is
kept and uses large pages, a step takes three quarters of the time (`docs/benchmarks/performance.md`).
"""

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from heedful.errors import RequestError

# From glibc's malloc.h and Linux's mman.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _UNLIMITED = -1, -3, -1
_MADV_HUGEPAGE = 14
_LARGE_PAGE = 2 << 20

# Words in torch's error messages if an allocation fails or its size overflows.
_OUT_OF_MEMORY = ("allocat", "memory", "overflow")


@contextmanager
def memory_errors_as(message: str) -> Iterator[None]:
    """Convert out-of-memory errors to `RequestError`.

    Args:
        message: the message of the error.

    Raises:
        RequestError: memory is insufficient.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(word in str(error).lower() for word in _OUT_OF_MEMORY):
            raise
        raise RequestError(message) from error


def machine_memory(root: Path = Path("/")) -> int | None:
    """Return the most bytes that this process can allocate, or None if the system does not report it.

    This is the minimum of physical memory, the limits of the control groups of this process, and the limit of
    its address space. Swap does not count: every update reads and writes all memory of a training.

    Args:
        root: root of the file system in which control groups are looked up.
    """
    return min((*_physical(), *_address_space(), *_control_groups(root)), default=None)


_UNITS = {"MIB": 1 << 20, "GIB": 1 << 30, "MB": 10**6, "GB": 10**9, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str, name: str) -> int:
    """Return the number of bytes that a text such as ``6GiB`` or ``512 MiB`` names.

    Raises:
        RequestError: it is not a positive number with a unit; the message begins with ``name``.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", text.strip(), re.ASCII)
    unit = _UNITS.get(match[2].upper()) if match else None
    n_bytes = int(float(match[1]) * unit) if match and unit else 0
    if n_bytes < 1:
        raise RequestError(f"{name} {text}: expected a size such as 6GiB or 512MiB (or GB, MB)")
    return n_bytes


def gibibytes(n: int) -> str:
    """Format a number of bytes in GiB."""
    return f"{n / 2**30:,.1f} GiB"


def _physical() -> Iterator[int]:
    with suppress(AttributeError, ValueError, OSError):  # not available on every system
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        if pages > 0 and size > 0:
            yield pages * size


def _address_space() -> Iterator[int]:
    with suppress(ImportError, OSError):  # not available on every system
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit


def _control_groups(root: Path) -> Iterator[int]:
    """Yield the limits of this process's Linux control groups and their ancestors."""
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
    for parent in (folder, *folder.parents):
        with suppress(OSError, ValueError):  # not visible inside a container, or "max"
            yield int((parent / name).read_text(encoding="ascii"))
        if parent == mounted:
            return


@cache
def keep_freed_memory() -> bool:
    """Make glibc keep freed memory for the next tensor, in large pages; return whether this is supported.

    Call this before the first tensor is created. The memory use of the process then never shrinks.
    """
    if sys.platform != "linux":
        return False
    try:
        libc = ctypes.CDLL(None)
        is_supported = libc.mallopt(_MMAP_THRESHOLD, _UNLIMITED) and libc.mallopt(_TRIM_THRESHOLD, _UNLIMITED)
    except (AttributeError, OSError):  # another C library
        return False
    if is_supported and "THP_MEM_ALLOC_ENABLE" not in os.environ:
        _extend_heap(libc)
    return bool(is_supported)


def _extend_heap(libc: ctypes.CDLL) -> None:
    """Extend the heap to the memory of the machine, and ask Linux for large pages for it.

    Pages take memory only when they are first written. torch can ask for large pages too
    (``THP_MEM_ALLOC_ENABLE=1``), but aligns tensors to 4,096 bytes then, and glibc does not find a freed
    block for the next tensor of the same size: up to twice the memory is resident
    (`docs/benchmarks/performance.md`).
    """
    size = machine_memory()
    if size is None or any(_address_space()) or _counts_untouched_pages():
        return
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.sbrk(0)
    # The block becomes the free end of the heap. Linux refuses a request for all memory of the machine.
    libc.free(libc.malloc(size // 8 * 7))
    first_page = -(-start // _LARGE_PAGE) * _LARGE_PAGE
    n_bytes = libc.sbrk(0) - first_page
    if n_bytes > 0:
        libc.madvise(first_page, n_bytes, _MADV_HUGEPAGE)


def _counts_untouched_pages() -> bool:
    """Return whether Linux counts reserved memory as used (strict overcommit)."""
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text(encoding="ascii").strip() == "2"
    except OSError:
        return True
