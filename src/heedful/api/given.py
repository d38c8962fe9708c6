"""Arguments that a program gives in place of files: recipes and overrides as mappings, data as rows."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from heedful.api.checks import check_sets
from heedful.artifacts.run_folder import RunFolder
from heedful.config import Config
from heedful.data.delimited import TsvSource
from heedful.data.lines import HeaderError, Source
from heedful.data.memory import HeldRows, MemorySource, RowsLike
from heedful.data.sources import SourceConfig, list_columns
from heedful.data.text import TextSource
from heedful.data.user_files import user_source
from heedful.data.user_tables import field_names, is_quoted_tsv
from heedful.errors import DataError, RequestError, nearest, type_name
from heedful.files import has_suffix
from heedful.recipes.resolve import RecipeInput, as_one_layer, overrides_of
from heedful.recipes.schema import Recipe
from heedful.recipes.settings import Settings as Settings
from heedful.recipes.settings import plain
from heedful.recipes.trees import Mark, Tree
from heedful.runs.prepare import check_rows
from heedful.runs.required_files import source_from

DataLike: TypeAlias = Mapping[str, RowsLike]
"""Rows, or the paths of files, by the name of the set: ``train``, ``valid``, and any test sets."""

SETS = ("train", "valid", "test", "split")
"""Keys of the section ``data`` that sets given in Python replace."""

VALID_SHARE = 0.1
"""The share of the training rows that validate a training without validation data."""


RecipeLike: TypeAlias = str | Path | Settings | Recipe
"""The path of a YAML file, the name of a shipped recipe, settings, or the recipe of a run."""


def recipe_input(recipe: RecipeLike) -> RecipeInput:
    """Return a recipe as the functions of `heedful.recipes` take it.

    Raises:
        RequestError: it is none.
    """
    if isinstance(recipe, str | Path):
        return recipe
    settings = recipe.model_dump(mode="json") if isinstance(recipe, Recipe) else recipe
    if not isinstance(settings, Mapping):
        raise RequestError(
            f"recipe: expected a name, the path of a YAML file, or settings, got {type_name(settings)}; of a "
            "run, give run.recipe"
        )
    return Tree.of(plain(settings, "recipe"), Mark("recipe"))


def overrides_layer(overrides: Settings | None) -> Tree:
    """Return overrides as one layer; keys are dotted or nested."""
    return overrides_of(plain(overrides or {}, "overrides"))


def with_data(
    recipe: RecipeInput, data: DataLike, columns: Mapping[str, str] | None
) -> tuple[RecipeInput, list[HeldRows]]:
    """Return a recipe with rows in place of its data sets, and the rows, which must be held while it is used.

    Raises:
        RequestError: there are no training rows, they are not rows, or the recipe's ``data`` is no dict.
        DataError: a file does not exist, or does not have the columns.
    """
    check_sets(data)
    data = _with_valid(data)
    if "train" not in data:
        raise RequestError(f"data: expected a key 'train', got {', '.join(map(repr, data)) or 'none'}")
    tree = as_one_layer(recipe)
    section = tree.find(("data",)) or Tree({}, tree.mark)
    if not isinstance(section.value, dict):
        raise RequestError(
            f"{section.mark}: data: expected a dict of settings, got {section.data!r}; remove it, since the "
            "argument data replaces it"
        )
    kept = {key: item for key, item in section.value.items() if key not in SETS}
    trained = section.find(("train",))
    like = None if trained is None else source_from(trained)
    paths = {name: paths_in(rows) for name, rows in data.items()}
    held = {name: HeldRows(rows, name) for name, rows in data.items() if not paths[name]}
    naming = _checked_naming(held, like, columns)
    by_name = {
        name: memory_source(held[name], naming) if name in held else _file_source(given, name, like, columns)
        for name, given in paths.items()
    }
    sources: dict[str, Any] = {"train": by_name.pop("train")}
    if "valid" in by_name:
        sources["valid"] = by_name.pop("valid")
    else:
        sources["split"] = {"valid": VALID_SHARE}
    sources["test"] = by_name
    given = Tree.of(sources, Mark("data"))
    return replace(tree, value={**tree.value, "data": Tree({**kept, **given.value}, section.mark)}), [
        *held.values()
    ]


def _with_valid(data: DataLike) -> DataLike:
    """Return data in which the set that other libraries call validation or dev is ``valid``.

    Raises:
        RequestError: there is none, but a name that is almost the same.
    """
    if "valid" in data:
        return data
    other = next((name for name in ("validation", "val", "dev") if name in data), None)
    if other is None:
        if misspelt := [name for name in data if get_close_matches(name, ["valid"], cutoff=0.75)]:
            raise RequestError(f"data: {misspelt[0]!r} would be a test set; the validation set is 'valid'")
        return data
    return {"valid" if name == other else name: rows for name, rows in data.items()}


def hold_again(recipe: Recipe, folder: RunFolder, data: DataLike) -> list[HeldRows]:
    """Hold rows under the names that a saved recipe has for them.

    Raises:
        RequestError: the recipe has no rows of this name that a program gave.
        DataError: they are not the rows that the run was started with.
    """
    config = recipe.data
    check_sets(data)
    data = _with_valid(data)
    names = {name.rpartition("-")[0]: name for name in memory_names(config)}
    if unknown := [label for label in data if label not in names]:
        known = f"expected {', '.join(names)}" if names else "all its data are files"
        raise RequestError(f"data: the run has no rows {unknown[0]!r} that were given in Python; {known}")
    held = [HeldRows(rows, label, names[label]) for label, rows in data.items()]
    for part in ("train", "valid"):
        needed = {*memory_names(getattr(config.sets, part))}
        if needed and needed <= {rows.name for rows in held}:
            check_rows(recipe, folder, part)
    return held


def rows_source(
    rows: RowsLike, like: SourceConfig, task: Sequence[str], columns: Mapping[str, str] | None
) -> tuple[SourceConfig, HeldRows]:
    """Return rows as a source, with the names of columns of another source if the rows have these.

    Args:
        rows: the rows.
        like: the other source.
        task: the names of the task's columns.
        columns: given names.
    """
    held = HeldRows(rows, "data")
    return MemorySource(name=held.name, columns=dict(_naming(held, like, columns, task))), held


def memory_source(held: HeldRows, columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the source of rows as a recipe has it."""
    return {"kind": "memory", "name": held.name, "columns": dict(columns)}


def _file_source(
    paths: Sequence[Path], label: str, like: SourceConfig | None, columns: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the source of a user's files as a recipe has it.

    Raises:
        RequestError: the columns that the task reads are not known.
        DataError: a file does not exist, or does not have the columns.
    """
    names = {**(columns or {})}
    known = dict.fromkeys((*columns_of(like), *list_columns(like), *names))
    needs_columns = not (isinstance(like, TextSource) or paths[0].is_dir())
    if needs_columns and not known:
        raise RequestError(f"columns: expected the names in {paths[0]} of the columns that the task reads")
    if isinstance(like, TsvSource) and like.separator == "\t":
        if has_suffix(paths[0].name, ".csv"):
            like = None  # its numbered columns are those of another format
        elif paths[0].is_file() and is_quoted_tsv(paths[0]):
            like = like.model_copy(update={"quotes": True})
    try:
        source = user_source(paths, list(known), like, names)
    except HeaderError:
        raise
    except DataError as error:
        raise DataError(f"data.{label}: {error}") from None
    settings: dict[str, Any] = source.model_dump(mode="json")
    return settings


def columns_of(source: object) -> Collection[str]:
    """Return the columns that a source has in its settings, or always; empty if it says nothing of them."""
    fixed = source.fixed_columns if isinstance(source, Source) else ()
    return [*(getattr(source, "columns", None) or fixed)]


def paths_in(data: object) -> list[Path]:
    """Return the paths that data are; empty if they are rows or nothing."""
    items = [data] if isinstance(data, str | Path) else data
    if isinstance(items, list | tuple) and all(isinstance(item, str | Path) for item in items):
        return [Path(item).expanduser() for item in items]
    return []


def _checked_naming(
    held: Mapping[str, HeldRows], source: SourceConfig | None, columns: Mapping[str, str] | None
) -> Mapping[str, str]:
    """Return the name in the rows of each column, that of the training rows if these are in memory.

    Raises:
        RequestError: there are no rows, or the names are the wrong way round.
    """
    fields = {label: rows.fields() for label, rows in held.items()}
    if empty := [label for label, names in fields.items() if not names]:
        raise RequestError(f"data[{empty[0]!r}]: no rows")
    if not held:
        return {}
    label = "train" if "train" in held else next(iter(held))
    _check_columns(label, fields[label], {*columns_of(source)}, columns or {})
    return _naming(held[label], source, columns)


def _check_columns(label: str, names: Collection[str], task: set[str], columns: Mapping[str, str]) -> None:
    """Check that the rows have the columns that were named.

    Args:
        label: the data set, for messages.
        names: the names in its rows.
        task: names of columns of the task, as far as they are known.
        columns: maps names of the task to names in the rows.

    Raises:
        RequestError: a name is not in the rows, or the names are the wrong way round.
    """
    missing = next((name for name in columns.values() if name not in names), None)
    if missing is None:
        return
    message = f"columns: data[{label!r}] has no column {missing!r}{nearest(missing, names)}"
    if {*columns} <= {*names} and {*columns.values()} <= task:
        turned = {name: column for column, name in columns.items()}
        raise RequestError(f"{message}; columns maps names of the task to names in the rows: {turned}")
    raise RequestError(f"{message}; it has {', '.join(map(repr, names))}")


def _naming(
    held: HeldRows,
    source: SourceConfig | None,
    columns: Mapping[str, str] | None,
    task: Sequence[str] = (),
) -> Mapping[str, str]:
    """Return the name in the rows of each column; empty: all under their own names.

    Without given names, they are those of a source, if the rows have all of these. Given names are completed:
    the other columns of the source and of the task have the source's name or their own, if the rows have it.
    """
    naming, fields = {} if source is None else field_names(source), held.fields()
    if not columns:
        return naming if naming and set(naming.values()) <= set(fields) else {}
    others = {*fields} - {*columns.values()}
    # Of some sources, the columns have only numbers of fields.
    own = {column: column for column in (*columns_of(source), *task) if column in others}
    of_source = {column: name for column, name in naming.items() if name in others}
    return {**own, **of_source, **columns}


def memory_names(source: object) -> Iterator[str]:
    """Yield the names of all rows in memory that a section or source refers to."""
    if isinstance(source, MemorySource):
        yield source.name
    elif isinstance(source, Mapping):
        for item in source.values():
            yield from memory_names(item)
    elif isinstance(source, Sequence) and not isinstance(source, str):
        for item in source:
            yield from memory_names(item)
    elif isinstance(source, Config):
        for field in type(source).model_fields:
            yield from memory_names(getattr(source, field))
