"""Starting from another run: its tokenizers, how it reads images, and its weights under the names used here.

`heedful.runs.warm_start` copies the weights, freezes parameters and scales learning rates.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from heedful.artifacts.run_folder import RunFolder, read_entry, read_text
from heedful.errors import RequestError
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Tree
from heedful.recipes.yaml import read_yaml
from heedful.tasks.images import ImageReader
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer

HEADS = "heads."
"""Prefix of the names of heads, which belong to a task and may be newly initialised."""


@dataclass(frozen=True)
class MappedWeights:
    """The weights of another run's model, under the names that they have in this run's model.

    Args:
        tensors: by name.
        new_parts: name prefixes of parts that the other model lacks, besides heads.
        left: parts of the other model that have no place here, for messages.
    """

    tensors: Mapping[str, torch.Tensor]
    new_parts: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class WarmStart:
    """How recipes of a task start from another run: with the same sections and names, unless overridden."""

    kinds: tuple[str, ...] = ()
    """Kinds of models to start from, besides those of the task's recipes."""

    def tokenizer(self, theirs: Tree) -> Tree:
        """Translate the section ``tokenizer`` of the other run for recipes of this task."""
        return theirs

    def model(self, theirs: Tree) -> Tree:
        """Translate the section ``model`` of the other run for recipes of this task.

        Raises:
            ValueError: if the model has parts that there is no place for.
        """
        return theirs

    def weights(self, recipe: Recipe, tensors: Mapping[str, torch.Tensor]) -> MappedWeights:
        """Map the weights of the other run to those of the recipe's model."""
        return MappedWeights(tensors)


def folder_of(recipe: Recipe) -> RunFolder | None:
    """The run that the recipe starts from, or None.

    Raises:
        RequestError: if there is no finished run.
    """
    if recipe.start is None:
        return None
    folder = RunFolder(recipe.path(recipe.start.run))
    try:
        folder.require()
    except RequestError as error:
        raise RequestError(f"start.run: {error}") from None
    return folder


def tokenizer_of(recipe: Recipe, *names: str) -> Tokenizer | None:
    """The tokenizer of the run that the recipe starts from; None without such a run.

    Args:
        recipe: of the new run.
        names: columns whose tokenizer it may be there; the first that is found is used.

    Raises:
        RequestError: if that run has none of these names.
    """
    folder = folder_of(recipe)
    if folder is None:
        return None
    for path in map(folder.tokenizer, names):
        if path.is_file():
            return Tokenizer.load(path)
    raise RequestError(f"start.run: {folder.path} has no tokenizer of the {names[0]}: its task is another")


def starting_model(recipe: Recipe) -> str | None:
    """The kind of the model of the run that the recipe starts from, or None."""
    folder = folder_of(recipe)
    return None if folder is None else _saved(folder)["model"]["kind"]


def own_tokenizer(recipe: Any, name: str, texts: Iterable[str]) -> Tokenizer:
    """The tokenizer of the run that the recipe starts from, if any; else one trained on these texts."""
    folder = folder_of(recipe)
    if folder is not None and "tokenizer" in _saved(folder):
        found = tokenizer_of(recipe, name)
        assert found is not None
        return found
    return train_tokenizer(recipe.tokenizer.subwords, texts, recipe.tokenizer.text)


def image_reader_of(recipe: Recipe, size: int, channels: int) -> ImageReader | None:
    """How the run that the recipe starts from reads images, at this size; None without such a run.

    Its weights were learned around its own mean; that of other images would not suit them.

    Raises:
        RequestError: if that run reads no images, or with other channels.
    """
    folder = folder_of(recipe)
    if folder is None:
        return None
    if not folder.images.is_file():
        raise RequestError(f"start.run: {folder.path} reads no images: its task is another")
    reader = ImageReader.from_dict(read_entry(folder.images, "reader", dict))
    if reader.channels != channels:
        raise RequestError(f"start.run: {folder.path} reads {reader.channels} channels, not {channels}")
    return replace(reader, size=size, first="")


def _saved(folder: RunFolder) -> Any:
    return read_yaml(read_text(folder.recipe), str(folder.recipe)).data
