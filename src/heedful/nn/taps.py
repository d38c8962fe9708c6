"""Named points in a model at which values can be read or replaced while it runs.

A `Tap` is a module that hands its input on. There are two ways to attach to one:

| | sees | may replace the value | attention weights |
|---|---|---|---|
| a listener | what passes | yes | that layer takes the explicit path, all heads |
| a watcher | what passes, or would | no | the fast path runs; the heads asked for are computed beside it |

Fused kernels never form attention weights. For a watcher they are computed from the very queries and keys
that the kernel was given, outside the graph of gradients; memory is spent on what is asked for alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

Listener = Callable[[Tensor], Tensor | None]
Heads = Sequence[int] | None
"""Which heads, counted from 0; None: all."""


class Tap(nn.Module):
    """Hands its input on; listeners see it, and what a listener returns replaces it; watchers see it."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[Listener] = []
        self.watchers: list[tuple[Heads, Callable[[Tensor], None]]] = []

    @property
    def active(self) -> bool:
        """Whether the value itself must pass: somebody listens."""
        return bool(self.listeners)

    @property
    def watched(self) -> bool:
        """Whether somebody wants to know the value, without a part in it."""
        return bool(self.watchers)

    @property
    def attached(self) -> bool:
        """Whether the value is wanted at all."""
        return self.active or self.watched

    def forward(self, x: Tensor) -> Tensor:
        """``x``, or what the listeners made of it."""
        for listener in self.listeners:
            replaced = listener(x)
            x = x if replaced is None else replaced
        if self.watchers:
            self.show(lambda heads: (x if heads is None else x[:, list(heads)]).detach())
        return x

    def show(self, compute: Callable[[Heads], Tensor]) -> None:
        """Tell the watchers a value that does not pass here, computed for the heads that each asks for."""
        for heads, see in self.watchers:
            see(compute(heads))


def taps(model: nn.Module) -> dict[str, Tap]:
    """All taps of a model by their dotted names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


def _known(model: nn.Module, names: Iterable[str]) -> dict[str, Tap]:
    """The taps of these names.

    Raises:
        KeyError: there is no such tap; the message lists those there are.
    """
    known = taps(model)
    if missing := sorted({*names} - {*known}):
        raise KeyError(f"no tap named {missing[0]!r}; there are {sorted(known)}")
    return {name: known[name] for name in names}


@contextmanager
def listening(model: nn.Module, listeners: Mapping[str, Listener]) -> Iterator[None]:
    """Attach listeners by tap name for as long as the context lasts."""
    found = _known(model, listeners)
    for name, listener in listeners.items():
        found[name].listeners.append(listener)
    try:
        yield
    finally:
        for name, listener in listeners.items():
            found[name].listeners.remove(listener)


@contextmanager
def recording(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect what passes the named taps: one tensor for each time the model ran."""
    record: dict[str, list[Tensor]] = {name: [] for name in names}
    with listening(model, {name: values.append for name, values in record.items()}):
        yield record


@contextmanager
def watching(model: nn.Module, wanted: Mapping[str, Heads]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect values beside the fast paths: one tensor, detached, for each time the model ran.

    Args:
        model: runs as it always does.
        wanted: by the names of taps, which heads (of taps whose axis 1 is heads); None: the whole value.
    """
    record: dict[str, list[Tensor]] = {name: [] for name in wanted}
    found = _known(model, wanted)
    watchers = {name: (heads, record[name].append) for name, heads in wanted.items()}
    for name, watcher in watchers.items():
        found[name].watchers.append(watcher)
    try:
        yield record
    finally:
        for name, watcher in watchers.items():
            found[name].watchers.remove(watcher)
