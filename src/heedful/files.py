"""Files that are either there, whole and on the disk, or not there at all."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def behind_links(path: Path) -> Path | None:
    """The regular file, there or yet to be made, that ``path`` leads to; a link to it stays a link.

    None where something else stands (a FIFO, a device, a folder), whose place no file may take, and where
    links lead in a circle.
    """
    target = Path(os.path.realpath(path))
    try:
        is_other = target.is_symlink() or (path.exists() and not path.is_file())
    except OSError:
        is_other = False  # what is wrong is told by opening it
    return None if is_other else target


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name to write to; afterwards it takes the place of ``path`` in one step.

    Where ``path`` is a link, its target is replaced; what is no regular file is itself written to.

    Raises:
        WorkError: writing failed (a full disk, say); ``path`` is what it was before.
    """
    target = behind_links(path)
    if target is None:
        with _told(path):
            yield path
        return
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with _told(path):
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            sync(temporary)
            temporary.replace(target)
            sync(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Tell what the system refuses as an error of ours."""
    try:
        yield
    except OSError as error:
        raise WorkError(f"{path}: cannot be written ({error.strerror or error})") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file, or fail and leave what was there."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold it: it has no half of a surrogate pair, as names that are not UTF-8 do."""
    return text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text)


def json_text(value: Any, **how: Any) -> str:
    """JSON; escaped to ASCII only where UTF-8 cannot hold it. ``how`` is said to ``json.dumps``."""
    text = json.dumps(value, ensure_ascii=False, **how)
    return text if is_unicode(text) else json.dumps(value, **how)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file in UTF-8, or fail and leave what was there."""
    write_bytes(path, text.encode("utf-8"))
