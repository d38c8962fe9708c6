"""The C sources of this package as a library of this machine: compiled once, kept, and loaded.

Compiling takes one or two seconds with the compiler that is there (``$CC``, cc, gcc or clang) and is
done once for each version of the sources, compiler and processor. The result is kept in
``$XDG_CACHE_HOME/heedful`` (``~/.cache/heedful``), if that folder is the user's own and nobody else can
write to it; its name holds its hash, and one that is damaged is compiled again. If there is no compiler, or
anything else fails, there is no library, and whoever asked goes on without it. ``HEEDFUL_NATIVE=0``
switches it off.
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
# Threads and the processor's own instructions are wanted, but not everywhere to be had.
_ATTEMPTS = [[*_FLAGS, "-fopenmp"], _FLAGS, [flag for flag in _FLAGS if flag != "-march=native"]]
_PATIENCE = 300  # seconds; it takes two


class UnavailableError(Exception):
    """There is no library, and why."""


def build(flags: list[str] | None = None) -> ctypes.CDLL:
    """Load the library, compiling it first if that has not been done.

    Args:
        flags: of the compiler; by default the fastest that it takes.

    Raises:
        UnavailableError: it was switched off, there is no compiler that can make it, or the machine
            refuses something else that it needs (a temporary folder, say).
    """
    if os.environ.get(SWITCH) == "0":
        raise UnavailableError(f"{SWITCH}=0 switches it off")
    try:
        return _built(_ATTEMPTS if flags is None else [flags])
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"it cannot be built: {error}") from error


def _built(attempts: list[list[str]]) -> ctypes.CDLL:
    """The library of the first flags that work: the kept one if it is sound, or a new one."""
    compiler, cache, failure = _compiler(), _cache(), ""
    for flags in attempts:
        stem = f"engine-{_fingerprint(compiler, flags)}"
        if cache is not None and (kept := _kept(cache, stem)) is not None:
            try:
                return _loaded(kept)
            except OSError:  # made for another system that shares the folder
                kept.unlink(missing_ok=True)
        # It is loaded from the cache if possible: programs in temporary folders may be forbidden.
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
    """Make ``path``; return what the compiler says if it fails, otherwise nothing."""
    command = [*compiler, *flags, str(SOURCES / "engine.c"), "-o", str(path), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE)
    if done.returncode == 0 and path.is_file():
        return ""
    said = done.stderr.strip().splitlines()
    return said[-1] if said else f"status {done.returncode}"


def _loaded(path: Path) -> ctypes.CDLL:
    """Load a library.

    Raises:
        OSError: it cannot be loaded, or is another one.
    """
    dll = ctypes.CDLL(str(path))
    if missing := [name for name in FUNCTIONS if not hasattr(dll, name)]:
        raise OSError(f"{path} lacks {', '.join(missing)}")
    return dll


def _cache() -> Path | None:
    """The folder of libraries, if nobody else can write to it, for they are run.

    None where nothing tells whose a folder is (there are no numbers of users).
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
    except (OSError, RuntimeError, AttributeError):  # no home, no right to it; os.getuid is not everywhere
        return None
    return folder if is_safe else None


def _is_own(path: Path) -> bool:
    """Whether a file or folder, and no link, belongs to this user, and nobody else can write to it."""
    state = path.lstat()
    return state.st_uid == os.getuid() and not stat.S_ISLNK(state.st_mode) and not state.st_mode & 0o022


def _named(stem: str, library: Path) -> str:
    return f"{stem}-{sha256(library)[:32]}.so"


def _kept(cache: Path, stem: str) -> Path | None:
    """The kept library, if it is this user's and what was written; others are removed.

    A shortened library would end the process when it is loaded.
    """
    for path in cache.glob(f"{stem}-*.so"):
        with contextlib.suppress(OSError):
            if _is_own(path) and path.is_file() and path.name == _named(stem, path):
                return path
            path.unlink()
    return None


def _keep(library: Path, cache: Path | None, stem: str) -> Path:
    """Copy the library into the cache in one step; its path there, or its own if that fails."""
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
    """Changes with all that the library depends on."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    program = Path(compiler[0]).resolve().stat()
    parts = (*compiler, *flags, program.st_size, program.st_mtime_ns, identity())
    digest.update(repr(parts).encode())
    return digest.hexdigest()[:16]
