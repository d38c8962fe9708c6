"""heedful: train, run and explain Transformers on your own machine."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.model_summary.summary import describe as describe
    from heedful.runs.building import build as build
    from heedful.runs.run import load as load

__version__ = "0.1.0"

__all__ = ["__version__", "build", "describe", "load"]

# Imported at first access, so that `import heedful` does not import torch.
_MODULES = {
    "build": "heedful.runs.building",
    "describe": "heedful.model_summary.summary",
    "load": "heedful.runs.run",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
