"""heedful trains, runs and looks inside Transformers on the machine you have."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.ledger.describing import describe as describe
    from heedful.runs.building import build as build
    from heedful.runs.run import load as load

__version__ = "0.1.0"

__all__ = ["__version__", "build", "describe", "load"]

# Imported when first asked for, so that `import heedful` does not wait for torch.
_HOMES = {
    "build": "heedful.runs.building",
    "describe": "heedful.ledger.describing",
    "load": "heedful.runs.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
