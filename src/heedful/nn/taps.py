"""Named points in a model at which values can be read or replaced during the forward pass.

A `Tap` is an identity module. Two kinds of callables can be attached to it:

| | receives | may replace values | attention scores and weights |
|---|---|---|---|
| hook | the value itself | yes | the layer uses the explicit kernel, for all heads |
| observer | a copy of the value | no | computed next to the fast kernel, for the requested heads |

Fast kernels do not return attention weights. For an observer they are recomputed from the kernel's queries
and keys, without gradients, at least in fp32; memory is used only for the requested values. Observers do not
change the output of a model, bit for bit. In a stack compiled for training, blocks with hooks or observers
run uncompiled.

Hooks and observers apply only to the thread that attached them; other threads that run the same model are
not affected.

`docs/reference/taps.md` lists the taps of every model family, with their shapes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar

from torch import Tensor, nn

T = TypeVar("T")
Hook = Callable[[Tensor], Tensor | None]
Heads = Sequence[int] | None
"""Indices of heads, from 0; None: all heads."""
Observer = tuple[Heads, Callable[[Tensor], None]]
ByThread = dict[int, list[T]]


class Tap(nn.Module):
    """Identity module at which values can be observed or replaced.

    A value returned by a hook replaces the input; observers receive the result.

    Args:
        description: short description of the value.
        read_only: the value has already been used and cannot be replaced.
    """

    def __init__(self, description: str = "", *, read_only: bool = False) -> None:
        super().__init__()
        self.description, self.read_only = description, read_only
        self._hooks: ByThread[Hook] = {}
        self._observers: ByThread[Observer] = {}

    @property
    def has_hooks(self) -> bool:
        """Whether a hook is attached in this thread."""
        return bool(_in_this_thread(self._hooks))

    @property
    def has_observers(self) -> bool:
        """Whether an observer is attached in this thread."""
        return bool(_in_this_thread(self._observers))

    @property
    def attached(self) -> bool:
        """Whether a hook or an observer is attached in this thread."""
        return self.has_hooks or self.has_observers

    @property
    def busy(self) -> bool:
        """Whether a hook or an observer is attached in any thread."""
        return bool(self._hooks or self._observers)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``, or its replacement by the hooks.

        Raises:
            ValueError: a hook returned a value, but the tap is read-only.
        """
        for hook in _in_this_thread(self._hooks):
            replaced = hook(x)
            if replaced is None:
                continue
            if self.read_only:
                raise ValueError(
                    f"{self.description or 'this value'} is read-only: "
                    "it was already used and cannot be replaced; use capture to read it"
                )
            x = replaced
        if self.has_observers:
            self.notify(x)
        return x

    def notify(self, x: Tensor) -> None:
        """Pass a copy of ``x``, or of the requested heads, to each observer.

        The value is copied because ``x`` may be a view of a larger tensor or be modified later (a cache).

        Raises:
            ValueError: heads are requested, but x is not ``[B, H, ..., ...]``.
        """

        def copy_of(heads: Heads) -> Tensor:
            if heads is None:
                return x.detach().clone()
            if x.dim() != 4:
                raise ValueError(
                    f"{self.description or 'this value'} has shape {list(x.shape)}, without an axis for heads"
                )
            return x.detach()[:, list(heads)]

        self.show(copy_of)

    def show(self, compute: Callable[[Heads], Tensor]) -> None:
        """Pass a value computed for the requested heads to each observer, without a forward pass."""
        for heads, observe in _in_this_thread(self._observers):
            observe(compute(heads))


def _in_this_thread(attached: Any) -> Sequence[Any]:
    """Return what is attached in this thread."""
    # Not annotated as `ByThread`: runtime type checks would read items while other threads change them.
    # Check for emptiness first: the compiled graph of an unused tap must not call `get_ident`.
    return attached.get(get_ident(), ()) if attached else ()


def taps(model: nn.Module) -> dict[str, Tap]:
    """Return all taps of a model by dotted name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


def attached(model: nn.Module) -> bool:
    """Return whether any tap of the model has a hook or an observer in this thread."""
    return any(tap.attached for tap in taps(model).values())


@contextmanager
def intervene(model: nn.Module, hooks: Mapping[str, Hook]) -> Iterator[None]:
    """Attach hooks by tap name within the context.

    Raises:
        KeyError: there is no such tap; the message lists the existing ones.
    """
    named_taps = _taps_named(model, hooks)
    with _attaching([(named_taps[name]._hooks, hook) for name, hook in hooks.items()]):
        yield


@contextmanager
def recording(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the values of the named taps, one tensor per forward pass through the tap.

    The tensors are not copied and keep their autograd graph.
    """
    record: dict[str, list[Tensor]] = {name: [] for name in names}
    with intervene(model, {name: values.append for name, values in record.items()}):
        yield record


@contextmanager
def capture(model: nn.Module, heads_of: Mapping[str, Heads]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect detached copies of values without changing kernels, one per forward pass through the tap.

    Args:
        model: its outputs do not change.
        heads_of: heads by tap name (for values ``[B, H, ..., ...]``; keys and values may have fewer heads
            than queries); None: the whole value.

    Raises:
        KeyError: there is no such tap; the message lists the existing ones.
    """
    record: dict[str, list[Tensor]] = {name: [] for name in heads_of}
    named_taps = _taps_named(model, heads_of)
    observers = {
        name: (None if heads is None else tuple(heads), record[name].append)
        for name, heads in heads_of.items()
    }
    with _attaching([(named_taps[name]._observers, observer) for name, observer in observers.items()]):
        yield record


def _taps_named(model: nn.Module, names: Iterable[str]) -> dict[str, Tap]:
    """Return the taps of these names; raise KeyError if one does not exist."""
    all_taps = taps(model)
    if missing := sorted({*names} - {*all_taps}):
        raise KeyError(f"no tap named {missing[0]!r}; available: {', '.join(sorted(all_taps))}")
    return {name: all_taps[name] for name in names}


# Registries are not annotated as `ByThread`, as in `_in_this_thread`.
@contextmanager
def _attaching(pairs: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Attach each callable to its registry in this thread; detach on exit, also after an exception."""
    thread = get_ident()
    for registry, attachment in pairs:
        registry.setdefault(thread, []).append(attachment)
    try:
        yield
    finally:
        for registry, attachment in pairs:
            registry[thread].remove(attachment)
            if not registry[thread]:
                del registry[thread]
