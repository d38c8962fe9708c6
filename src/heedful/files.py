"""Files that are either there, whole and on the disk, or not there at all."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from heedful.errors import WorkError


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """The hash of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    """The permissions that this process denies to its files; the system tells only by setting them."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to; afterwards it takes the place of ``path`` in one step.

    Raises:
        WorkError: writing failed (a full disk, say); ``path`` is what it was before.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        raise WorkError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file, or fail and leave what was there."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file in UTF-8, or fail and leave what was there."""
    write_bytes(path, text.encode("utf-8"))
