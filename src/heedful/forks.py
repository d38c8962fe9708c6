"""What a process that was forked from another one must have anew."""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that a forked process makes anew, such as a lock: the threads that held it do not exist there.

    Args:
        make: returns the value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.value = make()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.value = self._make()
