"""Named points in a model at which values can be read or replaced while it runs.

A `Tap` is a module that hands its input on. There are two ways to attach to one:

| | sees | may replace | attention scores and weights |
|---|---|---|---|
| a listener | what passes | yes | that layer takes the explicit path, all heads |
| a watcher | copies of what passes, or would | no | computed beside the fast path, of the heads asked for |

Fast kernels show no attention weights. For a watcher they are computed from the very queries and keys that
the kernel was given, outside the graph of gradients, in fp32 where those have fewer bits; memory is spent on
what is asked for alone. What a model computes is bit for bit what it computes unwatched; but a stack that was
compiled for training runs those blocks uncompiled to which somebody is attached.

An attachment holds for the thread that made it: what others compute with the same model passes it by.

`docs/taps.md` lists the taps of every family of models, with their shapes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar

from torch import Tensor, nn

T = TypeVar("T")
Hook = Callable[[Tensor], Tensor | None]
Heads = Sequence[int] | None
"""Which heads, counted from 0; None: all."""
Observer = tuple[Heads, Callable[[Tensor], None]]
ByThread = dict[int, list[T]]


class Tap(nn.Module):
    """Hands its input on; listeners see it, and what a listener returns replaces it; watchers see it.

    Args:
        says: what passes here, in a few words.
        read_only: whether it is shown after it was used, so that nothing can take its place.
    """

    def __init__(self, says: str = "", *, read_only: bool = False) -> None:
        super().__init__()
        self.says, self.read_only = says, read_only
        self._hooks: ByThread[Hook] = {}
        self._observers: ByThread[Observer] = {}

    @property
    def active(self) -> bool:
        """Whether the value itself must pass: somebody listens, in this thread."""
        return bool(_here(self._hooks))

    @property
    def observed(self) -> bool:
        """Whether somebody wants to know the value, in this thread, without a part in it."""
        return bool(_here(self._observers))

    @property
    def attached(self) -> bool:
        """Whether the value is wanted at all, in this thread."""
        return self.active or self.observed

    @property
    def busy(self) -> bool:
        """Whether somebody is attached, in whichever thread."""
        return bool(self._hooks or self._observers)

    def forward(self, x: Tensor) -> Tensor:
        """``x``, or what the listeners made of it.

        Raises:
            ValueError: a listener returned something, and the value is read-only.
        """
        for hook in _here(self._hooks):
            replaced = hook(x)
            if replaced is None:
                continue
            if self.read_only:
                raise ValueError(
                    f"{self.says or 'this value'}: shown after it was used, so it cannot be replaced"
                )
            x = replaced
        if self.observed:
            self.notify(x)
        return x

    def notify(self, x: Tensor) -> None:
        """Give each watcher a copy of the heads of ``x`` that it asks for.

        A copy, because ``x`` may be a view of something larger, or be written to later (a cache).

        Raises:
            ValueError: heads are asked for, and x is not ``[B, H, ..., ...]``.
        """

        def copied(heads: Heads) -> Tensor:
            if heads is None:
                return x.detach().clone()
            if x.dim() != 4:
                raise ValueError(
                    f"{self.says or 'this value'}: of shape {list(x.shape)}, without heads to choose"
                )
            return x.detach()[:, list(heads)]

        self.show(copied)

    def show(self, compute: Callable[[Heads], Tensor]) -> None:
        """Tell the watchers a value that does not pass here, computed for the heads that each asks for."""
        for heads, see in _here(self._observers):
            see(compute(heads))


def _here(attached: Any) -> Sequence[Any]:
    """What is attached in this thread."""
    # Without the type `ByThread`: a check of its items at run time would meet what other threads change.
    # First whether there is anything at all: a graph of a tap that nobody uses must not ask for its thread.
    return attached.get(get_ident(), ()) if attached else ()


def taps(model: nn.Module) -> dict[str, Tap]:
    """All taps of a model by their dotted names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


def attached(model: nn.Module) -> bool:
    """Whether somebody listens to a tap of the model, or watches one, in this thread."""
    return any(tap.attached for tap in taps(model).values())


@contextmanager
def intervene(model: nn.Module, hooks: Mapping[str, Hook]) -> Iterator[None]:
    """Attach listeners by tap name for as long as the context lasts.

    Raises:
        KeyError: there is no such tap; the message lists those there are.
    """
    found = _known(model, hooks)
    with _holding([(found[name]._hooks, hook) for name, hook in hooks.items()]):
        yield


@contextmanager
def recording(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect what passes the named taps: one tensor for each time that something passed.

    They are the tensors themselves, with their graph.
    """
    record: dict[str, list[Tensor]] = {name: [] for name in names}
    with intervene(model, {name: values.append for name, values in record.items()}):
        yield record


@contextmanager
def capture(model: nn.Module, wanted: Mapping[str, Heads]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect values beside the fast paths: one tensor, detached, for each time that something passed.

    Args:
        model: runs as it always does.
        wanted: by the names of taps, which heads (of taps whose values are ``[B, H, ..., ...]``; keys and
            values may have fewer heads than queries); None: the whole value.

    Raises:
        KeyError: there is no such tap; the message lists those there are.
    """
    record: dict[str, list[Tensor]] = {name: [] for name in wanted}
    found = _known(model, wanted)
    observers = {
        name: (None if heads is None else tuple(heads), record[name].append) for name, heads in wanted.items()
    }
    with _holding([(found[name]._observers, observer) for name, observer in observers.items()]):
        yield record


def _known(model: nn.Module, names: Iterable[str]) -> dict[str, Tap]:
    """The taps of these names, or a KeyError."""
    known = taps(model)
    if missing := sorted({*names} - {*known}):
        raise KeyError(f"no tap named {missing[0]!r}; there are {sorted(known)}")
    return {name: known[name] for name in names}


@contextmanager
def _holding(places: Sequence[tuple[ByThread[Any], Any]]) -> Iterator[None]:
    """Each thing is attached, in this thread, for as long as the context lasts, however that ends."""
    thread = get_ident()
    for place, thing in places:
        place.setdefault(thread, []).append(thing)
    try:
        yield
    finally:
        for place, thing in places:
            place[thread].remove(thing)
            if not place[thread]:
                del place[thread]
