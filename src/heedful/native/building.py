"""The C sources of this package as a library of this machine: compiled once, kept, and loaded.

Compiling takes one or two seconds with the compiler that is there (``$CC``, cc, gcc or clang) and is
done once for each version of the sources, compiler and processor. The result is kept in
``$XDG_CACHE_HOME/heedful`` (``~/.cache/heedful``). Where there is no compiler, there is no library, and
whoever asked goes on without it. ``HEEDFUL_NATIVE=0`` switches it off.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from heedful.processor import described

SOURCES = Path(__file__).parent / "source"
SWITCH = "HEEDFUL_NATIVE"

_FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-std=gnu11", "-fPIC", "-shared", "-w"]
# Threads and the processor's own instructions are wanted, but not everywhere to be had.
_ATTEMPTS = [[*_FLAGS, "-fopenmp"], _FLAGS, [flag for flag in _FLAGS if flag != "-march=native"]]
_PATIENCE = 300  # seconds; it takes two


class UnavailableError(Exception):
    """There is no library, and why."""


def build(flags: list[str] | None = None) -> ctypes.CDLL:
    """Load the library, compiling it first where that has not been done.

    Args:
        flags: of the compiler; by default the fastest that it takes.

    Raises:
        UnavailableError: it was switched off, or there is no compiler that can make it.
    """
    if os.environ.get(SWITCH) == "0":
        raise UnavailableError(f"{SWITCH}=0 switches it off")
    compiler = _compiler()
    failure = ""
    for attempt in _ATTEMPTS if flags is None else [flags]:
        path = _folder() / f"engine-{_fingerprint(compiler, attempt)}.so"
        if not path.is_file():
            failure = _compile(compiler, attempt, path)
        if path.is_file():
            try:
                return ctypes.CDLL(str(path))
            except OSError as error:
                failure = str(error)
    raise UnavailableError(f"{shlex.join(compiler)} cannot compile it: {failure}")


def _compiler() -> list[str]:
    chosen = shlex.split(os.environ.get("CC", ""))
    for command in (chosen, ["cc"], ["gcc"], ["clang"]):
        found = shutil.which(command[0]) if command else None
        if found:
            return [found, *command[1:]]
    raise UnavailableError("there is no C compiler (cc, gcc or clang)")


def _compile(compiler: list[str], flags: list[str], path: Path) -> str:
    """Make ``path``; what the compiler said where it failed."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".so")
    os.close(handle)
    command = [*compiler, *flags, str(SOURCES / "engine.c"), "-o", name, "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
        if done.returncode == 0:
            os.replace(name, path)
            return ""
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        Path(name).unlink(missing_ok=True)


def _folder() -> Path:
    """Where libraries are kept: a folder that nobody else can write to, for they are run.

    Where nothing tells whose a folder is (there are no numbers of users), it is one of this process alone.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "heedful"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        if state.st_uid == os.getuid() and not state.st_mode & 0o022 and os.access(folder, os.W_OK):
            return folder
    except (OSError, AttributeError):  # os.getuid is not everywhere
        pass
    return _private_folder()


_private: list[Path] = []


def _private_folder() -> Path:
    if not _private:
        _private.append(Path(tempfile.mkdtemp(prefix="heedful-")))
    return _private[0]


def _fingerprint(compiler: list[str], flags: list[str]) -> str:
    """Changes with all that the library depends on."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    program = Path(compiler[0]).resolve().stat()
    parts = (*compiler, *flags, program.st_size, program.st_mtime_ns, platform.machine(), _processor())
    digest.update(repr(parts).encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """The processor's model and abilities, on which -march=native depends."""
    own = described()
    return "".join(own.get(name, "") for name in ("model name", "flags", "Features")) or platform.processor()
