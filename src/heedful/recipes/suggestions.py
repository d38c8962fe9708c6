"""Suggest a key of the schema for one that is unknown.

In this order: this key in a section of another ``kind``, the setting that other toolkits call by this name
(``other_toolkits.tsv``), a key of this name in a section below, a similar key of the same section, a key of
this name anywhere else.
"""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import NamedTuple, get_args

from pydantic.fields import FieldInfo

from heedful.errors import nearest
from heedful.recipes.fields import fields_of, is_model, is_union, tags_of, unwrap
from heedful.recipes.trees import Path, Tree, dotted

DEPTH = 5
"""The most sections that lead to a key: ``model.layer.mixer.visible.size``."""


MISSPELT = 0.75
"""The least similarity of a misspelt key. ``repetition_penalty`` is no ``length_penalty``, at 0.69."""


class Section(NamedTuple):
    """A section of the schema: its path in the recipe, and its class (None if unknown)."""

    path: Path
    model: object


class Setting(NamedTuple):
    """The name of a setting in other toolkits, and the key of heedful: empty if there is none."""

    name: str
    key: str
    note: str


class _Key(NamedTuple):
    """A key of the schema, and the ``kind`` that the recipe must have for it, if that is not the one it has.

    Args:
        path: the key.
        n_other_kinds: number of sections that lead to it and are of another kind in the recipe.
        kind_path: the outermost ``kind`` that must be changed; empty if there is none.
        kinds: its values.
        n_absent: number of sections that lead to it and that the recipe does not have.
    """

    path: Path
    n_other_kinds: int = 0
    kind_path: Path = ()
    kinds: tuple[str, ...] = ()
    n_absent: int = 0

    @property
    def distance(self) -> tuple[int, int, int]:
        """How far the key is from the recipe and from the section: the nearest one is suggested."""
        return self.n_other_kinds, self.n_absent, len(self.path)

    def inside(self, section: Path) -> "_Key":
        """Return the key with the path of the whole recipe, if it was found in a section."""
        kind_path = (*section, *self.kind_path) if self.kinds else ()
        return self._replace(path=(*section, *self.path), kind_path=kind_path)

    @property
    def needs(self) -> str:
        """The kind that the key needs, for messages."""
        return f"needs {dotted(self.kind_path)}={' or '.join(self.kinds)}"

    @property
    def condition(self) -> str:
        """The kind that the key needs, as the end of a clause; empty if the recipe has it."""
        return f", which {self.needs}" if self.kinds else ""


def unknown_key(key: str, section: Section, root: Section, tree: Tree) -> str:
    """Return the message for a key that a section does not have.

    Args:
        key: the key.
        section: the section in which it was written.
        root: the whole schema.
        tree: the recipe, whose kinds are preferred.
    """
    meant, names = meant_key(key, section, root, tree), list(fields_of(section.model))
    if meant or not names:
        return f"unknown key{meant}"
    return f"unknown key; the keys here are {', '.join(names)}"


def meant_key(key: str, section: Section, root: Section, tree: Tree) -> str:
    """Return the clause that names the key that was meant, for the arguments of `unknown_key`; or nothing."""
    names = list(fields_of(section.model))
    if meant := renamed(key, section, tree):
        kind = tree.find((*section.path, "kind"))
        return f"; {'use' if kind is None else f'kind {kind.data} uses'} {meant}"
    of_other_kind = find_key(root.model, [*map(str, section.path), key], tree)
    if of_other_kind is not None and of_other_kind.kinds:
        return f"; it {of_other_kind.needs}"
    if setting := _of_other_toolkits(key, root, tree):
        return f"; {setting}"
    below = _nearest(_keys(section, key, tree.find(section.path)))
    similar = nearest(key, names, MISSPELT)
    elsewhere = None if key == "kind" else _nearest(_keys(root, key, tree))
    if (found := below or (None if similar else elsewhere)) is not None:
        whole = found.inside(section.path) if below else found
        return f" (did you mean {dotted(whole.path)!r}{whole.condition}?)"
    if not names and is_model(unwrap(section.model)[0]):
        return f"; {dotted(section.path) or 'the recipe'} has no keys here"
    return similar


def renamed(key: str, section: Section, tree: Tree) -> str:
    """Return the required key of a section that is missing and differs little from a key; empty if none."""
    missing = [
        name
        for name, field in fields_of(section.model).items()
        if field.is_required() and tree.find((*section.path, name)) is None
    ]
    return next(iter(get_close_matches(key, missing, n=1, cutoff=0.8)), "")


@cache
def other_toolkits() -> tuple[Setting, ...]:
    """Return the settings of other toolkits, from the table ``other_toolkits.tsv``."""
    text = files("heedful").joinpath("recipes/other_toolkits.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return tuple(Setting(name, key, note) for names, key, note in rows for name in names.split(", "))


@cache
def other_kinds() -> dict[tuple[str, str], tuple[str, str]]:
    """Return kinds by section and name in other toolkits, each with a note, from ``other_kinds.tsv``."""
    text = files("heedful").joinpath("recipes/other_kinds.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return {
        (section, name): (kind, note) for section, names, kind, note in rows for name in names.split(", ")
    }


def unknown_kind(kind: str, kinds: Sequence[str], section: Path, tree: Tree) -> str:
    """Return the message for a ``kind`` that a section does not have.

    Args:
        kind: the kind.
        kinds: those that the section may have.
        section: its path.
        tree: the recipe.
    """
    name = str(section[0]) if section else ""
    meant, note = other_kinds().get((name, kind.lower().replace("_", "-")), ("", ""))
    if meant in kinds:
        joint = ", " if note.startswith("or ") else " "
        return f"unknown kind {kind!r}; use {meant}{joint if note else ''}{note}"
    task = tree.find(("task", "kind"))
    families = {family for (where, _), (family, _) in other_kinds().items() if where == "model"}
    is_family = not families.isdisjoint((kind, meant))
    if section == ("model",) and is_family and task is not None:
        return f"not for task {task.data}; use {' or '.join(kinds)}"
    return f"unknown kind {kind!r}{nearest(kind, kinds)}; the kinds are {', '.join(kinds)}"


def _of_other_toolkits(name: str, root: Section, tree: Tree) -> str:
    """Say which keys correspond to the name of a setting in other toolkits; empty if it is unknown."""
    name = name.lstrip("-").replace("-", "_").lower()
    settings = [setting for setting in other_toolkits() if setting.name == name]
    keys = [
        (setting, found)
        for setting in settings
        if setting.key and (found := find_key(root.model, setting.key.split("."), tree)) is not None
    ]
    if not keys:
        return next((setting.note for setting in settings if not setting.key), "")
    n_other_kinds = min(found.n_other_kinds for _, found in keys)
    parts = [
        f"{setting.key}{found.condition}{f' ({setting.note})' if setting.note else ''}"
        for setting, found in keys
        if found.n_other_kinds == n_other_kinds
    ]
    return f"use {' or '.join(parts)}"


def find_key(model: object, parts: Sequence[str], tree: Tree | None) -> _Key | None:
    """Return the key at a path below a section, of the kinds of the recipe if possible."""
    name, *rest = parts
    field = fields_of(model).get(name)
    if field is None or not rest:
        return None if field is None else _Key((name,))
    subtree = None if tree is None else tree.find((name,))
    return _nearest(
        place.below(key)
        for place in _places(name, field, subtree)
        if (key := find_key(place.model, rest, subtree)) is not None
    )


def _keys(section: Section, key: str, tree: Tree | None, depth: int = DEPTH) -> Iterator[_Key]:
    """Yield the keys of this name in the sections below a section."""
    for name, field in fields_of(section.model).items() if depth else ():
        subtree = None if tree is None else tree.find((name,))
        for place in _places(name, field, subtree):
            if key in fields_of(place.model):
                yield place.below(_Key((key,)))
            for found in _keys(Section((), place.model), key, subtree, depth - 1):
                yield place.below(found)


def _nearest(keys: Iterable[_Key]) -> _Key | None:
    """Return the nearest key, the first of several, with all kinds that have it; None if there is none."""
    candidates = list(keys)
    if not candidates:
        return None
    best = min(candidates, key=lambda key: key.distance)
    same = [key for key in candidates if key[:3] == best[:3]]
    return best._replace(kinds=tuple(dict.fromkeys(kind for key in same for kind in key.kinds)))


class _Place(NamedTuple):
    """A section below another: one of the classes that it may be.

    Args:
        name: its key.
        model: the class.
        is_selected: whether the recipe has this kind there.
        is_present: whether the recipe has the section, or it is the default.
    """

    name: str
    model: object
    is_selected: bool
    is_present: bool

    def below(self, key: _Key) -> _Key:
        """Return the path of a key of this section in the section above it."""
        path, n_absent = (self.name, *key.path), key.n_absent + (not self.is_present)
        if self.is_selected:
            kind_path = (self.name, *key.kind_path) if key.kinds else ()
            return _Key(path, key.n_other_kinds, kind_path, key.kinds, n_absent)
        kinds = tuple(sorted(tags_of(self.model, "kind")))
        return _Key(path, key.n_other_kinds + 1, (self.name, "kind"), kinds, n_absent)


def _places(name: str, field: FieldInfo, tree: Tree | None) -> list[_Place]:
    """Return the classes that a section may have.

    A section without ``kind`` is of the kind of its default value, or else of the first class.
    """
    bare, _ = unwrap(field)
    members = [unwrap(member)[0] for member in get_args(bare)] if is_union(bare) else [bare]
    kind = tree if tree is None or not isinstance(tree.value, dict) else tree.find(("kind",))
    selected = getattr(field.default, "kind", None) if kind is None else kind.value
    selected = selected if isinstance(selected, str) else None  # a mistake may be of any type
    is_selected = [len(members) == 1 or selected in tags_of(member, "kind") for member in members]
    is_selected[0] = is_selected[0] or not any(is_selected)
    is_given = tree is not None and tree.value is not None
    return [
        _Place(name, member, chosen, is_given or isinstance(field.default, member))
        for member, chosen in zip(members, is_selected, strict=True)
        if is_model(member)
    ]
