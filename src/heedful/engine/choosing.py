"""How a model is decoded here: on the native engine or as it is, and in which precision.

| asked for | a model that the engine knows, on a CPU | otherwise |
|---|---|---|
| auto, fp32 | native, fp32 | plain, fp32 |
| bf16 | native, bf16 weights | plain, under autocast |
| int8 | native, int8 weights | refused |

The engine's fp32 gives what the plain path gives, to rounding. bf16 and int8 do not, so they are never
taken unasked.
"""

import os
from collections.abc import Callable
from operator import is_
from threading import Lock, local
from typing import Any, Literal, get_args

import torch
from torch import nn

from heedful.engine.compiled import CompiledModel
from heedful.engine.engine import Engine, compiled
from heedful.engine.program import UnfitError, looked_into
from heedful.errors import RequestError, nearest

Precision = Literal["auto", "fp32", "bf16", "int8"]


def checked(precision: str) -> Precision:
    """The precision of that name.

    Raises:
        RequestError: there is none.
    """
    for known in get_args(Precision):
        if precision == known:
            return known
    names = get_args(Precision)
    raise RequestError(
        f"unknown precision {precision!r}{nearest(precision, names)}; take one of {', '.join(names)}"
    )


class Inference:
    """A model made ready for decoding; made so anew when parts or weights are others, or changed in place.

    (Changes that go past autograd's count of versions, as those of ``parameter.data`` do, are not seen,
    nor are those of running statistics alone.)

    Args:
        model: keeps the model contract.
        precision: of the weights, while decoding.

    Raises:
        RequestError: the precision cannot be had for this model here.
    """

    def __init__(self, model: nn.Module, precision: str = "auto") -> None:
        self.model, self.precision = model, checked(precision)
        self._own = local()
        self._process = os.getpid()
        self._compiling = Lock()
        self._engine: Engine | None = None
        self._reason, self._versions = "", list[int]()
        self._parts: list[Any] = []
        self._compile()

    def _compile(self) -> Engine | None:
        """The engine of the model as it is now; None: there is none. One thread compiles at a time."""
        if self._process != os.getpid():
            # A thread that compiled, and the threads of whoever ran, are not there after a fork.
            self._compiling, self._own, self._process = Lock(), local(), os.getpid()
        with self._compiling:
            self._compile_alone()
            return self._engine

    def _compile_alone(self) -> None:
        parameters = list(self.model.parameters())
        versions = [parameter._version for parameter in parameters]
        # The objects are kept: a new one may have the version, and the id, of one that is gone.
        parts = [*self.model.modules(), *parameters]
        same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        if same and versions == self._versions:
            return
        self._engine, self._versions, self._parts = None, versions, parts
        try:
            self._engine = compiled(self.model, "fp32" if self.precision == "auto" else self.precision)
        except UnfitError as reason:
            self._reason = str(reason)
            if looked_into(self.model):
                self._parts = []  # when nobody does any more, there may be an engine
            if self.precision == "int8":
                raise RequestError(
                    f"precision int8 needs the native engine, which cannot be used here ({reason}); "
                    "take fp32 or bf16"
                ) from None

    @property
    def chosen(self) -> str:
        """What was chosen, for people: precision and path, and why no other."""
        if self._engine is not None:
            return f"{self._engine.precision} on the native engine"
        plain = "bf16" if self.precision == "bf16" else "fp32"
        return f"{plain} on the plain path ({self._reason})"

    def ready(self, *, attention: bool = False) -> Any:
        """The model to decode with: on the engine, memory of its own for each thread; else, the one model.

        Where somebody is attached to a tap now, or a module has a hook, it is the model itself: the engine
        has neither.

        Args:
            attention: whether weights over the source will be asked for, which the engine does not show.

        Raises:
            RequestError: weights are wanted in int8, which has no plain path.
        """
        engine = None if looked_into(self.model) else self._compile()
        if engine is not None and not attention:
            if getattr(self._own, "engine", None) is not engine:
                self._own.engine, self._own.model = engine, CompiledModel(engine)
            return self._own.model
        if self.precision == "int8":
            raise RequestError(
                "a coverage penalty, a hook, or whoever looks at a model's taps, needs what int8 does not "
                "show; take fp32 or bf16"
            )
        return Autocast(self.model) if self.precision == "bf16" else self.model


class Autocast(nn.Module):
    """A model, or a part of one, whose products are computed in bf16; otherwise what it stands for.

    Args:
        part: the module.
        device: the kind of device that it runs on.
    """

    def __init__(self, part: nn.Module, device: str | None = None) -> None:
        super().__init__()
        self.model = part
        self.device = device or next(part.parameters()).device.type
        if (heads := getattr(part, "heads", None)) is not None:
            self.heads = nn.ModuleDict({name: Autocast(head, self.device) for name, head in heads.items()})

    def forward(self, *arguments: Any) -> Any:
        """Call the part."""
        return self._under(self.model)(*arguments)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            found = getattr(super().__getattr__("model"), name)
        if isinstance(found, nn.Module):
            return Autocast(found, self.device)
        return self._under(found) if name in _COMPUTES else found

    def _under(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with torch.autocast(self.device, torch.bfloat16):
                return function(*arguments)

        return call


# Methods of models that write.
_COMPUTES = ("start", "extend")
