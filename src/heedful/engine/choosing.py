"""Choose how a model is decoded: on the native engine or the plain path, and in which precision.

| requested | model supported by the engine, on a CPU | otherwise |
|---|---|---|
| auto, fp32 | native, fp32 | plain, fp32 |
| bf16 | native, bf16 weights | plain, under autocast |
| int8 | native, int8 weights | `RequestError` |

In fp32 the engine computes the same as the plain path, up to rounding. In bf16 and int8 it does not, so these
are used only on request.
"""

import os
from collections.abc import Callable, Sequence
from operator import is_
from threading import Lock, local
from typing import Any, Literal, ParamSpec, TypeVar, cast, get_args

import torch
from torch import Tensor, nn

from heedful.engine.compiled import CompiledModel
from heedful.engine.program import UnsupportedError, observer
from heedful.engine.running import Engine, compile_model
from heedful.errors import RequestError, nearest
from heedful.models.base import Model
from heedful.models.ensemble import EnsembleModel, MeanOfMembers

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Precision = Literal["auto", "fp32", "bf16", "int8"]


_N_SAMPLED = 16
"""Number of elements of each parameter that are compared before a prediction."""


def check_precision(precision: str) -> Precision:
    """Return the precision of this name; raise `RequestError` if it is unknown."""
    names = get_args(Precision)
    if precision not in names:
        raise RequestError(
            f"unknown precision {precision!r}{nearest(precision, names)}; expected one of {', '.join(names)}"
        )
    return cast(Precision, precision)


class Inference:
    """A model prepared for decoding; prepared again if modules or weights are replaced or changed in place.

    Changes that autograd's version counter does not record, such as through ``parameter.data``, are detected
    by a sample of each parameter, so those of few elements may be missed. Changes of running statistics only
    are not detected.

    Args:
        model: a model that follows the model contract.
        precision: precision of the weights during decoding.

    Raises:
        RequestError: the precision is not available for this model on this machine.
    """

    def __init__(self, model: Model, precision: str = "auto") -> None:
        self.model, self.precision = model, check_precision(precision)
        self._thread_local = local()
        self._process = os.getpid()
        self._compiling = Lock()
        self._engine: Engine | None = None
        self._reason, self._versions = "", list[tuple[int, int]]()
        self._samples, self._sampled = list[Tensor](), b""
        self._parts: list[object] = []
        self._compile()

    def _compile(self) -> Engine | None:
        """Return the engine of the current model, or None. Only one thread compiles at a time."""
        if self._process != os.getpid():
            # After a fork, the threads that held the lock or ran the engine do not exist.
            self._compiling, self._thread_local, self._process = Lock(), local(), os.getpid()
        with self._compiling:
            self._compile_locked()
            return self._engine

    def _compile_locked(self) -> None:
        modules = list(self.model.modules())
        # Faster than `parameters`, which passes over the modules again.
        parameters = [p for module in modules for p in module._parameters.values() if p is not None]
        # Inference tensors have no version.
        versions = [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]
        # Keep the objects and compare by identity: a new one may have the version and id of a deleted one.
        parts = [*modules, *parameters]
        is_same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        if is_same and versions == self._versions and _values(self._samples) == self._sampled:
            return
        self._engine, self._versions, self._parts, self._samples = None, versions, parts, []
        try:
            self._engine = compile_model(self.model, "fp32" if self.precision == "auto" else self.precision)
        except UnsupportedError as reason:
            self._reason = str(reason)
            if observer(self.model):
                self._parts = []  # try again when taps and hooks are gone
            if self.precision == "int8":
                raise RequestError(
                    f"precision int8 needs the native engine, which cannot be used here ({reason}); "
                    "use fp32 or bf16"
                ) from None
        else:
            self._samples = [_sample(parameter) for parameter in parameters]
        self._sampled = _values(self._samples)

    @property
    def description(self) -> str:
        """Describe the choice: precision and path, and why the engine is not used."""
        if self._engine is not None:
            return f"{self._engine.precision} on the native engine"
        plain = "bf16" if self.precision == "bf16" else "fp32"
        if next(self.model.parameters()).is_cuda:
            return f"{plain} on the GPU"
        return f"{plain} on the plain path ({self._reason})"

    def ready(self, *, attention: bool = False) -> Any:
        """Return the model to decode with: a `CompiledModel` per thread on the engine, else the model itself.

        The engine supports neither taps nor hooks: if a tap is attached or a module has a hook, the plain
        path is used.

        Args:
            attention: whether attention weights over the source are needed, which the engine does not return.

        Raises:
            RequestError: the precision is int8 and the engine cannot be used.
        """
        engine = None if observer(self.model) else self._compile()
        if engine is not None and not attention:
            if getattr(self._thread_local, "engine", None) is not engine:
                self._thread_local.engine, self._thread_local.model = engine, CompiledModel(engine)
            return self._thread_local.model
        if self.precision == "int8":
            raise RequestError(
                "precision int8 does not support coverage penalties, hooks and taps; use fp32 or bf16"
            )
        return Autocast(self.model) if self.precision == "bf16" else self.model


class EnsembleInference(Inference):
    """An ensemble prepared for decoding: each member by itself.

    Args:
        model: the ensemble.
        precision: as of `Inference`.
    """

    def __init__(self, model: EnsembleModel, precision: str = "auto") -> None:
        self.model, self.precision = model, check_precision(precision)
        self._members = [Inference(cast(Model, member), precision) for member in model.members]

    @property
    def description(self) -> str:
        """Describe the choice for each kind of member."""
        descriptions = dict.fromkeys(member.description for member in self._members)
        return f"an ensemble of {len(self._members)} models in {' and '.join(descriptions)}"

    def ready(self, *, attention: bool = False) -> MeanOfMembers:
        """Return the members to decode with, together."""
        return MeanOfMembers(member.ready(attention=attention) for member in self._members)


def inference_of(model: Model, precision: str = "auto") -> Inference:
    """Return a model, or an ensemble, prepared for decoding."""
    kind = EnsembleInference if isinstance(model, EnsembleModel) else Inference
    return kind(cast(Any, model), precision)


def _sample(parameter: Tensor) -> Tensor:
    """Return a view of a few elements of a parameter, from different rows and columns."""
    flat = parameter.detach().flatten()
    return flat[:: max(1, len(flat) // _N_SAMPLED) | 1]


def _values(samples: Sequence[Tensor]) -> bytes:
    """Return the bytes of samples, which can be compared also if they are NaN."""
    return torch.cat(list(samples)).view(torch.uint8).numpy().tobytes() if samples else b""


class Autocast(nn.Module):
    """Wrap a model or a part of it so that its matrix products are computed in bf16.

    Args:
        part: the module.
        device: the device type that it runs on.
    """

    def __init__(self, part: nn.Module, device: str | None = None) -> None:
        super().__init__()
        self.model = part
        self.device = device or next(part.parameters()).device.type
        if (heads := getattr(part, "heads", None)) is not None:
            self.heads = nn.ModuleDict({name: Autocast(head, self.device) for name, head in heads.items()})

    def forward(self, *arguments: object) -> object:
        """Call the wrapped module under autocast."""
        return self._under_autocast(self.model)(*arguments)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            attribute = getattr(super().__getattr__("model"), name)
        if isinstance(attribute, nn.Module):
            return Autocast(attribute, self.device)
        return self._under_autocast(attribute) if name in _COMPUTES else attribute

    def _under_autocast(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with torch.autocast(self.device, torch.bfloat16):
                return function(*args, **kwargs)

        return call


# Methods of models that compute.
_COMPUTES = ("start", "extend")
