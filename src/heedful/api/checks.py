"""Checks of arguments that would otherwise fail late, or with an error of Python's own."""

import inspect
from collections.abc import Iterable, Mapping

from heedful.errors import RequestError
from heedful.recipes.schema import Recipe
from heedful.recipes.suggestions import Section, unknown_key
from heedful.recipes.trees import Tree
from heedful.tasks.registry import TASKS, task_class


def check_overrides(overrides: object) -> None:
    """Check that overrides are a mapping.

    Raises:
        RequestError: they are not.
    """
    if overrides is not None and not isinstance(overrides, Mapping):
        raise RequestError(
            f"overrides: expected a dict of settings, got {_kind_of(overrides)}; write them as "
            '{"model.n_layers": 2}'
        )


def check_columns(columns: object) -> None:
    """Check that columns are a mapping.

    Raises:
        RequestError: they are not.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise RequestError(
            "columns: expected a dict of the task's names to names in the rows, got "
            f'{_kind_of(columns)}; write them as {{"text": "review"}}'
        )


def check_sets(data: object) -> None:
    """Check that data are a mapping of sets.

    Raises:
        RequestError: they are not.
    """
    if not isinstance(data, Mapping):
        raise RequestError(
            f"data: expected a dict of data sets by name, got {_kind_of(data)}; give "
            "data={'train': …}, with 'valid' and test sets if there are any"
        )


def check_callbacks(callbacks: object) -> None:
    """Check that callbacks are a list of functions that take one argument.

    Raises:
        RequestError: they are not.
    """
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        raise RequestError(
            f"callbacks: expected a list of functions, got {_kind_of(callbacks)}; write callbacks=[f], "
            "also for one function"
        )
    for number, callback in enumerate(callbacks if isinstance(callbacks, list | tuple) else ()):
        if not callable(callback):
            raise RequestError(f"callbacks[{number}]: expected a function, got {_kind_of(callback)}")
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
        raise RequestError(f"split: expected a name, got {_kind_of(split)}; give rows as data=…")


def refuse_argument(name: str, recipe: Tree) -> None:
    """Refuse an argument that `heedful.train` does not have, and name the setting that was meant.

    Raises:
        RequestError: always.
    """
    if name in Recipe.model_fields:
        hint = ""
    else:
        kind = recipe.find(("task", "kind"))
        task = "" if kind is None else str(kind.data)
        schema = Section((), task_class(task).Recipe if task in [*TASKS] else Recipe)
        hint = (
            unknown_key(name, schema, schema, recipe).removeprefix("unknown key").partition("; the keys")[0]
        )
    raise RequestError(
        f"{name}: train has no such argument{hint}; settings of the recipe are given as "
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


def _kind_of(value: object) -> str:
    """Describe the type of a value, with its article."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
