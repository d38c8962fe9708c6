"""Custom classes, named by import path, and the packages that may be imported for them.

A recipe or a run that someone sends must not run code of its choosing. ``package.module:Name`` is therefore
imported only if the package was named by the person who starts the work (``--plugin package``, the
environment variable ``HEEDFUL_PLUGINS``, ``heedful.load(…, plugins=["package"])``), or if an installed
distribution declares it as an entry point of the group ``heedful.plugins``.
"""

import importlib
import inspect
import os
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from types import FunctionType
from typing import Any, TypeAlias, TypeVar

from heedful.checks import texts
from heedful.errors import RequestError, nearest, type_name

GROUP = "heedful.plugins"
METRICS = "heedful.tasks.metrics"
"""Package of heedful whose classes recipes can name: creating an instance affects nothing else."""

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

UNDEFINED = "_forward_unimplemented"
"""Name of `torch.nn.Module.forward`."""

Part: TypeAlias = type | FunctionType
PartT = TypeVar("PartT", bound=Part)

_parts: dict[str, Part] = {}
"""Classes and functions that a program allows, by import path."""

VARIABLE = "HEEDFUL_PLUGINS"
"""Environment variable with the names of allowed packages, separated by commas; processes that this one
starts inherit it."""


def allow_plugins(packages: Iterable[str]) -> None:
    """Allow imports from these packages, in this process and those that it starts from now on.

    Raises:
        RequestError: if they are one text, or a name is not that of a package.
    """
    for package in texts("plugins", packages):
        if not all(part.isidentifier() for part in package.split(".")):
            raise RequestError(f"plugin {package}: expected the name of a Python package or module")
        os.environ[VARIABLE] = ",".join(sorted({*allowed_plugins(), package}))


def allowed_plugins() -> set[str]:
    """Return the packages that were allowed by name."""
    return {name for name in os.environ.get(VARIABLE, "").split(",") if name}


def allow_part(part: Part) -> str:
    """Allow recipes of this process to name a class or function; return its import path.

    Other processes find it by this path if its module can be imported there. If it is defined in a notebook
    or script, whose module is ``__main__``, define and allow it again before loading a run that has it.

    Raises:
        RequestError: if it is defined in a function or class, so that there is no path to it.
    """
    reference = f"{part.__module__}:{part.__qualname__}"
    if not is_reference(reference):
        raise RequestError(
            f"{reference}: expected a class or function that is defined at the top of a module"
        )
    _parts[reference] = part
    return reference


def part(definition: PartT) -> PartT:
    """Decorate a class or function of yours so that recipes of this process can name it.

    Overrides may have the class itself without the decorator. With it, runs that have the class can also be
    loaded, in another notebook for example.

    Examples:
        >>> from heedful.nn.attention.scores import ScoreFunction
        >>> @heedful.part
        ... class NegativeDistance(ScoreFunction):
        ...     def forward(self, queries, keys):
        ...         squares = queries.square().sum(-1)[..., None] + keys.square().sum(-1)[..., None, :]
        ...         return 2 * queries @ keys.mT - squares
        >>> changes = {"model.layer.mixer.score": NegativeDistance}
        >>> run = heedful.train("phrasebook-ta", "runs/distance", overrides=changes)

    Raises:
        RequestError: if it is not at the top of a module.
    """
    allow_part(definition)
    return definition


def is_reference(text: object) -> bool:
    """Return whether a value is an import path such as ``my_package.scores:Cosine``."""
    return isinstance(text, str) and REFERENCE.fullmatch(text) is not None


def load_reference(reference: str) -> Any:
    """Import what ``package.module:Name`` refers to.

    Raises:
        ValueError: if its package is not allowed, cannot be imported, or has no such name.
    """
    if reference in _parts:
        return _parts[reference]
    module, _, name = reference.partition(":")
    if module == "__main__":
        raise ValueError(
            f"{reference} was defined in a notebook or script; define it here too, with the decorator "
            "@heedful.part, or move it to a module that can be imported"
        )
    if not _is_allowed(module):
        package = module.partition(".")[0]
        raise ValueError(
            f"{reference} would import the package {package!r}, which was not named as a plugin; if you "
            f"trust it, add --plugin {package}, or plugins=[{package!r}] in Python"
        )
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{reference}: cannot import {module}: {error}") from None
    if not hasattr(imported, name):
        public = [public_name for public_name in vars(imported) if not public_name.startswith("_")]
        raise ValueError(f"{reference}: the module {module} has no {name!r}{nearest(name, public)}")
    return getattr(imported, name)


@cache
def _installed_plugins() -> frozenset[str]:
    """Return the packages that installed distributions declare; finding them reads all metadata."""
    return frozenset(entry.value.partition(":")[0] for entry in entry_points(group=GROUP))


def _is_allowed(module: str) -> bool:
    allowed = allowed_plugins() | _installed_plugins() | {METRICS}
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def check_class(reference: str, methods: Iterable[str]) -> None:
    """Check that a class defines these methods, and all abstract ones; a function may return such a part.

    Raises:
        ValueError: the class does not, or the import path refers to something else.
    """
    target = load_reference(reference)
    if isinstance(target, FunctionType):
        return
    if not isinstance(target, type):
        raise ValueError(f"{reference}: expected a class, got {type_name(target)}")
    missing = {*getattr(target, "__abstractmethods__", ())}
    for name in methods:
        method = next((vars(base)[name] for base in target.__mro__ if name in vars(base)), None)
        if method is None or getattr(method, "__name__", "") == UNDEFINED:
            missing.add(name)
    if missing:
        raise ValueError(f"{reference}: the class must define {' and '.join(sorted(missing))}")


def settings_of(reference: str, sizes: Iterable[str]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class or function that a recipe can set: those that are not ``sizes``.

    Raises:
        ValueError: as `load_reference`, or if it requires parameters that cannot be passed by name.
    """
    parameters = inspect.signature(load_reference(reference)).parameters
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ValueError(f"{reference}: its parameter {parameter.name!r} cannot be passed by name")
    size_names = {*sizes}
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in by_name and name not in size_names
    }


def build_reference(reference: str, settings: Mapping[str, object], sizes: Mapping[str, object]) -> object:
    """Call a class or function with the settings of a recipe, and with the sizes that its parameters name.

    Raises:
        ValueError: it is a module whose constructor does not call that of its base class.
    """
    target = load_reference(reference)
    needed_sizes = {
        name: value for name, value in sizes.items() if name in inspect.signature(target).parameters
    }
    not_called = f"{reference}: __init__ must begin with super().__init__()"
    try:
        built = target(**needed_sizes, **settings)
    except AttributeError as error:
        if ".__init__() call" not in str(error):  # torch: cannot assign module before Module.__init__() call
            raise
        raise ValueError(not_called) from None
    if hasattr(built, "register_module") and "_modules" not in vars(built):  # without importing torch
        raise ValueError(not_called)
    return built


def check_settings(reference: str, settings: Iterable[str], sizes: Collection[str]) -> None:
    """Check that the keys of a recipe are parameters of a class or function, and that none is missing.

    Raises:
        ValueError: names the first key that does not fit.
    """
    parameters, given_settings = settings_of(reference, sizes), dict.fromkeys(settings)
    for key in given_settings:
        if key not in parameters:
            available = (
                f"; its settings are {', '.join(parameters)}" if parameters else "; it has no settings"
            )
            raise ValueError(f"{reference} has no setting {key!r}{nearest(key, parameters) or available}")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given_settings:
            passed = f"; the sizes that are passed by name are {', '.join(sizes)}" if sizes else ""
            if isinstance(load_reference(reference), FunctionType):
                passed += "; a function must return the part: if it is to be called as the part, give a class"
            raise ValueError(f"{reference} requires the setting {name!r}{passed}")
