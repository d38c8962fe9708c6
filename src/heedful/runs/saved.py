"""The recipe that a run keeps."""

from pathlib import Path
from typing import Any

from heedful.artifacts.run_folder import RunFolder, read_text
from heedful.errors import RequestError
from heedful.recipes.trees import Tree
from heedful.recipes.yaml import read_yaml
from heedful.runs.reading import recipe_from


def saved_tree(path: Path | str) -> Tree:
    """The recipe that a run was made from, as a tree."""
    folder = RunFolder(path)
    if not folder.recipe.exists():
        raise RequestError(f"{folder.path} is not a run: it has no {folder.recipe.name}")
    return read_yaml(read_text(folder.recipe), str(folder.recipe))


def saved_recipe(folder: RunFolder) -> Any:
    """The recipe that a run was made from."""
    return recipe_from(saved_tree(folder.path))
