"""The native library: compile the C sources of this package, cache the result, load it, and call it.

Compiling takes one or two seconds with ``$CC``, cc, gcc or clang, and is done once per version of the
sources, compiler and processor. The result is cached in ``$XDG_CACHE_HOME/heedful`` (``~/.cache/heedful``) if
the user owns that folder and nobody else can write to it. The file name contains the hash of the library; a
damaged library is compiled again. If there is no compiler, or anything else fails, callers run without the
library. ``HEEDFUL_NATIVE=0`` disables it.

The structures are those of `source/program.h`.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

import numpy as np

from heedful.files import scratch_folder, sha256, sync
from heedful.hardware import identity


class UnavailableError(Exception):
    """The library is not available; the message says why."""


EMBED, LINEAR, NORM, AFFINE, STORE, ATTEND = range(6)
FP32, BF16, INT8 = range(3)
NO_ACTIVATION, RELU, GELU, GELU_TANH, SILU = range(5)

PANEL = 32
"""Number of outputs whose weights are packed together."""
LANES = 16
"""Widths in caches are padded to a multiple of this (PADDING in program.h)."""
CONVERTED_ALONE = 4
"""Up to this number of rows, every thread converts all activations itself."""
MOST_THREADS = 1024
"""Maximum number of threads."""
WIDEST_KEY = 16384
"""Maximum width of a key: a query is copied to the stack of its thread."""

# Error messages by the numbers in check.h.
_REASONS = {
    1: "sizes or memory of the call are missing or out of range",
    2: "unknown operation",
    3: "columns outside a buffer",
    4: "weights are missing or smaller than their shape",
    5: "a cache is missing or smaller than its shape",
    6: "working memory is missing or too small",
    7: "a token id is outside the embedding table",
    8: "a position is outside the table of positions or the cache",
    9: "a row refers to a line outside the cache or the ancestors",
    10: "a row sees more positions than there are",
}


class Instruction(Structure):
    """One instruction of a program."""

    _fields_ = [
        *(
            (name, c_int32)
            for name in ("op", "source", "target", "add", "n_in", "n_out", "kind", "activation")
        ),
        *((name, c_void_p) for name in ("weights", "bias", "scales", "sums")),
        *((name, c_int64) for name in ("n_weights", "n_bias", "n_scales", "n_sums")),
        *((name, c_int32) for name in ("cache", "reads_source", "first_query", "first_key", "first_value")),
        *((name, c_int32) for name in ("n_heads", "n_kv_heads", "d_k", "d_v", "beside")),
        ("number", c_float),
    ]


class Cache(Structure):
    """Memory of the keys and values of one layer."""

    _fields_ = [
        *((name, c_void_p) for name in ("keys", "values")),
        *((name, c_int64) for name in ("capacity", "lines", "n_keys", "n_values")),
    ]


class Call(Structure):
    """One run of a program."""

    _fields_ = [
        ("program", c_void_p),
        *((name, c_int64) for name in ("n_instructions", "n_rows", "n_threads", "n_buffers", "linked")),
        *((name, c_void_p) for name in ("buffers", "widths")),
        ("n_lines", c_int64),
        ("caches", c_void_p),
        ("n_caches", c_int64),
        *(
            (name, c_void_p)
            for name in ("ids", "positions", "cache_lines", "sequences", "n_visible", "ancestors")
        ),
        *((name, c_int64) for name in ("n_sequences", "n_ancestors")),
        *((name, c_void_p) for name in ("sources", "source_lengths")),
        ("most_threads", c_int64),
        ("converted", c_void_p),
        ("n_converted", c_int64),
        *((name, c_void_p) for name in ("row_scales", "scores")),
        ("n_scores", c_int64),
    ]


class Library:
    """The loaded native library."""

    def __init__(self, dll: ctypes.CDLL) -> None:
        self._run = dll.heedful_run
        self._run.argtypes, self._run.restype = [POINTER(Call)], c_int64
        self._rank = dll.heedful_rank
        self._rank.restype = c_int64
        self._rank.argtypes = [
            c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int64,
        ]  # fmt: skip

    def run(self, call: Call) -> None:
        """Run a program after checking that it stays within the sizes given in the structures.

        The sizes must be those of the memory at the addresses; all other fields are checked.

        Raises:
            ValueError: an instruction or a row exceeds these sizes. Nothing was executed.
        """
        if status := self._run(ctypes.byref(call)):
            instruction, reason = divmod(status, 256)
            raise ValueError(f"the engine refuses instruction {instruction}: {_REASONS[reason]}")

    def rank(
        self, logits: np.ndarray, forbidden: np.ndarray, k: int, n_threads: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the ``k`` most probable allowed tokens of each row: log-probabilities and ids, ``[N, k]``.

        Args:
            logits: ``[N, V]``, float32, contiguous.
            forbidden: ids (int64) to skip.
            k: number of tokens per row; ties are ordered by token id. If fewer tokens are possible and
                allowed, the remaining entries have log-probability minus infinity and token 0.
            n_threads: number of threads that share the rows.

        Returns:
            The two arrays, or None if a row has no distribution: it contains NaN or plus infinity, or all
            logits are minus infinity.

        Raises:
            ValueError: an array has the wrong type or shape, or ``k`` is not positive.
        """
        _require(logits, np.float32, 2, "logits")
        _require(forbidden, np.int64, 1, "forbidden")
        n, size = logits.shape
        if k < 1 or size < 1:
            raise ValueError(f"k and the number of tokens must be positive, got {k} and {size}")
        values, ids = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
        status = self._rank(
            logits.ctypes.data, n, size, forbidden.ctypes.data, len(forbidden), k, values.ctypes.data,
            ids.ctypes.data, max(1, min(n_threads, MOST_THREADS)),
        )  # fmt: skip
        return None if status else (values, ids)


def _require(array: np.ndarray, dtype: type, n_axes: int, name: str) -> None:
    if array.dtype != dtype or array.ndim != n_axes or not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous {dtype.__name__} with {n_axes} axes")


@functools.cache
def _load_once() -> Library | UnavailableError:
    try:
        return Library(build())
    except UnavailableError as reason:
        return reason


def library() -> Library | None:
    """Return the library, building it on the first call, or None if it is not available."""
    loaded = _load_once()
    return loaded if isinstance(loaded, Library) else None


def unavailable() -> str | None:
    """Return why the library is not available, or None if it is."""
    loaded = _load_once()
    return str(loaded) if isinstance(loaded, UnavailableError) else None


# Building ---------------------------------------------------------------------------------------------------

SOURCES = Path(__file__).parent / "source"
SWITCH = "HEEDFUL_NATIVE"
FUNCTIONS = ("heedful_run", "heedful_rank")

_FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-std=gnu11", "-fPIC", "-shared", "-w"]
# OpenMP and -march=native are not available everywhere.
_ATTEMPTS = [[*_FLAGS, "-fopenmp"], _FLAGS, [flag for flag in _FLAGS if flag != "-march=native"]]
_TIMEOUT = 300  # seconds; compiling takes two
_STALE = 3600  # seconds after which no process still writes a file


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
        return _load_or_build(_ATTEMPTS if flags is None else [flags])
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"it cannot be built: {error}") from error


def _load_or_build(attempts: list[list[str]]) -> ctypes.CDLL:
    """Return the library for the first flags that work: the cached one if it is intact, or a new one."""
    compiler, cache, failure = _compiler(), _cache(), ""
    for flags in attempts:
        stem = f"engine-{_fingerprint(compiler, flags)}"
        if cache is not None and (cached := _cached_library(cache, stem)) is not None:
            try:
                return _load_file(cached)
            except OSError:  # compiled for another system that shares the folder
                cached.unlink(missing_ok=True)
        # Load it from the cache if possible: temporary folders may be mounted noexec.
        with scratch_folder() as scratch:
            new_file = scratch / "engine.so"
            if failure := _compile(compiler, flags, new_file):
                continue
            for path in (_store(new_file, cache, stem), new_file):
                try:
                    return _load_file(path)
                except OSError as error:
                    failure = str(error)
    raise UnavailableError(f"{shlex.join(compiler)} cannot compile it: {failure}")


def _compiler() -> list[str]:
    cc = os.environ.get("CC", "")
    try:
        cc_command = shlex.split(cc)
    except ValueError as error:
        raise UnavailableError(f"CC={cc} is not a command: {error}") from None
    for command in (cc_command, ["cc"], ["gcc"], ["clang"]):
        path = shutil.which(command[0]) if command else None
        if path:
            return [path, *command[1:]]
    raise UnavailableError("no C compiler (cc, gcc or clang) was found")


def _compile(compiler: list[str], flags: list[str], path: Path) -> str:
    """Compile the library to ``path``; return the compiler's last line of errors if it fails, else ""."""
    command = [*compiler, *flags, str(SOURCES / "engine.c"), "-o", str(path), "-lm"]
    process = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT)
    if process.returncode == 0 and path.is_file():
        return ""
    errors = process.stderr.strip().splitlines()
    return errors[-1] if errors else f"status {process.returncode}"


def _load_file(path: Path) -> ctypes.CDLL:
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
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(cache_home) if os.path.isabs(cache_home) else Path.home() / ".cache"
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


def _cached_name(stem: str, library: Path) -> str:
    return f"{stem}-{sha256(library)[:32]}.so"


def _cached_library(cache: Path, stem: str) -> Path | None:
    """Return the cached library if it belongs to this user and is intact; remove others.

    Loading a truncated library would crash the process.
    """
    for path in cache.glob(f"{stem}-*.so"):
        with contextlib.suppress(OSError):
            if _is_own(path) and path.is_file() and path.name == _cached_name(stem, path):
                return path
            path.unlink()
    return None


def _remove_stale(cache: Path) -> None:
    """Remove copies that killed processes left; a copy takes less than a second."""
    for path in cache.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _STALE:
                path.unlink()


def _store(library: Path, cache: Path | None, stem: str) -> Path:
    """Copy the library into the cache atomically; return its path there, or ``library`` if that fails."""
    if cache is None:
        return library
    _remove_stale(cache)
    try:
        handle, name = tempfile.mkstemp(dir=cache, suffix=".tmp")
        os.close(handle)
        try:
            shutil.copyfile(library, name)
            sync(Path(name))
            return Path(name).rename(cache / _cached_name(stem, library))
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError:
        return library


def _fingerprint(compiler: list[str], flags: list[str]) -> str:
    """Return a hash of everything that the library depends on: sources, compiler, flags and processor."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    compiler_stat = Path(compiler[0]).resolve().stat()
    parts = (*compiler, *flags, compiler_stat.st_size, compiler_stat.st_mtime_ns, identity())
    digest.update(repr(parts).encode())
    return digest.hexdigest()[:16]
