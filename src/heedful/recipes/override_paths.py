"""Relative paths in overrides start at the current folder, those in a recipe at the folder of its file."""

import os
from collections.abc import Iterator
from pathlib import Path as FilePath

from heedful.recipes.trees import OVERRIDES, Path, Tree

FILES = ("paths", "path", "data_files")
"""Keys of a data source that have paths."""

SOURCES_OF_FILES = ("files", "idx")
"""Kinds of sources whose columns are paths."""


def with_paths_of_overrides(tree: Tree, folder: FilePath) -> Tree:
    """Return a merged recipe in which relative paths of overrides are absolute, if they start elsewhere.

    If an override sets the ``root``, the paths of all others start there.

    Args:
        tree: the merged recipe.
        folder: the folder that its relative paths start from unless it has a ``root``.
    """
    if "root" not in tree.value and folder == FilePath.cwd():
        return tree
    root = tree.find(("root",))
    if root is not None and root.mark.source in OVERRIDES:
        return _replaced(tree, ("root",))
    for path in _paths(tree):
        tree = _replaced(tree, path)
    return tree


def _paths(tree: Tree) -> Iterator[Path]:
    """Yield where a recipe has the paths of files and folders."""
    yield ("start", "run")
    sources: list[Path] = [("data", "train"), ("data", "valid")]
    tests = tree.find(("data", "test"))
    if tests is not None and isinstance(tests.value, dict):
        sources += [("data", "test", name) for name in tests.value]
    while sources:
        place = sources.pop()
        source = tree.find(place)
        if source is None or not isinstance(source.value, dict):
            continue
        kind, columns = source.data.get("kind"), source.data.get("columns")
        yield from ((*place, key) for key in FILES if not _is_name(kind, key, source.data.get(key)))
        if kind in SOURCES_OF_FILES and isinstance(columns, dict):
            yield from ((*place, "columns", column) for column in columns)
        parts = source.find(("sources",))
        if parts is not None and isinstance(parts.value, list):
            sources += [(*place, "sources", number) for number in range(len(parts.value))]


def _is_name(kind: object, key: str, value: object) -> bool:
    """Whether a value is the name of a data set or a reader, not a path."""
    return kind == "datasets" and key == "path" and not str(value).startswith(".")


def _replaced(tree: Tree, path: Path) -> Tree:
    """Return a tree in which the paths at a place are absolute, if an override set them."""
    if not path:
        return _absolute(tree)
    first, *rest = path
    inner = tree.find((first,))
    if inner is None:
        return tree
    changed = _replaced(inner, tuple(rest))
    if changed is inner:
        return tree
    entries = {**tree.value, first: changed} if isinstance(tree.value, dict) else [*tree.value]
    if isinstance(entries, list):
        entries[int(first)] = changed
    return Tree(entries, tree.mark)


def _absolute(tree: Tree) -> Tree:
    if isinstance(tree.value, list):
        items = [_absolute(item) for item in tree.value]
        unchanged = all(new is old for new, old in zip(items, tree.value, strict=True))
        return tree if unchanged else Tree(items, tree.mark)
    text = tree.value
    if tree.mark.source not in OVERRIDES or not isinstance(text, str):
        return tree
    is_relative = not (os.path.isabs(text) or text.startswith(("~", "$")))
    return Tree(str(FilePath.cwd() / text), tree.mark) if is_relative and text else tree
