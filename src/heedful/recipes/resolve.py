"""Merge a recipe with its base recipes, presets and overrides into one tree."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import reduce
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

from heedful.artifacts.run_folder import other_runs
from heedful.data.encodings import conversion_hint
from heedful.data.lines import expand as expand_path
from heedful.errors import DataError, RequestError, nearest
from heedful.files import has_suffix, is_unicode
from heedful.recipes import trees
from heedful.recipes.override_paths import with_paths_of_overrides
from heedful.recipes.sizes import (
    SIZES,
    SizeEntry,
    merge_above_sizes,
    size_entries,
    with_entry,
    without_sizes,
)
from heedful.recipes.trees import (
    COMMAND_LINE,
    IN_PYTHON,
    Mark,
    Tree,
    check_indices,
    combine,
    merge,
    with_preset,
)
from heedful.recipes.yaml import describe, read_value, read_yaml
from heedful.typing import JsonMapping

SUFFIXES = (".yaml", ".yml")
"""Suffixes of recipes, in upper or lower case."""

DATA_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".xlsx", ".conll", ".conllu")
"""Suffixes of data, which are not recipes."""

RecipeInput: TypeAlias = str | Path | Tree
"""A recipe: the path of a YAML file, the name of a shipped one, or its settings."""

Overrides: TypeAlias = Sequence[str] | Tree
"""Overrides: ``key=value`` texts, or one layer."""


def parse_override(text: str, next_text: str = "", source: str = COMMAND_LINE) -> tuple[trees.Path, object]:
    """Split ``training.optimizer.lr=5e-4`` into its path and its value.

    An integer in the path is an index of a list, counted from 0: ``data.train.0.path=x``. A value that begins
    with ``[ { ' "`` is parsed as YAML, any other as one plain scalar. ``null`` sets null.

    Args:
        text: the override.
        next_text: the argument after it, which is named as the value if ``=`` is missing.
        source: where it was written, for messages.

    Raises:
        RequestError: if ``=`` is missing, a part of the path is empty, or the value is empty or unreadable.
    """
    if not is_unicode(text):
        raise RequestError(f"{source}: {text!r}: expected UTF-8")
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals and os.path.exists(text):
        raise RequestError(
            f"{source}: {text!r}: expected KEY=VALUE, got the name of a file; to train on it, write "
            f"--data {shlex.quote(text)}"
        )
    if not equals:
        key, _, value = text.partition(":")
        value = value.strip() or (next_text if "=" not in next_text else "") or "VALUE"
        raise RequestError(f"{source}: {text!r}: expected KEY=VALUE; write {key.strip()}={value}")
    if not all(parts) or any(c.isspace() or c in "[]{}\"'" for c in key.strip()):
        raise RequestError(f"{source}: {text!r}: expected a key such as training.seed or data.train.0")
    if not value.strip():
        raise RequestError(f"{source}: {text!r}: the value is missing; write null or '' for none")
    path = tuple(int(part) if part.isascii() and part.isdigit() else part for part in parts)
    return path, read_value(value, f"{source}: {key}")


def overrides_tree(overrides: Iterable[str] | Tree, source: str = COMMAND_LINE) -> Tree:
    """Return all overrides as one layer; their order matters only if two set the same key.

    Args:
        overrides: ``key=value`` texts, or one layer.
        source: where the texts were written, for messages.

    Raises:
        RequestError: one is malformed.
    """
    if isinstance(overrides, Tree):
        return overrides
    mark = Mark(source)
    layer = Tree({}, mark)
    texts = list(overrides)
    for text, next_text in zip_longest(texts, texts[1:], fillvalue=""):
        path, value = parse_override(text, next_text, source)
        if path == ("base",):
            raise RequestError(
                f"{source}: {text!r}: base cannot be overridden; name the other recipe instead"
            )
        layer = combine(layer, _nested(path, value, mark))
    return layer


def overrides_of(settings: Mapping[str, object]) -> Tree:
    """Return overrides that a program gives as one layer: ``{"training.seed": 2, "model": {"n_layers": 3}}``.

    Raises:
        RequestError: if a key is malformed.
    """
    mark = Mark(IN_PYTHON)
    layer = Tree({}, mark)
    for key, value in settings.items():
        name, equals, _ = key.partition("=")
        if equals:
            raise RequestError(
                f"{IN_PYTHON}: {key!r}: expected a key without '='; write {{{name.strip()!r}: {value!r}}}"
            )
        path, _ = parse_override(f"{key}=null", source=IN_PYTHON)
        layer = combine(layer, _nested(path, value, mark))
    return layer


def _nested(path: trees.Path, value: object, mark: Mark) -> Tree:
    """Return a layer that sets one key."""
    return reduce(lambda inner, part: Tree({part: inner}, mark), reversed(path), Tree.of(value, mark))


def shipped_recipes() -> dict[str, Traversable]:
    """Return the recipes of the package, sorted by name (the file's name without its suffix)."""
    folder = files("heedful").joinpath("recipes")
    if not folder.is_dir():
        return {}
    recipes = {
        item.name.removesuffix(".yaml"): item for item in folder.iterdir() if item.name.endswith(".yaml")
    }
    return dict(sorted(recipes.items()))


def resolve(
    recipe: RecipeInput,
    overrides: Overrides = (),
    *,
    presets: Mapping[str, JsonMapping],
    shipped: Mapping[str, Traversable] | None = None,
    size: int | None = None,
) -> Tree:
    """Return one tree from a recipe and everything it builds on.

    Layers, lowest first: the recipe's ``base`` (and that one's base, and so on), the recipe, the
    overrides as one layer. Each is merged by the rules of `heedful.recipes.trees`, and the preset of
    the model is inserted directly below the layer that names it.

    Args:
        recipe: the path of a YAML file (it ends in .yaml or .yml, or has a folder in it), the name of a
            shipped recipe, or the settings of one. A recipe's ``base`` is a path or a name; the path
            is relative to the folder of the file that names it.
        overrides: ``key=value`` texts.
        presets: the settings of each preset of models.
        shipped: recipes by name; those of the package unless given.
        size: number of the entry of the recipe's ``sizes`` that is merged over the recipe that has them;
            None: none.

    Raises:
        RequestError: anything that cannot be found, read or merged, with its file and line.
    """
    layers, override_layer = _layers(recipe, shipped), overrides_tree(overrides)
    tree, sized = Tree({}, layers[-1].mark), _layer_with_sizes([*layers, override_layer])
    for layer in (*layers, override_layer):
        if layer is override_layer:
            _refuse_empty(tree, override_layer)
        tree = merge(tree, without_sizes(layer))
        if layer is sized:
            tree = with_entry(tree, layer, size)
        check_indices(tree)
        tree = with_preset(tree, presets)
    return with_paths_of_overrides(tree, folder_of(recipe))


def sizes_of(recipe: RecipeInput, overrides: Overrides = ()) -> list[SizeEntry]:
    """Return the entries of the recipe's ``sizes``: those of the highest layer that has the key.

    Raises:
        RequestError: if they are malformed.
    """
    layer = _layer_with_sizes([*_layers(recipe), overrides_tree(overrides)])
    return [] if layer is None else size_entries(layer)


def _layer_with_sizes(layers: Sequence[Tree]) -> Tree | None:
    return next((layer for layer in reversed(layers) if SIZES in layer.value), None)


def resolve_without_presets(recipe: RecipeInput, overrides: Overrides = ()) -> Tree:
    """Return the tree of `resolve` but for its presets, which need the models.

    Raises:
        RequestError: anything that cannot be found, read or merged, with its file and line.
    """
    tree = without_sizes(reduce(merge, (*_layers(recipe), overrides_tree(overrides))))
    check_indices(tree)
    return with_paths_of_overrides(tree, folder_of(recipe))


def is_recipe_file(name: str) -> bool:
    """Whether a file is a recipe by its name."""
    return name.lower().endswith(SUFFIXES)


def folder_of(recipe: RecipeInput) -> Path:
    """Return the folder that relative paths of a recipe start from, unless it has a ``root``."""
    path = Path() if isinstance(recipe, Tree) else Path(recipe)
    return path.resolve().parent if is_recipe_file(path.name) else Path.cwd()


def root_of(tree: Tree, recipe: RecipeInput) -> Path:
    """Return the folder that relative paths of a merged recipe start from: its ``root``, or `folder_of` it.

    Raises:
        RequestError: ``root`` names an environment variable that is not set.
    """
    root = tree.find(("root",))
    has_root = root is not None and isinstance(root.value, str)
    return resolve_path(folder_of(recipe), root.value) if root and has_root else folder_of(recipe)


def resolve_path(root: Path, path: str) -> Path:
    """Return the absolute path of ``path``, which a recipe gives relative to ``root``.

    Raises:
        RequestError: it names an environment variable that is not set.
    """
    try:
        return (root / expand_path(path)).resolve()
    except DataError as error:
        raise RequestError(str(error)) from None


def as_one_layer(recipe: RecipeInput) -> Tree:
    """Return the settings of a recipe, merged with those of its bases, with ``sizes``, without presets.

    The entries of ``sizes`` lose what recipes above theirs set, which would be merged over the entries.

    Raises:
        RequestError: anything that cannot be found, read or merged, with its file and line.
    """
    tree = reduce(merge_above_sizes, _layers(recipe))
    if isinstance(recipe, Tree) or "root" in tree.value or folder_of(recipe) == Path.cwd():
        return tree
    root = Tree(str(folder_of(recipe)), tree.mark)
    return replace(tree, value={**tree.value, "root": root})


def _layers(recipe: RecipeInput, shipped: Mapping[str, Traversable] | None = None) -> list[Tree]:
    shipped = shipped_recipes() if shipped is None else shipped
    if isinstance(recipe, Tree):
        return _chain(_Source(recipe.mark.source, recipe, Path()), shipped)
    return _chain(_find(str(recipe), shipped, Path()), shipped)


def _refuse_empty(tree: Tree, overrides: Tree) -> None:
    """Refuse ``training={}``, which would change nothing, because maps are merged.

    Raises:
        RequestError: if an override is an empty map and the recipe has entries there.
    """
    for path, item in overrides.walk():
        current = tree.find(path)
        if current is None or not isinstance(current.value, dict) or not current.value:
            continue
        if path and item.value == {} and path not in trees.NAMED:
            key, entries = trees.dotted(path), ", ".join(map(str, current.value))
            raise RequestError(
                f"{item.mark}: {key}={{}}: has no effect: maps are merged key by key, and the recipe has "
                f"{entries} there; set those, or write {key}=null if the key is optional"
            )


@dataclass(frozen=True)
class _Source:
    """A recipe's file or settings: its name in messages, and the folder that its paths are relative to."""

    name: str
    file: Traversable | Tree
    folder: Path

    @property
    def identity(self) -> str:
        if isinstance(self.file, Tree):
            return self.name
        return str(self.file.resolve()) if isinstance(self.file, Path) else str(self.file)

    def read(self) -> Tree:
        if isinstance(self.file, Tree):
            return self.file
        try:
            return read_yaml(self.file.read_bytes().decode("utf-8-sig"), self.name)
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            hint = conversion_hint(error.object.splitlines(keepends=True), self.name)
            raise RequestError(f"{self.name}:{line}: expected UTF-8 text; {hint}") from None
        except OSError as error:
            raise RequestError(f"{self.name}: cannot be read: {error.strerror}") from None


def _find(name: str, shipped: Mapping[str, Traversable], folder: Path) -> _Source:
    is_path = is_recipe_file(name) or "/" in name or "\\" in name
    if not is_path and name in shipped:
        return _Source(shipped[name].name, shipped[name], folder)
    path = folder / os.path.expanduser(name)  # an unknown user is left unchanged
    if path.is_dir():
        raise RequestError(
            f"{path}: is a folder, not a recipe; give a .yaml file, or the name of a shipped recipe "
            "('heedful recipes' lists them)"
        )
    if path.is_file() and has_suffix(path.name, *DATA_SUFFIXES):
        raise RequestError(
            f"{path}: is data, not a recipe; train a recipe on it, for labels of texts for example: "
            f"heedful train my-own-labels --data {shlex.quote(name)} --column text=NAME --column label=NAME "
            "(in Python, the arguments data and columns of heedful.train)"
        )
    if path.is_file() and not is_path:
        of_json = "JSON is valid YAML: " if path.suffix.lower() == ".json" else ""
        raise RequestError(
            f"{path}: a recipe must be a .yaml file ({of_json}rename it to {path.with_suffix('.yaml').name})"
        )
    if not is_path:
        names = ", ".join(shipped) or "none"
        raise RequestError(
            f"unknown recipe {name!r}{nearest(name, shipped)}; shipped recipes: {names}; "
            "the name of a file must end in .yaml"
        )
    if not path.is_file():
        if not is_recipe_file(name):
            raise RequestError(f"{path}: no such recipe or run{other_runs(path)}")
        raise RequestError(f"{path}: no such file{_similar_recipe(path)}")
    return _Source(str(path), path, path.parent)


def _similar_recipe(path: Path) -> str:
    """Return a suggestion of a recipe in the same folder; empty if none has a similar name."""
    names: dict[str, str] = {}
    with suppress(OSError):
        names = {file.stem: file.name for file in path.parent.iterdir() if is_recipe_file(file.name)}
    similar = get_close_matches(path.stem, names, n=1)
    return f" (did you mean {names[similar[0]]!r}?)" if similar else ""


def _chain(source: _Source, shipped: Mapping[str, Traversable]) -> list[Tree]:
    """Return the recipe and its bases, the lowest base first, without their ``base`` keys."""
    layers: list[Tree] = []
    names: dict[str, str] = {}
    while True:
        tree = source.read()
        names[source.identity] = source.name
        # A recipe's expected scores are not inherited.
        dropped_keys = {"base", "expected"} if layers else {"base"}
        kept_entries = {key: item for key, item in tree.value.items() if key not in dropped_keys}
        layers.insert(0, replace(tree, value=kept_entries))
        if "base" not in tree.value:
            return layers
        source = _base(tree.value["base"], shipped, source.folder)
        if source.identity in names:
            cycle = " -> ".join((*names.values(), source.name))
            raise RequestError(f"{tree.value['base'].mark}: base: circular: {cycle}")


def _base(base: Tree, shipped: Mapping[str, Traversable], folder: Path) -> _Source:
    if not isinstance(base.value, str):
        raise RequestError(f"{base.mark}: base: expected a recipe's name or path, got {describe(base.data)}")
    try:
        return _find(base.value, shipped, folder)
    except RequestError as error:
        raise RequestError(f"{base.mark}: base: {error}") from None
