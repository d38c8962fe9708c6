"""The functions of the library, with the structures that they take (`source/program.h`)."""

import ctypes
import functools
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np

from heedful.native.building import UnavailableError, build

EMBED, LINEAR, NORM, AFFINE, STORE, ATTEND = range(6)
FP32, BF16, INT8 = range(3)
NO_ACTIVATION, RELU, GELU, GELU_TANH = range(4)

PANEL = 32
"""Outputs whose weights are packed together."""
LANES = 16
"""Widths in caches are filled up to a multiple of it (PADDING of program.h)."""
CONVERTED_ALONE = 4
"""Up to so many rows, every thread converts the activations for itself."""


class Instruction(Structure):
    """One step of a program."""

    _fields_ = [
        *(
            (name, c_int32)
            for name in ("op", "source", "target", "add", "n_in", "n_out", "kind", "activation")
        ),
        *((name, c_void_p) for name in ("weights", "bias", "scales", "sums")),
        *((name, c_int32) for name in ("cache", "reads_source", "first_query", "first_key", "first_value")),
        *((name, c_int32) for name in ("n_heads", "n_kv_heads", "d_k", "d_v", "beside")),
        ("number", c_float),
    ]


class Cache(Structure):
    """Where keys and values lie."""

    _fields_ = [("keys", c_void_p), ("values", c_void_p), ("capacity", c_int64)]


class Call(Structure):
    """One run of a program."""

    _fields_ = [
        ("program", c_void_p),
        *((name, c_int64) for name in ("n_instructions", "n_rows", "n_threads", "n_buffers", "linked")),
        *((name, c_void_p) for name in ("buffers", "widths", "caches", "ids", "positions", "places")),
        *((name, c_void_p) for name in ("sequences", "seen", "ancestors")),
        ("n_ancestors", c_int64),
        *((name, c_void_p) for name in ("sources", "source_lengths", "converted")),
        ("n_converted", c_int64),
        *((name, c_void_p) for name in ("row_scales", "scores")),
        ("n_scores", c_int64),
    ]


class Library:
    """The loaded library."""

    def __init__(self, dll: ctypes.CDLL) -> None:
        self._run = dll.heedful_run
        self._run.argtypes, self._run.restype = [POINTER(Call)], None
        self._rank = dll.heedful_rank
        self._rank.restype = c_int64
        self._rank.argtypes = [
            c_void_p, c_int64, c_int64, c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int64,
        ]  # fmt: skip

    def run(self, call: Call) -> None:
        """Carry a program out. Nothing is checked: every address must be right."""
        self._run(ctypes.byref(call))

    def rank(
        self, logits: int, shape: tuple[int, int], forbidden: np.ndarray, k: int, n_threads: int
    ) -> tuple[Any, Any] | None:
        """The ``k`` most probable allowed tokens of each row: log-probabilities and ids, ``[N, k]``.

        Args:
            logits: address of ``[N, V]``, 32 bits, contiguous.
            shape: N and V.
            forbidden: ids (64 bits) that are passed over.
            k: how many; of equals, the lowest come first. Where fewer are possible and allowed, the
                last places have minus infinity and token 0.
            n_threads: over which the rows are spread.

        Returns:
            None where a row has no distribution: it holds NaN or plus infinity, or nothing is possible.
        """
        n, size = shape
        values, ids = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
        broken = self._rank(
            logits, n, size, forbidden.ctypes.data, len(forbidden), k, values.ctypes.data, ids.ctypes.data,
            n_threads,
        )  # fmt: skip
        return None if broken else (values, ids)


@functools.cache
def _loaded() -> Library | UnavailableError:
    try:
        return Library(build())
    except UnavailableError as reason:
        return reason


def library() -> Library | None:
    """The library of this machine, or None where there can be none."""
    found = _loaded()
    return found if isinstance(found, Library) else None


def unavailable() -> str | None:
    """Why there is no library; None where there is one."""
    found = _loaded()
    return str(found) if isinstance(found, UnavailableError) else None
