"""Recipes before they are validated: plain trees in which every value knows where it was written.

The law of merging: a map merges into a map key by key, and anything else replaces what lay below. A
map that names a ``preset``, or another ``kind`` than the map below it, replaces that map whole, so
that no setting of one kind is left in another. The kind of an ``attention`` is its ``score``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from heedful.errors import RequestError, nearest

Part = str | int
Path = tuple[Part, ...]
Presets = Callable[[str, str], Mapping[str, Any]]

COMMAND_LINE = "on the command line"

KINDS = {"attention": "score"}
"""What tells the kinds of a map apart, by the key at which it stands; ``kind`` everywhere else."""


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

    Keys are text. A tree of overrides alone may hold whole numbers as keys: they point into the list
    that the tree is merged over.
    """

    value: Any
    mark: Mark

    @classmethod
    def of(cls, data: Any, mark: Mark) -> "Tree":
        """Plain data as a tree, with one mark for all of it."""
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
        """The tree at ``path``, or None where there is none."""
        here = self
        for part in path:
            known = isinstance(here.value, dict) and part in here.value
            inside = isinstance(here.value, list) and isinstance(part, int) and part < len(here.value)
            if not (known or inside):
                return None
            here = here.value[part]
        return here

    def mark_of(self, path: Path) -> Mark:
        """The mark of what stands at ``path``, or else of the nearest that surrounds it."""
        while (found := self.find(path)) is None:
            path = path[:-1]
        return found.mark

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, "Tree"]]:
        """This tree and all trees in it, with their paths, outermost first."""
        yield path, self
        entries: Iterable[tuple[Part, Tree]] = ()
        if isinstance(self.value, dict | list):
            entries = self.value.items() if isinstance(self.value, dict) else enumerate(self.value)
        for part, item in entries:
            yield from item.walk((*path, part))


def dotted(path: Path) -> str:
    """``("data", "train", 0)`` as ``data.train.0``."""
    return ".".join(str(part) for part in path)


def merge(base: Tree, over: Tree) -> Tree:
    """``over`` laid upon ``base``, by the law above. Neither is changed.

    Where maps agree on which keys are maps, and on kinds, the order of grouping does not matter:
    ``merge(merge(a, b), c)`` equals ``merge(a, merge(b, c))``. The layers of a recipe are merged from
    the lowest upwards.

    Raises:
        RequestError: a number in ``over`` points beyond the list it is merged over.
    """
    return _merge(base, over, (), _starts_new)


def combine(first: Tree, second: Tree) -> Tree:
    """Two trees as one layer: as `merge`, but all maps merge, whatever ``kind`` or ``preset`` they name."""
    return _merge(first, second, (), lambda base, over, path: False)


def _merge(base: Tree, over: Tree, path: Path, new_parts: Callable[[Tree, Tree, Path], bool]) -> Tree:
    if not isinstance(over.value, dict):
        return over
    if isinstance(base.value, list) and _points(over):
        return _merge_items(base, over, path, new_parts)
    if not isinstance(base.value, dict) or new_parts(base, over, path):
        return over
    merged = dict(base.value)
    for key, item in over.value.items():
        # A number names a key where the map below has names for keys.
        name = key if _points(base) else str(key)
        merged[name] = _merge(merged[name], item, (*path, name), new_parts) if name in merged else item
    return Tree(merged, base.mark)


def _merge_items(base: Tree, over: Tree, path: Path, new_parts: Callable[[Tree, Tree, Path], bool]) -> Tree:
    items = list(base.value)
    for index, item in over.value.items():
        if index >= len(items):
            raise RequestError(
                f"{item.mark}: {dotted((*path, index))}: the list has length {len(items)}, counted from 0"
            )
        items[index] = _merge(items[index], item, (*path, index), new_parts)
    return Tree(items, base.mark)


def _points(tree: Tree) -> bool:
    """Whether its keys are places of a list."""
    return bool(tree.value) and all(isinstance(key, int) for key in tree.value)


def _starts_new(base: Tree, over: Tree, path: Path) -> bool:
    if "preset" in over.value:
        return True
    kind = KINDS.get(str(path[-1]), "kind") if path else "kind"
    both = kind in base.value and kind in over.value
    return both and bool(base.value[kind].data != over.value[kind].data)


def check_indices(tree: Tree) -> None:
    """Refuse numbers that found no list to point into.

    Raises:
        RequestError: naming the first of them.
    """
    for path, item in tree.walk():
        if isinstance(item.value, dict) and _points(item):
            entry = dotted((*path, next(iter(item.value))))
            raise RequestError(f"{item.mark}: {entry}: there is no list at {dotted(path)!r} to point into")


def expand(tree: Tree, presets: Presets) -> Tree:
    """Put each preset below the map that names it, and drop the key ``preset``.

    Args:
        tree: may hold maps such as ``{preset: transformer-tiny, dropout: 0.3}``.
        presets: called with the dotted path of the map (``"model"``) and the name; returns the
            preset's map, or raises `RequestError` (as `preset_table` does).

    Raises:
        RequestError: an unknown preset, or a map whose own ``kind`` is not its preset's.
    """
    return _expand(tree, presets, ())


def _expand(tree: Tree, presets: Presets, path: Path) -> Tree:
    if isinstance(tree.value, list):
        return replace(tree, value=[_expand(t, presets, (*path, i)) for i, t in enumerate(tree.value)])
    if not isinstance(tree.value, dict):
        return tree
    own = {k: _expand(t, presets, (*path, k)) for k, t in tree.value.items() if k != "preset"}
    rest = replace(tree, value=own)
    if "preset" not in tree.value:
        return rest
    below = _preset(tree.value["preset"], presets, path)
    if _starts_new(below, rest, path):
        kinds = rest.value["kind"].data, below.value["kind"].data
        key = dotted((*path, "kind"))
        raise RequestError(
            f"{rest.value['kind'].mark}: {key}: {kinds[0]!r}, but the preset is of kind {kinds[1]!r}"
        )
    return replace(merge(below, rest), mark=tree.mark)


def _preset(name: Tree, presets: Presets, path: Path) -> Tree:
    where = f"{name.mark}: {dotted((*path, 'preset'))}"
    if not isinstance(name.value, str):
        raise RequestError(f"{where}: expected the name of a preset, got {name.data!r}")
    try:
        return Tree.of(presets(dotted(path), name.value), Mark(f"preset {name.value}"))
    except RequestError as error:
        raise RequestError(f"{where}: {error}") from None


def preset_table(table: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Presets:
    """A lookup for `expand` in ``{section: {name: map}}``; unknown names get the nearest known one."""

    def look_up(section: str, name: str) -> Mapping[str, Any]:
        known = table.get(section, {})
        if not known:
            raise RequestError(f"there are no presets for {section!r}" if section else "there are none here")
        if name not in known:
            raise RequestError(
                f"unknown preset {name!r}{nearest(name, known)}; the presets are {', '.join(sorted(known))}"
            )
        return known[name]

    return look_up
