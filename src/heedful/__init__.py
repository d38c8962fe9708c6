"""heedful: train, run and explain Transformers on your own machine."""

import os
from importlib import import_module

# Nothing else is imported here, not even typing: `__main__` first removes the current folder from `sys.path`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from heedful.api.comparison import compare as compare
    from heedful.api.conversion import export as export
    from heedful.api.conversion import import_model as import_model
    from heedful.api.packing import clean as clean
    from heedful.api.packing import pack as pack
    from heedful.api.run import Run as Run
    from heedful.api.run import ensemble as ensemble
    from heedful.api.run import load as load
    from heedful.api.setup import Setup as Setup
    from heedful.api.setup import prepare as prepare
    from heedful.api.training import recipe as recipe
    from heedful.api.training import resume as resume
    from heedful.api.training import train as train
    from heedful.errors import DamagedError as DamagedError
    from heedful.errors import DataError as DataError
    from heedful.errors import HeedfulError as HeedfulError
    from heedful.errors import RequestError as RequestError
    from heedful.errors import WorkError as WorkError
    from heedful.explain.explanation import Explanation as Explanation
    from heedful.model_summary.summary import describe as describe
    from heedful.parts import part as part
    from heedful.runs.building import build as build
    from heedful.tasks.evaluation import Evaluation as Evaluation
    from heedful.tasks.prediction import Prediction as Prediction
    from heedful.training import callbacks as events

# Hide messages for developers of PyTorch, which reads this when it is imported.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

__version__ = "0.1.0"

__all__ = [
    "DamagedError",
    "DataError",
    "Evaluation",
    "Explanation",
    "HeedfulError",
    "Prediction",
    "RequestError",
    "Run",
    "Setup",
    "WorkError",
    "__version__",
    "build",
    "clean",
    "compare",
    "describe",
    "ensemble",
    "events",
    "export",
    "import_model",
    "load",
    "pack",
    "part",
    "prepare",
    "recipe",
    "resume",
    "train",
]

_ERRORS = ("DamagedError", "DataError", "HeedfulError", "RequestError", "WorkError")

# Imported at first access, so that `import heedful` does not import torch.
_MODULES = {
    **dict.fromkeys(("export", "import_model"), "heedful.api.conversion"),
    "compare": "heedful.api.comparison",
    **dict.fromkeys(("clean", "pack"), "heedful.api.packing"),
    **dict.fromkeys(("Run", "ensemble", "load"), "heedful.api.run"),
    **dict.fromkeys(("recipe", "resume", "train"), "heedful.api.training"),
    **dict.fromkeys(_ERRORS, "heedful.errors"),
    **dict.fromkeys(("Setup", "prepare"), "heedful.api.setup"),
    "Evaluation": "heedful.tasks.evaluation",
    "Explanation": "heedful.explain.explanation",
    "Prediction": "heedful.tasks.prediction",
    "build": "heedful.runs.building",
    "describe": "heedful.model_summary.summary",
    "part": "heedful.parts",
}


def __getattr__(name: str) -> object:
    if name == "events":
        return import_module("heedful.training.callbacks")
    if name not in _MODULES:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
