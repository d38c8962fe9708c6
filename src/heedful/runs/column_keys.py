"""Columns that a user names: their keys are the task's names of columns, the same for every verb."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heedful.artifacts.run_folder import RunFolder
from heedful.data.memory import MemorySource
from heedful.data.sources import list_columns
from heedful.errors import HeedfulError, RequestError, nearest
from heedful.models.registry import preset_trees
from heedful.recipes.resolve import Overrides, RecipeInput, as_one_layer, resolve
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Mark, Tree
from heedful.runs.reading import recipe_from, saved_recipe
from heedful.runs.required_files import source_from
from heedful.tasks.registry import task_for
from heedful.tasks.task_info import Columns, reads


@dataclass(frozen=True)
class ColumnKeys:
    """The keys that name columns for a verb.

    Args:
        task: the kind of the task.
        keys: the keys, in the order in which names without keys are theirs; empty: unknown.
        listed: those that every file has, for messages; empty: all.
        others: keys of the task that this verb does not read.
        aliases: further keys, and the ones that they stand for.
        names_alone: whether a name without a key is that of the next key; in a training, text and label are
            too easily exchanged.
    """

    task: str
    keys: tuple[str, ...]
    listed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    names_alone: bool = True

    @classmethod
    def of_task(cls, task: str, columns: Columns) -> "ColumnKeys":
        """Return the keys of rows."""
        return cls(task, columns.names, tuple(dict.fromkeys((*columns.required, *columns.training))))

    @classmethod
    def of_inputs(cls, task: str, columns: Columns, rows: Columns) -> "ColumnKeys":
        """Return the keys of inputs, and those of rows as others."""
        keys = (*columns.inputs, *columns.optional_inputs)
        aliases = {name: key for key, name in columns.trained_as.items() if key in keys and name not in keys}
        others = tuple(name for name in rows.names if name not in keys and name not in aliases)
        return cls(task, keys, columns.inputs, others, aliases)

    def known(self, key: str) -> str | None:
        """Return the key that a text is, or stands for; None if it is none."""
        return key if key in self.keys else self.aliases.get(key)

    @property
    def read(self) -> str:
        """What the task reads, for messages."""
        return reads(self.task, self.listed or self.keys)

    def check(self, names: Mapping[str, str] | None) -> None:
        """Check the keys of the argument ``columns``.

        Raises:
            RequestError: one does not exist.
        """
        for key, name in (names or {}).items() if self.keys else ():
            if self.known(key) is None:
                meant = nearest(key, self.keys)
                if name in self.keys:
                    meant = f"; columns maps names of the task to names in the rows: {{{name!r}: {key!r}}}"
                raise RequestError(f"columns: unknown key {key!r}; {self.read}{meant}")


def keys_of_recipe(recipe: RecipeInput, overrides: Overrides = ()) -> ColumnKeys:
    """Return the keys of the task of a recipe, with any data; if it is not valid, those of its own data."""
    tree = as_one_layer(recipe)
    task = tree.find(("task", "kind"))
    kind = "" if task is None else str(task.data)
    try:
        settings = recipe_from(resolve(_without_data(tree), overrides, presets=preset_trees()))
    except HeedfulError:  # reading the recipe reports it
        trained = tree.find(("data", "train"))
        source = None if trained is None else source_from(trained)
        columns = getattr(source, "columns", None) or getattr(source, "fixed_columns", ())
        return ColumnKeys(kind, tuple(dict.fromkeys((*columns, *list_columns(source)))))
    keys = ColumnKeys.of_task(settings.task.kind, task_for(settings).columns)
    return replace(keys, names_alone=len(keys.listed) == 1)


def _without_data(tree: Tree) -> Tree:
    """Return the settings of a recipe with rows that do not exist in place of its data sets."""
    rows = MemorySource(name="rows", columns={}).model_dump(mode="json")
    data = tree.find(("data",))
    sets = {"train", "valid", "test", "split"}
    kept = data.value if data is not None and isinstance(data.value, dict) else {}
    others = {key: item for key, item in kept.items() if key not in sets}
    given = Tree.of({"train": rows, "valid": rows}, Mark("data"))
    return Tree({**tree.value, "data": Tree({**others, **given.value}, tree.mark)}, tree.mark)


def keys_of_run(folder: RunFolder) -> ColumnKeys:
    """Return the keys of the task of a run.

    Raises:
        RequestError: the folder is not a run.
    """
    settings: Recipe = saved_recipe(folder)
    return ColumnKeys.of_task(settings.task.kind, task_for(settings).columns)
