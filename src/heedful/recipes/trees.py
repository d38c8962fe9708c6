"""Recipes before validation: plain trees in which every value has the mark of its file and line.

Merging: maps are merged key by key, and anything else replaces the value below. A map that names a ``kind``
that differs from the map below, or a model that names a ``preset``, replaces that map entirely, so that no
setting of the old kind remains. An empty map removes all entries that a user names (`NAMED`). Text below a
map is its ``kind``, and so is text above a map that has a ``kind``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from heedful.errors import RequestError, nearest
from heedful.typing import JsonMapping

Part = str | int
Path = tuple[Part, ...]

COMMAND_LINE = "on the command line"
IN_PYTHON = "overrides"
MODEL: Path = ("model",)
"""The section that may name a preset."""

NAMED: tuple[Path, ...] = (("data", "test"), ("data", "split"))
"""Maps whose keys are names that a user chooses."""

OVERRIDES = (COMMAND_LINE, IN_PYTHON)
"""Sources of overrides, of the command and of a program."""


@dataclass(frozen=True)
class Mark:
    """Where a value was written: a file and line, a preset, or the command line."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True)
class Tree:
    """A map, list or scalar with its `Mark`; the entries of maps and lists are trees again.

    Keys are text. Only a tree of overrides may have integers as keys: indices of the list that the tree is
    merged over.

    A map of overrides that ``replaces`` is not merged with the map below: what was below was removed first.
    """

    value: Any
    mark: Mark
    replaces: bool = False

    @classmethod
    def of(cls, data: object, mark: Mark) -> "Tree":
        """Return plain data as a tree, with the same mark everywhere."""
        if isinstance(data, Mapping):
            return cls({key: cls.of(item, mark) for key, item in data.items()}, mark)
        if isinstance(data, list | tuple):
            return cls([cls.of(item, mark) for item in data], mark)
        return cls(data, mark)

    @property
    def data(self) -> Any:
        """The tree as plain dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: item.data for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.data for item in self.value]
        return self.value

    def find(self, path: Path) -> "Tree | None":
        """Return the tree at ``path``, or None if there is none."""
        subtree = self
        for part in path:
            is_key = isinstance(subtree.value, dict) and part in subtree.value
            is_index = isinstance(subtree.value, list) and isinstance(part, int) and part < len(subtree.value)
            if not (is_key or is_index):
                return None
            subtree = subtree.value[part]
        return subtree

    def mark_of(self, path: Path) -> Mark:
        """Return the mark of the value at ``path``, or of the nearest enclosing value."""
        while (tree := self.find(path)) is None:
            path = path[:-1]
        return tree.mark

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, "Tree"]]:
        """Yield this tree and all trees in it, with their paths, outermost first."""
        yield path, self
        entries: Iterable[tuple[Part, Tree]] = ()
        if isinstance(self.value, dict | list):
            entries = self.value.items() if isinstance(self.value, dict) else enumerate(self.value)
        for part, item in entries:
            yield from item.walk((*path, part))


def dotted(path: Path) -> str:
    """Format a path: ``("data", "train", 0)`` as ``data.train.0``."""
    return ".".join(str(part) for part in path)


def with_task(tree: Tree) -> Tree:
    """Return a recipe whose task is a map: ``task: tagging`` is ``task: {kind: tagging}``."""
    task = tree.find(("task",))
    if task is None or not isinstance(task.value, str):
        return tree
    return replace(tree, value={**tree.value, "task": Tree({"kind": task}, task.mark)})


def merge(base: Tree, override: Tree) -> Tree:
    """Merge ``override`` into ``base`` by the rules above. Neither is changed.

    If maps agree on which keys are maps, and on kinds, merging is associative: ``merge(merge(a, b), c)``
    equals ``merge(a, merge(b, c))``. The layers of a recipe are merged from the lowest upwards.

    Raises:
        RequestError: if an index in ``override`` is beyond the end of the list.
    """
    return _merge(base, override, (), one_layer=False)


def combine(first: Tree, second: Tree) -> Tree:
    """Combine two trees into one layer: as `merge`, but all maps merge, whatever ``kind`` or ``preset``.

    Text is the ``kind`` of a map in the other tree, so that ``schedule=cosine schedule.warmup=9`` sets both.
    A map after a value that removes the map below, as in ``data.test=null data.test.own=…``, replaces it.
    """
    return _merge(first, second, (), one_layer=True)


def _merge(base: Tree, override: Tree, path: Path, *, one_layer: bool) -> Tree:
    is_section = isinstance(base.value, dict) and (one_layer or "kind" in base.value)
    if isinstance(override.value, str) and is_section:
        override = Tree({"kind": override}, override.mark)
    if not isinstance(override.value, dict):
        return override
    if override.replaces or (path in NAMED and not override.value):
        return override
    if one_layer and (base.value is None or (path in NAMED and not base.value)):
        return replace(override, replaces=True)
    if isinstance(base.value, list) and _has_indices(override):
        return _merge_items(base, override, path, one_layer=one_layer)
    if isinstance(base.value, str):
        base = Tree({"kind": base}, base.mark)
    is_preset = path == MODEL and "preset" in override.value
    if not isinstance(base.value, dict) or (not one_layer and (is_preset or _differ_in_kind(base, override))):
        return override
    merged = dict(base.value)
    for key, item in override.value.items():
        # A number is a key if the map below has text keys.
        name = key if _has_indices(base) else str(key)
        below = merged.get(name)
        merged[name] = item if below is None else _merge(below, item, (*path, name), one_layer=one_layer)
    return replace(base, value=merged)


def _merge_items(base: Tree, override: Tree, path: Path, *, one_layer: bool) -> Tree:
    items = list(base.value)
    for index, item in override.value.items():
        if index >= len(items):
            raise RequestError(
                f"{item.mark}: {dotted((*path, index))}: index out of range: the list has length {len(items)}"
            )
        items[index] = _merge(items[index], item, (*path, index), one_layer=one_layer)
    return Tree(items, base.mark)


def _has_indices(tree: Tree) -> bool:
    """Return whether the keys of a tree are indices of a list."""
    return bool(tree.value) and all(isinstance(key, int) for key in tree.value)


def _differ_in_kind(base: Tree, override: Tree) -> bool:
    have_kinds = "kind" in base.value and "kind" in override.value
    return have_kinds and bool(base.value["kind"].data != override.value["kind"].data)


def check_indices(tree: Tree) -> None:
    """Refuse indices for which there is no list.

    Raises:
        RequestError: names the first of them.
    """
    for path, item in tree.walk():
        if isinstance(item.value, dict) and _has_indices(item):
            entry = dotted((*path, next(iter(item.value))))
            raise RequestError(f"{item.mark}: {entry}: {dotted(path)!r} is not a list, so it has no index")


def with_preset(tree: Tree, presets: Mapping[str, JsonMapping]) -> Tree:
    """Merge the preset that ``model`` names below it, and remove the key ``preset``.

    Args:
        tree: the settings of a recipe, such as ``model: {preset: transformer-tiny, dropout: 0.3}``.
        presets: the settings of each preset.

    Raises:
        RequestError: if the preset is unknown, or of another ``kind`` than the model.
    """
    model = tree.find(MODEL)
    if model is None or not isinstance(model.value, dict) or "preset" not in model.value:
        return tree
    settings = replace(model, value={key: item for key, item in model.value.items() if key != "preset"})
    preset = _preset(model.value["preset"], presets)
    if _differ_in_kind(preset, settings):
        kind, expected = settings.value["kind"], preset.value["kind"].data
        raise RequestError(f"{kind.mark}: model.kind: {kind.data!r}, but the preset is of kind {expected!r}")
    merged = replace(merge(preset, settings), mark=model.mark)
    return replace(tree, value={**tree.value, "model": merged})


def _preset(name: Tree, presets: Mapping[str, JsonMapping]) -> Tree:
    location = f"{name.mark}: model.preset"
    if not isinstance(name.value, str):
        raise RequestError(f"{location}: expected the name of a preset, got {name.data!r}")
    if name.value not in presets:
        raise RequestError(
            f"{location}: unknown preset {name.value!r}{nearest(name.value, presets)}; "
            f"expected one of {', '.join(sorted(presets))}"
        )
    return Tree.of(presets[name.value], Mark(f"preset {name.value}"))
