"""Protocol of a format of another library: conversion from its folder to a run and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from heedful.interop.checkpoint import Checkpoint
from heedful.interop.names import Table, read_weights
from heedful.interop.unread import Harmless
from heedful.recipes.schema import Recipe
from heedful.recipes.trees import Mark, Tree
from heedful.runs.loading import LoadedRun
from heedful.runs.reading import recipe_from
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.tasks.registry import task_for
from heedful.typing import JsonObject


@dataclass(frozen=True)
class ImportedModel:
    """A model read from a folder of another library.

    Args:
        recipe: recipe of the run, as plain data.
        processor: processor of the run, with its tokenizers.
        model: model with its weights.
        notes: differences to the source that the user should know.
    """

    recipe: JsonObject
    processor: TaskProcessor
    model: nn.Module
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ExportedModel:
    """Content of an exported folder.

    Args:
        config: content of config.json.
        tensors: tensors of model.safetensors.
        files: contents of other files by name.
        notes: differences to the run that the user should know.
    """

    config: JsonObject
    tensors: Mapping[str, Tensor]
    files: Mapping[str, str | bytes]
    notes: list[str] = field(default_factory=list)


class Format(Protocol):
    """One architecture of another library; stateless."""

    name: ClassVar[str]
    """Name on the command line and in ``model_type`` of config.json."""

    loaders: ClassVar[Mapping[str, str]]
    """Class that loads an exported folder, by task of the run; other tasks are not supported."""

    harmless: ClassVar[Mapping[str, Harmless]]
    """Keys that change nothing and are not read, by file (`heedful.interop.unread`)."""

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Read a model folder.

        Raises:
            RequestError: heedful does not support the model, or its parts are inconsistent.
            DamagedError: a file is damaged.
        """
        ...

    def obstacles(self, recipe: Recipe, model: nn.Module) -> list[str]:
        """Return all settings of a recipe that the format does not support; each names its key.

        Args:
            recipe: of a task that the format supports.
            model: its model; the weights are not read.
        """
        ...

    def write(self, run: LoadedRun) -> ExportedModel:
        """Return the content of the folder for a run.

        Raises:
            RequestError: the format does not support the run; the message names all recipe keys.
        """
        ...


_FINE_TUNING = {
    # Devlin et al. 2019, appendix A.3: Adam, 2e-5 to 5e-5 for fine-tuning.
    "optimizer": {"kind": "adamw", "weight_decay": 0.01},
    "schedule": {"kind": "linear", "peak": 3e-5, "warmup": 100},
    "training": {"max_updates": 1000},
}


def recipe_of(
    description: str,
    checkpoint: Checkpoint,
    task: JsonObject,
    data: JsonObject,
    training: JsonObject = _FINE_TUNING,
    **sections: JsonObject,
) -> JsonObject:
    """Return a recipe (as plain data) for an imported model, with placeholders for the user's data.

    Args:
        description: description of the model.
        checkpoint: source folder.
        task: section ``task``.
        data: section of one data set, with ``{}`` for its name in strings.
        training: the sections ``optimizer``, ``schedule`` and ``training``, by default for fine-tuning.
        sections: other sections.
    """
    name = checkpoint.path.resolve().name
    return {
        "description": f"{description}, imported from the folder {name}. It was not trained on these data; "
        "replace them with your own to train it further.",
        "task": task,
        "data": {data_set: _with_name(data, data_set) for data_set in ("train", "valid")},
        **sections,
        **training,
    }


def _with_name(value: object, data_set: str) -> object:
    """Replace ``{}`` in the strings of a section."""
    if isinstance(value, dict):
        return {key: _with_name(entry, data_set) for key, entry in value.items()}
    return value.format(data_set) if isinstance(value, str) else value


def imported_model(
    checkpoint: Checkpoint,
    recipe: JsonObject,
    processor: TaskProcessor,
    table: Table,
    tensors: Mapping[str, Tensor],
    notes: list[str],
) -> ImportedModel:
    """Build the model of a recipe with its heads, initialised with a fixed seed, and load its weights.

    Args:
        checkpoint: source folder.
        recipe: recipe, as plain data.
        processor: processor of the run.
        table: names of the tensors.
        tensors: tensors of the folder.
        notes: differences to the source that the user should know.

    Raises:
        RequestError: the tensors do not fit the configuration.
    """
    task, sizes = task_for(recipe_from(Tree.of(recipe, Mark(str(checkpoint.path))))), processor.sizes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = checkpoint.model_of(tensors, lambda: task.build_model(sizes))
    read_weights(table, tensors, model, str(checkpoint.weights))
    return ImportedModel(recipe, processor, model, notes)
