"""One training at a time in a run's folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedful.errors import RequestError

try:
    import fcntl
except ImportError:  # no POSIX system
    fcntl = None  # type: ignore[assignment]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; it is made where it is not, and goes again if it is left empty.

    The lock is advice to other trainings, and the system's: it goes with the process, however that ends.
    Where there are no such locks (another system, some network file systems), nothing is held.

    Raises:
        RequestError: another process holds it, or the folder cannot be made.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{folder}: the folder cannot be made ({error.strerror})") from None
    handle = _locked(folder)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
        with suppress(OSError):  # something is in it, or others use a parent by now
            for path in new:
                path.rmdir()


def _locked(folder: Path) -> int | None:
    """The open folder that is locked, or None where there are no locks."""
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RequestError(f"{folder}: another process trains this run; wait for it, or stop it") from None
    except OSError:
        os.close(handle)
        return None
    return handle
