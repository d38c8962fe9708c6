"""One process at a time that makes or changes the content of a folder."""

import os
import shutil
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
    """Hold the folder for this process; make it if it is missing, and remove it again if it is left empty.

    The lock is advisory and the system's: it is released when the process ends, in whatever way. Where the
    system has no such locks (Windows, some network file systems), nothing is held.

    Raises:
        RequestError: another process holds it, or the folder cannot be made.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    handle = _locked(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty, or others use a parent by now
            for path in new:
                path.rmdir()
        if handle is not None:
            os.close(handle)


def _locked(folder: Path) -> int | None:
    """Make and open the folder and lock it; None if there are no locks."""
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"{folder}: the folder cannot be made ({error.strerror})") from None
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
            raise RequestError(
                f"{folder}: another process writes in this folder; wait for it, or stop it"
            ) from None
        except OSError:
            os.close(handle)
            return None
        if _is_still(folder, handle):
            return handle
        os.close(handle)


def _is_still(folder: Path, handle: int) -> bool:
    """Return whether the open folder still has its name: its last holder may have removed it."""
    try:
        return os.path.samestat(folder.stat(), os.fstat(handle))
    except OSError:
        return False


@contextmanager
def nothing_half_made(folder: Path) -> Iterator[None]:
    """Empty a folder if the work in it fails. Only for its holder, who found it empty of anything to keep."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
        raise
