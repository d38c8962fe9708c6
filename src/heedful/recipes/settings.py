"""Settings that a program gives as a mapping, in place of a recipe's file or of texts ``key=value``."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np

from heedful.artifacts.run_folder import RunFolder
from heedful.errors import RequestError, type_name
from heedful.parts import allow_part
from heedful.recipes.trees import dotted

Settings: TypeAlias = Mapping[str, Any]
"""Settings of a recipe: plain values, paths, runs, and classes in place of their import paths."""


def plain(settings: Settings, name: str) -> Any:
    """Return settings with plain values only: an allowed import path for a class, the folder of a run.

    Raises:
        RequestError: a value cannot be written in a recipe.
    """

    def convert(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            return {str(key): convert(item, (*path, str(key))) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [convert(item, (*path, str(number))) for number, item in enumerate(value)]
        if isinstance(value, Path):
            return str(value)
        if isinstance(folder := getattr(value, "folder", None), RunFolder):  # a loaded run
            return str(folder.path.resolve())
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, type | FunctionType):
            return allow_part(value)
        try:
            json.dumps(value)
        except TypeError:
            if isinstance(value, set | frozenset | np.ndarray):
                raise RequestError(f"{name}: {dotted(path)}: got {type_name(value)}; use a list") from None
            raise RequestError(
                f"{name}: {dotted(path)}: a recipe cannot have a value of type {type(value).__name__}; for a "
                "part of your own, give the class, and for rows data={…}"
            ) from None
        return value

    return convert(settings, ())
