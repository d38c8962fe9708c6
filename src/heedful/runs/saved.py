"""The recipe that a run keeps."""

from pathlib import Path
from typing import Any

from heedful.errors import RequestError
from heedful.runs.folder import RunFolder
from heedful.runs.reading import recipe_from
from heedful.runs.trees import Tree
from heedful.runs.yaml import read_yaml


def saved_tree(path: Path | str) -> Tree:
    """The recipe that a run was made from, as a tree."""
    folder = RunFolder(path)
    try:
        text = folder.recipe.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RequestError(f"{folder.path} is not a run: it has no {folder.recipe.name}") from None
    return read_yaml(text, str(folder.recipe))


def saved_recipe(folder: RunFolder) -> Any:
    """The recipe that a run was made from."""
    return recipe_from(saved_tree(folder.path))
