"""Settings of a recipe that depend on the amount of training data: its list ``sizes``.

    sizes:
      - {max_rows: 20000, model: {n_layers: 2}, training: {max_updates: 1000}}
      - {training: {max_updates: 4000}}

The first entry that the training data fit is merged over the recipe that has the list; recipes that build on
it, and overrides, are merged over the result. An entry without a limit fits any data.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import PositiveInt, ValidationError

from heedful.config import Config
from heedful.errors import RequestError
from heedful.recipes.trees import Tree, merge
from heedful.recipes.yaml import describe

SIZES = "sizes"
"""The key of the list in a recipe."""


class Limits(Config):
    """For which training data an entry holds.

    Args:
        max_rows: maximum number of rows (pairs of texts, images, documents …).
        max_characters: maximum number of characters of all texts.
    """

    max_rows: PositiveInt | None = None
    max_characters: PositiveInt | None = None


@dataclass(frozen=True)
class SizeEntry:
    """An entry of the list, without its limits: settings, and where they are."""

    limits: Limits
    settings: Tree


def size_entries(layer: Tree) -> list[SizeEntry]:
    """Return the entries of a layer of a recipe; none if it has no list, or null.

    Raises:
        RequestError: if the list, an entry or a limit is malformed.
    """
    sizes = layer.value.get(SIZES)
    if sizes is None or sizes.value is None:
        return []
    if not isinstance(sizes.value, list):
        raise RequestError(f"{sizes.mark}: {SIZES}: expected a list of maps, got {describe(sizes.data)}")
    return [_entry(number, entry) for number, entry in enumerate(sizes.value)]


def _entry(number: int, entry: Tree) -> SizeEntry:
    if not isinstance(entry.value, dict):
        found = describe(entry.data)
        raise RequestError(f"{entry.mark}: {SIZES}.{number}: expected a map of settings, got {found}")
    keys = Limits.model_fields.keys()
    limits = {key: item.data for key, item in entry.value.items() if key in keys}
    try:
        checked = Limits.model_validate(limits)
    except ValidationError as error:
        key = error.errors()[0]["loc"][0]
        message = f"{SIZES}.{number}.{key}: expected a number of at least 1, got {describe(limits[key])}"
        raise RequestError(f"{entry.value[key].mark}: {message}") from None
    settings = {key: item for key, item in entry.value.items() if key not in keys}
    return SizeEntry(checked, Tree(settings, entry.mark))


def without_sizes(layer: Tree) -> Tree:
    """Return a layer without its list."""
    return replace(layer, value={key: item for key, item in layer.value.items() if key != SIZES})


def with_entry(tree: Tree, layer: Tree, number: int | None) -> Tree:
    """Merge the settings of an entry of ``layer`` over ``tree``; None: of none."""
    return tree if number is None else merge(tree, size_entries(layer)[number].settings)


def merge_above_sizes(recipe: Tree, changes: Tree) -> Tree:
    """Merge changes over a recipe, and over the entries of its ``sizes``: these lose the keys that change."""
    merged = merge(recipe, changes)
    if SIZES in changes.value or SIZES not in recipe.value or not isinstance(recipe.value[SIZES].value, list):
        return merged
    sizes = recipe.value[SIZES]
    entries = [_without(entry, changes) for entry in sizes.value]
    return replace(merged, value={**merged.value, SIZES: replace(sizes, value=entries)})


def _without(entry: Tree, changes: Tree) -> Tree:
    """Return settings without those that ``changes`` replace: of maps with a kind or preset, all of them."""
    if not isinstance(entry.value, dict):
        return entry
    kept = {}
    for key, item in entry.value.items():
        change = changes.value.get(key)
        if change is None:
            kept[key] = item
        elif isinstance(change.value, dict) and not change.value.keys() & {"kind", "preset"}:
            kept[key] = _without(item, change)
    return replace(entry, value=kept)


@dataclass(frozen=True)
class Amount:
    """The amount of training data; it may be only as much as exceeds all limits."""

    rows: int
    characters: int


def fitting_entry(entries: Sequence[SizeEntry], amount: Amount) -> int | None:
    """Return the number of the first entry that the training data fit, or None."""
    for number, entry in enumerate(entries):
        pairs = (entry.limits.max_rows, amount.rows), (entry.limits.max_characters, amount.characters)
        if all(limit is None or count <= limit for limit, count in pairs):
            return number
    return None


def count_rows(rows: Iterable[Mapping[str, object]], entries: Sequence[SizeEntry]) -> Amount:
    """Count rows and their characters, until they exceed the limits of all entries that have one."""
    limited = [entry for entry in entries if entry.limits != Limits()]
    n_rows = n_characters = 0
    for row in rows:
        n_rows += 1
        n_characters += sum(len(text) for text in row.values() if isinstance(text, str))
        amount = Amount(n_rows, n_characters)
        if fitting_entry(limited, amount) is None:
            return amount
    return Amount(n_rows, n_characters)
