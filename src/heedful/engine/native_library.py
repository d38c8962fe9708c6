"""Python interface of the native library: its functions and structures (`source/program.h`)."""

import ctypes
import functools
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np

from heedful.engine.native_build import UnavailableError, build

EMBED, LINEAR, NORM, AFFINE, STORE, ATTEND = range(6)
FP32, BF16, INT8 = range(3)
NO_ACTIVATION, RELU, GELU, GELU_TANH = range(4)

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
        *((name, c_void_p) for name in ("ids", "positions", "places", "sequences", "seen", "ancestors")),
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
        if wrong := self._run(ctypes.byref(call)):
            instruction, reason = divmod(wrong, 256)
            raise ValueError(f"the engine refuses instruction {instruction}: {_REASONS[reason]}")

    def rank(
        self, logits: np.ndarray, forbidden: np.ndarray, k: int, n_threads: int
    ) -> tuple[Any, Any] | None:
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
        broken = self._rank(
            logits.ctypes.data, n, size, forbidden.ctypes.data, len(forbidden), k, values.ctypes.data,
            ids.ctypes.data, max(1, min(n_threads, MOST_THREADS)),
        )  # fmt: skip
        return None if broken else (values, ids)


def _require(array: np.ndarray, dtype: type, n_axes: int, name: str) -> None:
    if array.dtype != dtype or array.ndim != n_axes or not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous {dtype.__name__} with {n_axes} axes")


@functools.cache
def _loaded() -> Library | UnavailableError:
    try:
        return Library(build())
    except UnavailableError as reason:
        return reason


def library() -> Library | None:
    """Return the library, building it on the first call, or None if it is not available."""
    found = _loaded()
    return found if isinstance(found, Library) else None


def unavailable() -> str | None:
    """Return why the library is not available, or None if it is."""
    found = _loaded()
    return str(found) if isinstance(found, UnavailableError) else None
