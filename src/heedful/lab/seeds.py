"""Seeds of the lab. All of them go through this module, so that they can be shifted together.

A verdict must not depend on seeds: ``with shifted(1): experiment.run("short")`` runs an experiment with other
weights and data, and `tests/verdicts.py` does so for all experiments.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import torch

_STRIDE = 1_000_003
"""Larger than every seed in use, so that shifted seeds never equal unshifted ones."""

_shift: ContextVar[int] = ContextVar("shift", default=0)

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def shifted(shift: int) -> Iterator[None]:
    """Replace every seed of the lab by a different one within the context; 0 keeps them.

    Args:
        shift: at least 0; different shifts give different seeds.
    """
    token = _shift.set(shift)
    try:
        yield
    finally:
        _shift.reset(token)


def seed_of(seed: int) -> int:
    """Return the integer seed to use in place of ``seed``; equal to ``seed`` unless seeds are `shifted`."""
    return seed + _STRIDE * _shift.get()


def generator_from(seed: int) -> torch.Generator:
    """Return a new generator seeded with ``seed``."""
    return torch.Generator().manual_seed(seed_of(seed))


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Seed torch's CPU generator with ``seed`` within the context, and restore its state on exit.

    Can also be used as a decorator.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of(seed))
        yield


def cache(function: Callable[P, R]) -> Callable[P, R]:
    """Cache results like `functools.cache`, separately for each shift of the seeds."""
    results: dict[object, R] = {}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        key = _shift.get(), args, tuple(kwargs.items())
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    return call
