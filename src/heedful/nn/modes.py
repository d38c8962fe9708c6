"""Evaluation mode for the duration of a computation."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from torch import nn

from heedful.forks import PerProcess


@dataclass
class _Switched:
    """A model that is in evaluation mode for a time: the modules to put back, and the number of contexts."""

    modules: list[nn.Module]
    n_contexts: int = 0


@dataclass
class _Models:
    """The models that are switched, and the lock to change that."""

    lock: Lock = field(default_factory=Lock)
    switched: dict[nn.Module, _Switched] = field(default_factory=dict)


_models = PerProcess(_Models)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode; afterwards each of its modules has its former mode again.

    If contexts of several threads overlap, the last one to end restores the modes. A model that is in
    evaluation mode already is left alone.
    """
    models = _models.value
    with models.lock:
        switched = models.switched.get(model)
        if switched is None and (training := [module for module in model.modules() if module.training]):
            switched = models.switched[model] = _Switched(training)
            model.eval()
        if switched is not None:
            switched.n_contexts += 1
    try:
        yield
    finally:
        if switched is not None:
            with models.lock:
                switched.n_contexts -= 1
                if not switched.n_contexts:
                    del models.switched[model]
                    for module in switched.modules:
                        module.training = True
