"""What a format of another library is: how its folder becomes a run, and a run its folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from heedful.interop.checkpoint import Checkpoint
from heedful.runs.run import Run


@dataclass(frozen=True)
class ImportedModel:
    """What a folder holds, in heedful's terms.

    Args:
        recipe: of a run that has this model, plain.
        processor: the tokenizers, as the kind of run has them.
        model: with its weights.
        notes: what a person should know of the difference to the source.
    """

    recipe: dict[str, Any]
    processor: Any
    model: nn.Module
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ExportedModel:
    """What a folder is to hold.

    Args:
        config: of config.json.
        tensors: of model.safetensors.
        files: the contents of other files, by their names.
        notes: what a person should know of the difference to the run.
    """

    config: dict[str, Any]
    tensors: Mapping[str, Tensor]
    files: Mapping[str, str | bytes]
    notes: list[str] = field(default_factory=list)


class Format(Protocol):
    """One architecture of another library. Has no state: everything is an argument."""

    name: ClassVar[str]
    """How the command and ``model_type`` in a configuration call it."""

    loaders: ClassVar[Mapping[str, str]]
    """What loads a folder there, by the task of the run; runs of other tasks it cannot hold."""

    def read(self, checkpoint: Checkpoint) -> ImportedModel:
        """All that a folder holds.

        Raises:
            RequestError: heedful cannot express it, or its parts do not fit together.
            DamagedError: a file is damaged.
        """
        ...

    def write(self, run: Run) -> ExportedModel:
        """All that the folder of a run in this format holds.

        Raises:
            RequestError: the format cannot express the run; the message names the key of its recipe.
        """
        ...
