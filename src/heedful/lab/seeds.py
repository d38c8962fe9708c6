"""All seeds of the lab go through here, so that all of them can be shifted at once.

A verdict must not depend on seeds: ``with shifted(1): experiment.run("short")`` runs an experiment with other
weights and data, and `tests/verdicts.py` does so for all of them.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import torch

_STRIDE = 1_000_003
"""Larger than every seed in use, so that shifted seeds are new ones."""

_shift: ContextVar[int] = ContextVar("shift", default=0)

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def shifted(shift: int) -> Iterator[None]:
    """Replace every seed of the lab by another one within the context; 0 keeps them.

    Args:
        shift: at least 0; different shifts give different seeds.
    """
    token = _shift.set(shift)
    try:
        yield
    finally:
        _shift.reset(token)


def seed_of(seed: int) -> int:
    """The seed to use in place of ``seed``, for what takes an integer: itself unless seeds are `shifted`."""
    return seed + _STRIDE * _shift.get()


def generator_from(seed: int) -> torch.Generator:
    """A generator of its own that starts from ``seed``."""
    return torch.Generator().manual_seed(seed_of(seed))


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Start torch's generator of the CPU from ``seed`` within the context, and restore its state after it.

    Also a decorator of functions.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of(seed))
        yield


def cache(function: Callable[P, R]) -> Callable[P, R]:
    """`functools.cache`, with results of their own for each shift of the seeds."""
    results: dict[object, R] = {}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        key = _shift.get(), args, tuple(kwargs.items())
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    return call
