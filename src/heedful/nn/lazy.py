"""Attributes that are computed on first use and cached."""

from collections.abc import Callable
from typing import Generic, TypeVar, overload

import torch

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy(Generic[Owner, Value]):  # noqa: N801 - used as a decorator
    """Like `functools.cached_property`, without its lock, and usable in compiled code.

    While a graph is traced nothing is cached: values computed there belong to the graph. A value cached
    before becomes an input of the graph.
    """

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__
        self.name = compute.__name__

    @overload
    def __get__(self, owner: None, kind: type) -> "lazy[Owner, Value]": ...
    @overload
    def __get__(self, owner: Owner, kind: type) -> Value: ...
    def __get__(self, owner: Owner | None, kind: type) -> object:
        """Compute and cache the value; later accesses read it from the instance dictionary."""
        if owner is None:
            return self
        value = self.compute(owner)
        if not torch.compiler.is_compiling():
            owner.__dict__[self.name] = value
        return value
