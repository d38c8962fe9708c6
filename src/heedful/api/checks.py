"""Checks of arguments that would otherwise fail late, or with an error of Python's own."""

import inspect
import os
from collections.abc import Iterable, Mapping, Sized
from numbers import Integral
from pathlib import Path

from heedful.checks import check_text
from heedful.errors import RequestError, type_name
from heedful.recipes.schema import Recipe
from heedful.recipes.suggestions import Section, meant_key
from heedful.recipes.trees import Tree
from heedful.runs.loading import LoadedRun
from heedful.tasks.registry import TASKS


def folder_of(path: object, name: str) -> Path:
    """Return a folder that an argument names, with ``~`` expanded.

    Raises:
        RequestError: it is not a path.
    """
    if not isinstance(path, str | Path):
        raise RequestError(f"{name}: expected the path of a run's folder, got {type_name(path)}")
    return Path(os.path.expanduser(path))


def run_folder(run: object, name: str = "run") -> Path:
    """Return the folder of a run that is given by its path, or loaded.

    Raises:
        RequestError: it is neither.
    """
    return run.folder.path if isinstance(run, LoadedRun) else folder_of(run, name)


def check_runs(runs: object) -> None:
    """Check that runs are a list of at least one.

    Raises:
        RequestError: they are not.
    """
    if isinstance(runs, str | Path) or not isinstance(runs, Iterable):
        raise RequestError(
            f"runs: expected a list of runs, got {type_name(runs)}; write compare([run, other])"
        )
    if isinstance(runs, Sized) and not len(runs):
        raise RequestError("runs: expected at least one run to compare, got none")


def check_switches(**switches: object) -> None:
    """Check that each is True or False.

    Raises:
        RequestError: one is not.
    """
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise RequestError(f"{name}: expected True or False, got {value!r}")


def check_overrides(overrides: object) -> None:
    """Check that overrides are a mapping.

    Raises:
        RequestError: they are not.
    """
    if overrides is not None and not isinstance(overrides, Mapping):
        raise RequestError(
            f"overrides: expected a dict of settings, got {type_name(overrides)}; write them as "
            '{"model.n_layers": 2}'
        )


def names_in_rows(columns: object) -> dict[str, str] | None:
    """Return the names of columns in the rows, as texts; those of a table without a header are numbers.

    Raises:
        RequestError: they are not a mapping of names to names.
    """
    if columns is None:
        return None
    if not isinstance(columns, Mapping):
        raise RequestError(
            "columns: expected a dict of the task's names to names in the rows, got "
            f'{type_name(columns)}; write them as {{"text": "review"}}'
        )
    for column, name in columns.items():
        if not isinstance(column, str):
            raise RequestError(f"columns: expected the task's name of a column, got {column!r}")
        if not isinstance(name, str | Integral) or isinstance(name, bool):
            raise RequestError(
                f"columns: {column}: expected the name of one column in the rows, got {type_name(name)}"
            )
    return {column: str(name) for column, name in columns.items()}


def check_sets(data: object) -> None:
    """Check that data are a mapping of sets.

    Raises:
        RequestError: they are not.
    """
    if not isinstance(data, Mapping):
        raise RequestError(
            f"data: expected a dict of data sets by name, got {type_name(data)}; give "
            "data={'train': …}, with 'valid' and test sets if there are any"
        )
    for name in data:
        check_text("data: name of a set", name)


def check_callbacks(callbacks: object) -> None:
    """Check that callbacks are a list of functions that take one argument.

    Raises:
        RequestError: they are not.
    """
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        raise RequestError(
            f"callbacks: expected a list of functions, got {type_name(callbacks)}; write callbacks=[f], "
            "also for one function"
        )
    for number, callback in enumerate(callbacks if isinstance(callbacks, list | tuple) else ()):
        if not callable(callback):
            raise RequestError(f"callbacks[{number}]: expected a function, got {type_name(callback)}")
        if not _takes_one(callback):
            raise RequestError(
                f"callbacks[{number}]: expected a function of one argument, the event; it takes "
                f"{inspect.signature(callback)}"
            )


def check_split(split: object) -> None:
    """Check that a split is a name.

    Raises:
        RequestError: it is not.
    """
    if not isinstance(split, str):
        raise RequestError(f"split: expected a name, got {type_name(split)}; give rows as data=…")


def refuse_argument(name: str, recipe: Tree) -> None:
    """Refuse an argument that `heedful.train` does not have, and name the setting that was meant.

    Raises:
        RequestError: always.
    """
    kind = recipe.find(("task", "kind"))
    task = None if kind is None else TASKS.get(str(kind.data))
    schema = Section((), Recipe if task is None else task.Recipe)
    meant = "" if name in Recipe.model_fields else meant_key(name, schema, schema, recipe)
    raise RequestError(
        f"{name}: train has no such argument{meant}; settings of the recipe are given as "
        'overrides={"training.max_updates": 100}'
    )


def _takes_one(function: object) -> bool:
    """Return whether a function can be called with one argument; True if its signature is unknown."""
    assert callable(function)
    try:
        signature = inspect.signature(function)
    except ValueError:  # of some functions in C
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True
