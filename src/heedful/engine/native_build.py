"""Compile the C sources of this package into a shared library, cache it, and load it.

Compiling takes one or two seconds with ``$CC``, cc, gcc or clang, and is done once per version of the
sources, compiler and processor. The result is cached in ``$XDG_CACHE_HOME/heedful`` (``~/.cache/heedful``) if
the user owns that folder and nobody else can write to it. The file name contains the hash of the library; a
damaged library is compiled again. If there is no compiler, or anything else fails, callers run without the
library. ``HEEDFUL_NATIVE=0`` disables it.
"""

import contextlib
import ctypes
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from heedful.files import sha256, sync
from heedful.hardware import identity

SOURCES = Path(__file__).parent / "source"
SWITCH = "HEEDFUL_NATIVE"
FUNCTIONS = ("heedful_run", "heedful_rank")

_FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-std=gnu11", "-fPIC", "-shared", "-w"]
# OpenMP and -march=native are not available everywhere.
_ATTEMPTS = [[*_FLAGS, "-fopenmp"], _FLAGS, [flag for flag in _FLAGS if flag != "-march=native"]]
_TIMEOUT = 300  # seconds; compiling takes two


class UnavailableError(Exception):
    """The library is not available; the message says why."""


def build(flags: list[str] | None = None) -> ctypes.CDLL:
    """Load the library, compiling it first if it is not cached.

    Args:
        flags: compiler flags; default: the fastest that the compiler accepts.

    Raises:
        UnavailableError: the library is disabled, no compiler can build it, or something else that it needs
            is not available (for example, a temporary folder).
    """
    if os.environ.get(SWITCH) == "0":
        raise UnavailableError(f"disabled by {SWITCH}=0")
    try:
        return _built(_ATTEMPTS if flags is None else [flags])
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"it cannot be built: {error}") from error


def _built(attempts: list[list[str]]) -> ctypes.CDLL:
    """Return the library for the first flags that work: the cached one if it is intact, or a new one."""
    compiler, cache, failure = _compiler(), _cache(), ""
    for flags in attempts:
        stem = f"engine-{_fingerprint(compiler, flags)}"
        if cache is not None and (kept := _kept(cache, stem)) is not None:
            try:
                return _loaded(kept)
            except OSError:  # compiled for another system that shares the folder
                kept.unlink(missing_ok=True)
        # Load it from the cache if possible: temporary folders may be mounted noexec.
        with tempfile.TemporaryDirectory(prefix="heedful-", ignore_cleanup_errors=True) as scratch:
            fresh = Path(scratch) / "engine.so"
            if failure := _compile(compiler, flags, fresh):
                continue
            for path in (_keep(fresh, cache, stem), fresh):
                try:
                    return _loaded(path)
                except OSError as error:
                    failure = str(error)
    raise UnavailableError(f"{shlex.join(compiler)} cannot compile it: {failure}")


def _compiler() -> list[str]:
    named = os.environ.get("CC", "")
    try:
        chosen = shlex.split(named)
    except ValueError as error:
        raise UnavailableError(f"CC={named} is not a command: {error}") from None
    for command in (chosen, ["cc"], ["gcc"], ["clang"]):
        found = shutil.which(command[0]) if command else None
        if found:
            return [found, *command[1:]]
    raise UnavailableError("there is no C compiler (cc, gcc or clang)")


def _compile(compiler: list[str], flags: list[str], path: Path) -> str:
    """Compile the library to ``path``; return the compiler's last line of errors if it fails, else ""."""
    command = [*compiler, *flags, str(SOURCES / "engine.c"), "-o", str(path), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT)
    if done.returncode == 0 and path.is_file():
        return ""
    errors = done.stderr.strip().splitlines()
    return errors[-1] if errors else f"status {done.returncode}"


def _loaded(path: Path) -> ctypes.CDLL:
    """Load a library.

    Raises:
        OSError: the file cannot be loaded, or lacks a function.
    """
    dll = ctypes.CDLL(str(path))
    if missing := [name for name in FUNCTIONS if not hasattr(dll, name)]:
        raise OSError(f"{path} lacks {', '.join(missing)}")
    return dll


def _cache() -> Path | None:
    """Return the cache folder, or None if another user could write to it, since its libraries are executed.

    Also None on systems that report no owner of a folder.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
        folder = base / "heedful"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
        parents = [parent.stat().st_mode for parent in folder.parents]
        is_safe = _is_own(folder) and not any(
            mode & stat.S_IWOTH and not mode & stat.S_ISVTX for mode in parents
        )
    except (
        OSError,
        RuntimeError,
        AttributeError,
    ):  # no home or no permission; not all systems have os.getuid
        return None
    return folder if is_safe else None


def _is_own(path: Path) -> bool:
    """Return whether a path is no link, belongs to this user, and is not writable by others."""
    state = path.lstat()
    return state.st_uid == os.getuid() and not stat.S_ISLNK(state.st_mode) and not state.st_mode & 0o022


def _named(stem: str, library: Path) -> str:
    return f"{stem}-{sha256(library)[:32]}.so"


def _kept(cache: Path, stem: str) -> Path | None:
    """Return the cached library if it belongs to this user and is intact; remove others.

    Loading a truncated library would crash the process.
    """
    for path in cache.glob(f"{stem}-*.so"):
        with contextlib.suppress(OSError):
            if _is_own(path) and path.is_file() and path.name == _named(stem, path):
                return path
            path.unlink()
    return None


def _keep(library: Path, cache: Path | None, stem: str) -> Path:
    """Copy the library into the cache atomically; return its path there, or ``library`` if that fails."""
    if cache is None:
        return library
    try:
        handle, name = tempfile.mkstemp(dir=cache, suffix=".tmp")
        os.close(handle)
        try:
            shutil.copyfile(library, name)
            sync(Path(name))
            return Path(name).rename(cache / _named(stem, library))
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError:
        return library


def _fingerprint(compiler: list[str], flags: list[str]) -> str:
    """Return a hash of everything that the library depends on: sources, compiler, flags and processor."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    program = Path(compiler[0]).resolve().stat()
    parts = (*compiler, *flags, program.st_size, program.st_mtime_ns, identity())
    digest.update(repr(parts).encode())
    return digest.hexdigest()[:16]
