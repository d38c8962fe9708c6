"""Evaluation mode for the duration of a computation."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from torch import nn


class _Modes:
    """The models that are in evaluation mode for a time: modules to put back, and number of contexts."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.training: dict[nn.Module, list[nn.Module]] = {}
        self.n_contexts: dict[nn.Module, int] = {}


_modes = _Modes()


def _after_fork() -> None:
    """Forget the contexts and the lock of threads that do not exist in the new process."""
    global _modes
    _modes = _Modes()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode; afterwards each of its modules has its former mode again.

    If contexts of several threads overlap, the last one to end restores the modes. A model that is in
    evaluation mode already is left alone.
    """
    modes = _modes
    with modes.lock:
        if model not in modes.training and (training := [m for m in model.modules() if m.training]):
            modes.training[model], modes.n_contexts[model] = training, 0
            model.eval()
        if is_counted := model in modes.training:
            modes.n_contexts[model] += 1
    try:
        yield
    finally:
        if is_counted:
            with modes.lock:
                modes.n_contexts[model] -= 1
                if not modes.n_contexts[model]:
                    del modes.n_contexts[model]
                    for module in modes.training.pop(model):
                        module.training = True
