"""The packages and files of users' parts (`heedful.parts`): which may be imported, and importing them.

A recipe or a run that someone sends must not choose what is imported. Only what the person who starts the
work names is imported: a package (``--plugin my_package``) or a file (``--plugin ./my_parts.py``), in Python
``plugins=[…]``, in the environment variable ``HEEDFUL_PLUGINS``; and what an installed distribution declares
as an entry point of the group ``heedful.plugins``. An import path can refer to a further module of such a
package only if the package imports it.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import distributions
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from heedful.checks import texts
from heedful.errors import RequestError

GROUP = "heedful.plugins"

VARIABLE = "HEEDFUL_PLUGINS"
"""Environment variable with the allowed packages and files, separated by commas; processes that this one
starts inherit it."""

RESERVED = sys.stdlib_module_names | {"heedful", "__main__"}
"""Modules that are never plugins: their names are not made for recipes."""


class PluginError(ValueError):
    """An import path is refused, cannot be imported, or does not fit its section."""


@dataclass(frozen=True)
class Plugin:
    """What may be imported.

    Args:
        module: name of the package or module.
        path: its file, or the folder of its package; None: it is found as any import.
    """

    module: str
    path: Path | None = None

    def __str__(self) -> str:
        """Return what the environment variable contains."""
        return str(self.path or self.module)

    @property
    def file(self) -> Path | None:
        """Return the file that is run."""
        return self.path / "__init__.py" if self.path is not None and self.path.is_dir() else self.path


def allow_plugins(names: Iterable[str]) -> None:
    """Allow imports of these packages and files, in this process and those that it starts from now on.

    Raises:
        RequestError: if they are one text, or one is not the name of a package or the path of a Python file.
    """
    for name in texts("plugins", names):
        allowed, plugin = allowed_plugins(), _plugin(name)
        other = allowed.get(plugin.module)
        if other is None or other.path is None:
            allowed[plugin.module] = plugin
        elif plugin.path not in (None, other.path):
            raise RequestError(f"plugin {name}: has the name of the plugin {other}; rename one of the files")
        os.environ[VARIABLE] = ",".join(sorted(map(str, allowed.values())))


def allowed_plugins() -> dict[str, Plugin]:
    """Return the packages and files that were allowed, by the names of their modules.

    Raises:
        RequestError: as `allow_plugins`.
    """
    names = os.environ.get(VARIABLE, "").split(",")
    return {plugin.module: plugin for plugin in map(_plugin, filter(None, names))}


def _plugin(name: str) -> Plugin:
    """Return the plugin that a person names."""
    is_path = name.endswith(".py") or any(separator in name for separator in (os.sep, os.altsep or os.sep))
    path = Path(os.path.abspath(name)) if is_path else None
    plugin = Plugin(name if path is None else path.name if path.is_dir() else path.stem, path)
    parts = plugin.module.split(".")
    if not all(part.isidentifier() for part in parts) or (path is not None and len(parts) > 1):
        raise RequestError(
            f"plugin {name}: expected the name of a Python package or module, or the path of a file such as "
            "./my_parts.py"
        )
    if parts[0] in RESERVED:
        remedy = "name a package of yours" if path is None else "rename it"
        raise RequestError(f"plugin {name}: that is a module of Python or of heedful itself; {remedy}")
    if plugin.file is not None and not plugin.file.is_file():
        raise RequestError(f"plugin {name}: no such file: {plugin.file}")
    if "," in str(plugin):
        raise RequestError(f"plugin {name}: its path must not have a comma: {plugin}; rename it")
    return plugin


def imported(module: str, reference: str) -> ModuleType:
    """Import the plugin that a module belongs to, and return the module.

    Args:
        module: name of a module.
        reference: the import path that refers to it, for messages.

    Raises:
        PluginError: if it belongs to none, the plugin cannot be imported, or it does not import the module.
    """
    if module.partition(".")[0] in RESERVED:
        raise PluginError(
            f"{reference}: expected an import path of your own part, got one of Python or of heedful itself, "
            "whose parts are named by their kinds"
        )
    plugins = _above(module)
    if not plugins:
        name = _suggested(module)
        raise PluginError(
            f"{reference} would import the module {module!r}, which was not named as a plugin; if you trust "
            f"it, add --plugin {name}, or plugins=[{name!r}] in Python"
        )
    for plugin in plugins:
        try:
            _import(plugin)
        except (Exception, SystemExit) as error:
            cause = _cause(plugin, error)
            raise PluginError(f"{reference}: cannot import {plugin.module}: {cause}") from None
    found = sys.modules.get(module)
    if not isinstance(found, ModuleType):
        if _is_missing(module):
            raise PluginError(f"{reference}: there is no module {module}")
        raise PluginError(
            f"{reference}: the plugin {plugins[-1].module} does not import {module}; if you trust that "
            f"module, add --plugin {module}, or plugins=[{module!r}] in Python"
        )
    return found


def _is_missing(module: str) -> bool:
    """Return whether there is no such module, if that can be seen without an import."""
    if module.rpartition(".")[0] not in sys.modules:
        return False
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:  # what should be its package is a module
        return True


def is_allowed(module: str) -> bool:
    """Return whether a module belongs to a plugin."""
    return bool(_above(module))


def _suggested(module: str) -> str:
    """Return what to name as a plugin for a module: a file of the current folder if it is not installed."""
    root = module.partition(".")[0]
    if root not in sys.modules and find_spec(root) is None:
        for path, file in ((f"./{root}.py", f"{root}.py"), (f"./{root}", f"{root}/__init__.py")):
            if Path(file).is_file():
                return path
    return module


def _above(module: str) -> list[Plugin]:
    """Return the plugins that are a module or have it below them, the outermost package first."""
    plugins: Mapping[str, Plugin] = {**_installed_plugins(), **allowed_plugins()}
    parts = module.split(".")
    names = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
    return [plugins[name] for name in names if name in plugins]


@cache
def _installed_plugins() -> Mapping[str, Plugin]:
    """Return the packages that installed distributions declare; finding them reads all metadata."""
    names = {
        entry.value.partition(":")[0]
        for distribution in distributions(path=_installation_folders())
        for entry in distribution.entry_points.select(group=GROUP)
    }
    return {name: Plugin(name) for name in names if name.partition(".")[0] not in RESERVED}


def _installation_folders() -> list[str]:
    """Return `sys.path` without the current folder and the program's, where sent distributions may lie."""
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    others = {Path.cwd(), *([] if program is None else [Path(program).resolve().parent])}
    return [folder for folder in sys.path if folder and Path(folder).resolve() not in others]


def _import(plugin: Plugin) -> None:
    if plugin.file is None:
        importlib.import_module(plugin.module)
        return
    other = _file_of(plugin.module)
    if other is not None and not plugin.file.samefile(other):
        raise ImportError(f"{plugin.file} has the name of {other}; rename it")
    if plugin.module not in sys.modules:
        _run_file(plugin.module, plugin.file)


def _file_of(module: str) -> str | None:
    """Return the file that has been, or would be, imported for the name of a module."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    return getattr(find_spec(module), "origin", None)


class _Source(SourceFileLoader):
    """Runs the file that the person has named and may have read, never a compiled form beside it."""

    def path_stats(self, path: str) -> Mapping[str, int]:  # type: ignore[override]
        """Give no time of change to look for a compiled form with."""
        raise OSError


def _run_file(name: str, file: Path) -> None:
    folders = [str(file.parent)] if file.name == "__init__.py" else None
    loader = _Source(name, str(file))
    spec = spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)
    assert spec is not None
    sys.modules[name] = module = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _cause(plugin: Plugin, error: BaseException) -> str:
    """Describe why a plugin cannot be imported, with its line or the remedy."""
    if isinstance(error, ModuleNotFoundError) and error.name == plugin.module.partition(".")[0]:
        path = _suggested(plugin.module)
        if path != plugin.module:
            return (
                f"no package of that name is installed; a file is named by its path: --plugin {path}, or "
                f"plugins=[{path!r}] in Python"
            )
    frames = traceback.extract_tb(error.__traceback__)
    own_frames = [frame for frame in frames if frame.filename not in (__file__, importlib.__file__)]
    places = [f"{frame.filename}:{frame.lineno}" for frame in own_frames if frame.filename[0] != "<"]
    place = f" (raised at {places[-1]})" if places else ""
    return f"{type(error).__name__}: {error}".removesuffix(": ") + place
