"""Protocol of a format of another library: conversion from its folder to a run and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from heedful.interop.checkpoint import Checkpoint
from heedful.runs.run import Run
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
    processor: Any
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

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """Read a model folder.

        Raises:
            RequestError: heedful does not support the model, or its parts are inconsistent.
            DamagedError: a file is damaged.
        """
        ...

    def write(self, run: Run) -> ExportedModel:
        """Return the content of the folder for a run.

        Raises:
            RequestError: the format does not support the run; the message names the recipe key.
        """
        ...
