"""Atomic, durable file writes, and helpers for JSON and hashes."""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from heedful.errors import DataError, RequestError, WorkError
from heedful.typing import JsonMapping, JsonObject

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

IMAGES = (".svg", ".png")
"""Suffixes of the files that plots and drawings can be written to."""


COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Suffixes of compressed files, after that of their content."""


def has_suffix(name: str, *suffixes: str) -> bool:
    """Whether the name of a file ends in one of the suffixes, in any case; one of `COMPRESSED` may follow."""
    name = name.lower()
    content = next((name.removesuffix(end) for end in COMPRESSED if name.endswith(end)), name)
    return content.endswith(tuple(suffix.lower() for suffix in suffixes))


def check_parent(path: Path, option: str = "") -> None:
    """Check that the folder of a file to write exists.

    Args:
        path: the file.
        option: the option that names it, for the message.

    Raises:
        RequestError: there is no such folder, or one of its parents is a file; with the remedy.
    """
    folder = path.parent
    if folder.is_dir():
        return
    beginning = f"{option} {path}" if option else f"{path}"
    if problem := file_in_the_way(folder):
        raise RequestError(f"{beginning}: cannot be written: {problem}")
    raise RequestError(
        f"{beginning}: cannot be written: the folder {folder} does not exist; create it: mkdir -p "
        f"{shlex.quote(str(folder))}"
    )


def file_in_the_way(folder: Path) -> str:
    """Return which file is where a folder or a parent of it should be, and the remedy; empty if none is."""
    existing = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), None)
    if existing is None or existing.is_dir():
        return ""
    kind = "is a file, not a folder" if existing.is_file() else "is not a folder"
    return f"{existing} {kind}; choose another path"


def require_end(path: Path) -> None:
    """Reject paths that may have no end, such as ``/dev/zero``.

    Raises:
        DataError: the path is a device or a socket.
    """
    if path.is_char_device() or path.is_block_device() or path.is_socket():
        raise DataError(f"{path}: must be a regular file or a pipe, got a device or a socket")


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def behind_links(path: Path) -> Path | None:
    """Resolve links and return the regular file, existing or not, that ``path`` refers to.

    Return None if the target is something else (a FIFO, a device, a folder), which must not be replaced, or
    if links form a cycle.
    """
    target = Path(os.path.realpath(path))
    try:
        is_other = target.is_symlink() or (path.exists() and not path.is_file())
    except OSError:
        is_other = False  # opening the file reports the error
    return None if is_other else target


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of an empty temporary file that atomically replaces ``path`` on exit.

    The temporary file is in the folder of ``path`` under a random name, so that several writers do not
    interfere: the last to finish wins. An existing file keeps its mode; a new one gets the mode allowed by
    the umask. If ``path`` is a link, its target is replaced; a FIFO or a device is written to directly.

    Raises:
        WorkError: writing failed (for example, the disk is full); ``path`` is unchanged.
    """
    target = behind_links(path)
    if target is None:
        with os_errors_raised(path):
            yield path
        return
    temporary = temporary_beside(target)
    try:
        with os_errors_raised(path):
            mode = _create(temporary, target)
            yield temporary
            _finish(temporary, mode)
            temporary.replace(target)
            sync(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.tmp|\.tmp[0-9A-Za-z]{6}")
"""Names that `temporary_beside` returns, and those of safetensors."""


def temporary_beside(path: Path) -> Path:
    """Return a new name for a temporary file or folder that will replace ``path``."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether a file or folder is a temporary one, in use or left by a killed process."""
    return _TEMPORARY.fullmatch(path.name) is not None


def remove_temporaries(folder: Path) -> None:
    """Remove what killed processes left in a folder; no other process may be writing in it."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_temporary(path):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder as far as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


_SCRATCH = "heedful-scratch-", ".tmp"
"""Beginning and end of the names of scratch folders."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder among the system's temporary ones, and remove it on exit.

    The process holds a lock on it, which the system releases however the process ends: by this,
    `remove_scratch_folders` recognises the folders of killed processes.
    """
    remove_scratch_folders()
    while True:
        path = Path(tempfile.mkdtemp(_SCRATCH[1], _SCRATCH[0]))
        handle = _locked(path)
        try:
            if not path.exists():  # another process took it for abandoned before it was locked
                continue
            yield path
            return
        finally:
            shutil.rmtree(path, ignore_errors=True)
            if handle is not None:
                os.close(handle)


def _locked(folder: Path) -> int | None:
    """Return the descriptor of a folder, locked if the system has locks; None if it cannot be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        if fcntl is not None:
            with contextlib.suppress(OSError):  # without locks, no process removes folders of others
                fcntl.flock(handle, fcntl.LOCK_EX)
        return handle
    return None


def remove_scratch_folders() -> None:
    """Remove this user's scratch folders of killed processes; those that are in use are locked."""
    if fcntl is None:
        return
    try:
        folder = Path(tempfile.gettempdir())
    except OSError:  # there is none
        return
    for path in folder.glob("*".join(_SCRATCH)):
        with contextlib.suppress(OSError):  # in use, or of another user
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(handle).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)


def _create(temporary: Path, target: Path) -> int:
    """Create an empty file, which must not exist, and return the mode for the finished file.

    The system applies the umask; reading the umask would briefly change it for all threads.
    """
    old = target.stat().st_mode if target.exists() else None
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if old is None else 0o600)
    try:
        return (os.fstat(handle).st_mode if old is None else old) & 0o777
    finally:
        os.close(handle)


def _finish(path: Path, mode: int) -> None:
    """Set the mode of a file and flush it to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def os_errors_raised(path: Path) -> Iterator[None]:
    """Convert `OSError` to `WorkError`, except for a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WorkError(f"{path}: cannot be written ({error.strerror or error})") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; an existing file is unchanged if this fails."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode the text: it has no surrogates, as file names that are not UTF-8 do."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def json_text(value: object, *, indent: int | None = None, allow_nan: bool = True) -> str:
    """Return JSON text, escaped to ASCII only if UTF-8 cannot encode it."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=allow_nan)
    return text if is_unicode(text) else json.dumps(value, indent=indent)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: the text is malformed or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_sha256(value: object) -> str:
    """Return the SHA-256 of a JSON value, in hexadecimal, independent of spacing and key order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def stamped(record: JsonMapping) -> JsonObject:
    """Return a copy of a JSON object with the hash of its other entries under ``sha256``."""
    content = {key: value for key, value in record.items() if key != "sha256"}
    return {**content, "sha256": json_sha256(content)}


def is_intact(record: JsonMapping) -> bool:
    """Return whether the object has the hash that `stamped` adds, and it matches."""
    return record == stamped(record)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically; an existing file is unchanged if this fails."""
    write_bytes(path, text.encode("utf-8"))


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Yield a text file that replaces `path` atomically once it is complete and synced to disk.

    See `replacing`.

    Raises:
        RequestError: the file cannot be created.
        WorkError: writing failed (e.g. a full disk); an existing file is kept.
    """
    if path.is_dir():
        raise RequestError(f"{path}: expected a file, got a folder")
    check_parent(path)
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(replacing(path))
            file = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        except (WorkError, OSError) as error:
            reason = (
                error if isinstance(error, WorkError) else f"{path}: cannot be written ({error.strerror})"
            )
            raise RequestError(str(reason)) from None
        yield file
