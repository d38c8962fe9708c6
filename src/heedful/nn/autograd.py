"""The type of ``ctx`` in the ``forward`` and ``backward`` of a `torch.autograd.Function`."""

from torch import Tensor
from torch.autograd.function import FunctionCtx


class _IsFunctionCtx(type):
    """Let `isinstance` accept torch's own contexts, which are not instances of the classes below."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, FunctionCtx)


class Context(FunctionCtx, metaclass=_IsFunctionCtx):
    """Attributes that torch gives every ``ctx`` but does not declare.

    A function that keeps more than tensors from ``forward`` for ``backward`` declares it in a subclass. The
    classes are for type checkers only: torch makes the objects.
    """

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]
