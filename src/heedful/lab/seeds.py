"""One seed for all that an experiment draws, weights included, without a trace in torch's own generator."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Within it, or within a function that it decorates, the generator of the CPU starts from ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
