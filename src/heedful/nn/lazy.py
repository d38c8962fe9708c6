"""Attributes that are computed on first use and kept."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import torch

Value = TypeVar("Value")


class lazy(Generic[Value]):  # noqa: N801 - used as a decorator
    """Like `functools.cached_property`, without its lock, and usable in compiled code.

    While a graph is being traced nothing is stored: what is computed there belongs to the graph. A value
    that was stored before is read as it is, and becomes an input of the graph.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__
        self.name = compute.__name__

    @overload
    def __get__(self, owner: None, kind: type) -> "lazy[Value]": ...
    @overload
    def __get__(self, owner: object, kind: type) -> Value: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        """The value; after the first time, the instance's own dictionary answers."""
        if owner is None:
            return self
        value = self.compute(owner)
        if not torch.compiler.is_compiling():
            owner.__dict__[self.name] = value
        return value
