"""Files that are either there, whole and on the disk, or not there at all."""

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heedful.errors import DataError, WorkError


def require_end(path: Path) -> None:
    """Refuse what may be read without end: devices such as ``/dev/zero``.

    Raises:
        DataError: the path leads to a device or a socket.
    """
    if path.is_char_device() or path.is_block_device() or path.is_socket():
        raise DataError(f"{path}: must be a regular file or a pipe, got a device or a socket")


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
    """Yield the path of an empty temporary file; afterwards it takes the place of ``path`` in one step.

    The temporary file lies beside ``path`` under a random name, so that several writers do not disturb
    each other: the last to finish wins. The mode of an existing file is kept; a new one gets the mode that
    the umask allows. If ``path`` is a link, its target is replaced; a FIFO or a device is written to.

    Raises:
        WorkError: writing failed (a full disk, say); ``path`` is what it was before.
    """
    target = behind_links(path)
    if target is None:
        with _reporting(path):
            yield path
        return
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        with _reporting(path):
            mode = _create(temporary, target)
            yield temporary
            _finish(temporary, mode)
            temporary.replace(target)
            sync(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.tmp|\.tmp[0-9A-Za-z]{6}")
"""Names given by `replacing`, and by safetensors while it writes to a path."""


def is_temporary(path: Path) -> bool:
    """Return whether a file was left by a process that was killed inside `replacing`, or is in use there."""
    return _TEMPORARY.fullmatch(path.name) is not None


def remove_temporaries(folder: Path) -> None:
    """Remove what killed processes left in a folder in which no other process writes now."""
    for path in folder.iterdir():
        if is_temporary(path):
            path.unlink(missing_ok=True)


def _create(temporary: Path, target: Path) -> int:
    """Create an empty file under a name that must be free; return the mode for the finished file.

    The system applies the umask itself: reading it would change it for all threads for a moment.
    """
    old = target.stat().st_mode if target.exists() else None
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if old is None else 0o600)
    try:
        return (os.fstat(handle).st_mode if old is None else old) & 0o777
    finally:
        os.close(handle)


def _finish(path: Path, mode: int) -> None:
    """Set the mode of a file and wait until it is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Raise what the system refuses as `WorkError`; a reader that left a pipe is no failure of the work."""
    try:
        yield
    except BrokenPipeError:
        raise
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


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: it is malformed, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_sha256(value: Any) -> str:
    """The SHA-256 of JSON values, in hexadecimal; spacing and the order of keys do not count."""
    written = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def stamped(record: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the hash of its other entries under ``sha256``, so that it vouches for itself."""
    content = {key: value for key, value in record.items() if key != "sha256"}
    return {**content, "sha256": json_sha256(content)}


def is_intact(record: Mapping[str, Any]) -> bool:
    """Return whether an object is what `stamped` made; one without a hash is believed."""
    return "sha256" not in record or record == stamped(record)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file in UTF-8, or fail and leave what was there."""
    write_bytes(path, text.encode("utf-8"))
