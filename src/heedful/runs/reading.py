"""From a tree, a name or a path to a validated recipe of the right task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from heedful.models.registry import preset_trees
from heedful.runs.kinds import KINDS
from heedful.runs.problems import validate
from heedful.runs.recipe import Recipe
from heedful.runs.resolve import resolve
from heedful.runs.trees import Tree, preset_table
from heedful.tasks.registry import TaskConfig


class _OfSomeTask(BaseModel):
    """A recipe of which only the task is looked at."""

    model_config = ConfigDict(strict=True, extra="ignore")

    task: TaskConfig


def recipe_from(tree: Tree) -> Any:
    """The recipe that a tree describes, of the class that its task asks for.

    Raises:
        RequestError: with file and line of every problem.
    """
    task = validate(tree, _OfSomeTask).task
    return validate(tree, KINDS[task.kind].recipe)


def read_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> tuple[Any, Tree]:
    """The validated recipe, and the merged tree it was made of.

    Relative paths of the data start at the folder of the recipe's file; those of a shipped recipe at
    the current folder; unless ``root`` says otherwise.

    Raises:
        RequestError: with file and line of every problem.
    """
    tree = resolve(name_or_path, overrides, presets=preset_table({"model": preset_trees()}))
    recipe: Recipe = recipe_from(tree)
    if recipe.root is None:
        path = Path(name_or_path)
        root = path.resolve().parent if path.suffix in {".yaml", ".yml"} else Path.cwd()
        recipe = recipe.model_copy(update={"root": str(root)})
    return recipe, tree
