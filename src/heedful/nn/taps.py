"""Named points in a model at which values can be read or replaced while it runs.

A `Tap` is a module that hands its input on. Where somebody listens, it is *active*, and a part that
computes the value only on request (attention weights, which fused kernels never form) takes the path
that computes it, in that layer alone.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

Listener = Callable[[Tensor], Tensor | None]


class Tap(nn.Module):
    """Hands its input on; listeners see it, and what a listener returns replaces it."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[Listener] = []

    @property
    def active(self) -> bool:
        """Whether anybody listens."""
        return bool(self.listeners)

    def forward(self, x: Tensor) -> Tensor:
        """``x``, or what the listeners made of it."""
        for listener in self.listeners:
            replaced = listener(x)
            x = x if replaced is None else replaced
        return x


def taps(model: nn.Module) -> dict[str, Tap]:
    """All taps of a model by their dotted names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


@contextmanager
def listening(model: nn.Module, listeners: dict[str, Listener]) -> Iterator[None]:
    """Attach listeners by tap name for as long as the context lasts."""
    known = taps(model)
    missing = sorted(set(listeners) - set(known))
    if missing:
        raise KeyError(f"no tap named {missing[0]!r}; there are {sorted(known)}")
    for name, listener in listeners.items():
        known[name].listeners.append(listener)
    try:
        yield
    finally:
        for name, listener in listeners.items():
            known[name].listeners.remove(listener)


@contextmanager
def recording(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect what passes the named taps: one tensor for each time the model ran."""
    record: dict[str, list[Tensor]] = {name: [] for name in names}
    with listening(model, {name: values.append for name, values in record.items()}):
        yield record
