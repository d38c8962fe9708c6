"""Check that the files of a recipe exist, before anything slow: this module does not import torch."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from heedful.data.sources import SourceConfig, open_source
from heedful.data.splitting import DataSets, DataSource, training_source
from heedful.errors import RequestError
from heedful.recipes.resolve import RecipeInput, resolve_without_presets, root_of
from heedful.recipes.trees import Tree

NOT_FILES = {"built-in", "datasets", "memory"}
"""Sources without files of their own. The others check their files or function when they are opened, at no
further cost until they are read."""

_SOURCE: TypeAdapter[SourceConfig] = TypeAdapter(SourceConfig)


class DataSources(Protocol):
    """The section ``data`` of a recipe (`heedful.recipes.schema.DataConfig`)."""

    @property
    def sets(self) -> DataSets:
        """Training, validation and test sets."""


def find_sources(sources: Mapping[str, DataSource], root: Path) -> None:
    """Check that every file of some sources exists.

    Args:
        sources: sources by their key in the recipe.
        root: the folder that relative paths start from.

    Raises:
        DataError: one is missing; the message has the recipe's key.
    """
    for key, source in sources.items():
        if source.kind not in NOT_FILES:
            with errors_named(key):
                open_source(source, root)


def check_before_imports(recipe: RecipeInput, overrides: Sequence[str]) -> None:
    """Check what can be checked of a recipe without its schema: that it can be read, and that its data exist.

    Sources that are not valid are left to the validation of the whole recipe.

    Raises:
        RequestError: the recipe cannot be read, or an override is malformed.
        DataError: a file of the data is missing.
    """
    tree = resolve_without_presets(recipe, overrides)
    sources = {key: source_from(source) for key, source in _source_trees(tree)}
    find_sources({key: source for key, source in sources.items() if source}, root_of(tree, recipe))


def source_from(tree: Tree) -> SourceConfig | None:
    """Return the source that a tree describes; None if it is not valid."""
    with suppress(ValidationError):
        return _SOURCE.validate_json(json.dumps(tree.data))
    return None


def training_source_from(tree: Tree) -> DataSource | None:
    """Return the source of the training rows of a recipe; None if it is not valid."""
    section, shares = tree.find(("data", "train")), tree.find(("data", "split"))
    source = None if section is None else source_from(section)
    if source is None or shares is None or not isinstance(shares.data, dict):
        return source
    with suppress(ValidationError):
        return training_source(source, {name: share for name, share in shares.data.items() if share})
    return None


def sources_of(data: DataSources) -> dict[str, DataSource]:
    """Return the sources of a recipe by their keys; a part of the training source has the key of a set."""
    sets = data.sets
    tests = {f"data.test.{name}": source for name, source in sets.test.items()}
    return {"data.train": sets.train, "data.valid": sets.valid, **tests}


def _source_trees(tree: Tree) -> Iterator[tuple[str, Tree]]:
    """Yield the sources of a recipe with their keys."""
    tests = tree.find(("data", "test"))
    names = tests.value if tests is not None and isinstance(tests.value, dict) else ()
    for path in (("data", "train"), ("data", "valid"), *(("data", "test", name) for name in names)):
        if (source := tree.find(path)) is not None:
            yield ".".join(path), source


@contextmanager
def errors_named(key: str) -> Iterator[None]:
    """Prefix errors of data with the recipe's key."""
    try:
        yield
    except RequestError as error:
        raise type(error)(f"{key}: {error}") from None
