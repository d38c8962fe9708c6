"""Users' parts: classes and functions that recipes name by import path, ``package.module:Name``.

A recipe or a run that someone sends must not choose what is called. What it names is imported only if
`heedful.plugins` allows it, and must be a class that a plugin defines itself, or a class or function marked
by the decorator `part`; names that a module imports from elsewhere are refused. The section of the recipe
checks that a class fits its contract before it is called. Parts of heedful itself are named by their kinds;
the only exceptions are `METRICS`.
"""

import inspect
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from types import FunctionType
from typing import TypeAlias, TypeVar

from heedful.errors import RequestError, nearest, type_name
from heedful.plugins import PluginError, imported, is_allowed

METRICS = frozenset({"heedful.tasks.metrics.error_rates:CharacterErrorRate"})
"""The metrics of heedful that recipes name by import path."""

REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

UNDEFINED = "_forward_unimplemented"
"""Name of `torch.nn.Module.forward`."""

Part: TypeAlias = type | FunctionType
PartT = TypeVar("PartT", bound=Part)

_marked: dict[str, Part] = {}
"""Classes and functions that a program allows, by import path."""


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
    _marked[reference] = part
    return reference


def part(definition: PartT) -> PartT:
    """Decorate a class or function of yours so that recipes of this process can name it.

    Overrides may have the class itself without the decorator. With it, runs that have the class can also be
    loaded, in another notebook for example. Recipes can only name functions that have it, which return a
    part, or rows for a source ``kind: python``.

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


def load_reference(reference: str) -> Part:
    """Return the part that ``package.module:Name`` refers to, which a recipe may call if it fits.

    Raises:
        PluginError: if its module is not allowed, cannot be imported or has no such name, or if it is not a
            part: a class that a plugin defines, or marked.
    """
    if reference in _marked:
        return _marked[reference]
    module, _, name = reference.partition(":")
    if reference in METRICS:
        return vars(import_module(module))[name]
    if module == "__main__":
        raise PluginError(
            f"{reference} was defined in a notebook or script; define it here too, with the decorator "
            "@heedful.part, or move it to a module that can be imported"
        )
    names = vars(imported(module, reference))  # not getattr, which would call the module's __getattr__
    if name not in names:
        public = [public_name for public_name in names if not public_name.startswith("_")]
        raise PluginError(f"{reference}: the module {module} has no {name!r}{nearest(name, public)}")
    found = names[name]
    if _is_marked(found):
        return found
    if not isinstance(found, type):
        is_own = isinstance(found, FunctionType) and found.__module__ == module
        remedy = "; add the decorator above its definition" if is_own else ""
        raise PluginError(
            f"{reference}: expected a class, or a function with the decorator @heedful.part, got "
            f"{type_name(found)}{remedy}"
        )
    if not (is_allowed(found.__module__) and _is_at_home(found)):
        raise PluginError(
            f"{reference}: expected a class that {module} defines, got one of the module {found.__module__}"
        )
    return found


def check_part(reference: str, contract: type, methods: Iterable[str]) -> None:
    """Check that a class fits a section of a recipe; a function may return what does.

    Args:
        reference: import path.
        contract: the base class.
        methods: names of the methods that the class must define, in addition to all abstract ones.

    Raises:
        PluginError: it does not, or `load_reference` refuses the import path.
    """
    target = load_reference(reference)
    if not isinstance(target, type):
        return
    if not issubclass(target, contract):
        base = f"{contract.__module__}.{contract.__qualname__}"
        raise PluginError(f"{reference}: expected a subclass of {base}")
    missing = {*getattr(target, "__abstractmethods__", ())}
    for name in methods:
        method = next((vars(base)[name] for base in target.__mro__ if name in vars(base)), None)
        if method is None or getattr(method, "__name__", "") == UNDEFINED:
            missing.add(name)
    if missing:
        raise PluginError(f"{reference}: the class must define {' and '.join(sorted(missing))}")


def check_marked(reference: str) -> None:
    """Check that a function, of which nothing else shows what it is for, is marked by the decorator `part`.

    Raises:
        PluginError: it is not, or `load_reference` refuses the import path.
    """
    if not _is_marked(load_reference(reference)):
        raise PluginError(
            f"{reference}: expected a function with the decorator @heedful.part, got a class without it"
        )


def _is_marked(target: object) -> bool:
    return any(part is target for part in _marked.values())


def _is_at_home(target: type) -> bool:
    """Return whether the module that a class says it is defined in has it."""
    home = sys.modules.get(target.__module__)
    return home is not None and any(value is target for value in vars(home).values())


def settings_of(reference: str, sizes: Iterable[str]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class or function that a recipe can set: those that are not ``sizes``.

    Raises:
        PluginError: as `load_reference`, or if it requires parameters that cannot be passed by name.
    """
    parameters = inspect.signature(load_reference(reference)).parameters
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise PluginError(f"{reference}: its parameter {parameter.name!r} cannot be passed by name")
    size_names = {*sizes}
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in by_name and name not in size_names
    }


def build_reference(reference: str, settings: Mapping[str, object], sizes: Mapping[str, object]) -> object:
    """Call a class or function with the settings of a recipe, and with the sizes that its parameters name.

    Raises:
        PluginError: it is a module whose constructor does not call that of its base class.
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
        raise PluginError(not_called) from None
    if hasattr(built, "register_module") and "_modules" not in vars(built):  # without importing torch
        raise PluginError(not_called)
    return built


def check_settings(reference: str, settings: Iterable[str], sizes: Collection[str]) -> None:
    """Check that the keys of a recipe are parameters of a class or function, and that none is missing.

    Raises:
        PluginError: names the first key that does not fit.
    """
    parameters, given_settings = settings_of(reference, sizes), dict.fromkeys(settings)
    for key in given_settings:
        if key not in parameters:
            available = (
                f"; its settings are {', '.join(parameters)}" if parameters else "; it has no settings"
            )
            raise PluginError(f"{reference} has no setting {key!r}{nearest(key, parameters) or available}")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given_settings:
            passed = f"; the sizes that are passed by name are {', '.join(sizes)}" if sizes else ""
            if isinstance(load_reference(reference), FunctionType):
                passed += "; a function must return the part: if it is to be called as the part, give a class"
            raise PluginError(f"{reference} requires the setting {name!r}{passed}")
