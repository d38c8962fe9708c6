"""How this process takes memory from the system.

A training step on a CPU takes and frees the same large tensors again and again. By default each goes
back to the system when it is freed, and comes again in small pages, which have to be filled with zeros
and looked up. Kept, and in large pages, a step takes three quarters of the time (`docs/performance.md`).
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
