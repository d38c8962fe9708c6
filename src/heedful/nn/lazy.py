"""Attributes that are computed on first use and cached."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import torch

Value = TypeVar("Value")


class lazy(Generic[Value]):  # noqa: N801 - used as a decorator
    """Like `functools.cached_property`, without its lock, and usable in compiled code.

    While a graph is traced nothing is cached: values computed there belong to the graph. A value cached
    before becomes an input of the graph.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__
        self.name = compute.__name__

    @overload
    def __get__(self, owner: None, kind: type) -> "lazy[Value]": ...
    @overload
    def __get__(self, owner: object, kind: type) -> Value: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        """Compute and cache the value; later accesses read it from the instance dictionary."""
        if owner is None:
            return self
        value = self.compute(owner)
        if not torch.compiler.is_compiling():
            owner.__dict__[self.name] = value
        return value
