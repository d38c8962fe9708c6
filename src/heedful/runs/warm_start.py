"""Start from another run: copy its weights, freeze parameters, scale learning rates by layer."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from heedful.artifacts.weights import check_finite, named_tensors, read_tensors
from heedful.errors import RequestError
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.patches import GridEmbedding, PatchEmbedding, resize_positions
from heedful.recipes.schema import Recipe, StartConfig
from heedful.tasks.pretrained import HEADS, MappedWeights, frozen_tables, start_folder
from heedful.training.optimizers import MuonConfig

ENCODER = ("source_embedding.", "encoder.")
HIGHEST_RATE = 3e-4
"""Largest peak of a schedule for the weights of an imported model that is not noted."""

TABLES = ("embedding.", "source_embedding.", "target_embedding.")


@dataclass(frozen=True)
class TransferReport:
    """Which weights of another run were used.

    Args:
        fresh: names of newly initialised heads and other parts.
        unused: names of unused parts of the other run.
    """

    fresh: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the text that follows the name of the run in messages."""
        heads = "heads" if all(name.startswith(HEADS) for name in self.fresh) else "parts"
        names = ", ".join(name.removeprefix(HEADS) for name in self.fresh)
        fresh = f"; newly initialised {heads}: {names}" if names else ""
        return fresh + (f"; not used: {', '.join(self.unused)}" if self.unused else "")


MapWeights = Callable[[Mapping[str, torch.Tensor]], MappedWeights]
"""Names and tensors of another run's model -> those of this run's model."""


def take_weights(recipe: Recipe, model: nn.Module, map_weights: MapWeights = MappedWeights) -> TransferReport:
    """Copy the weights of the run that the recipe starts from into the model, by name.

    Args:
        recipe: the recipe; without a start, nothing is copied.
        model: the model to change.
        map_weights: maps the names.

    Returns:
        The newly initialised parts, and the unused ones.

    Raises:
        RequestError: the run's model lacks a part, or has another size of it; or a newly initialised part is
            frozen.
    """
    folder, start = start_folder(recipe), recipe.start
    if folder is None or start is None:
        return TransferReport()
    run_tensors, aliases = read_tensors(folder.weights)
    check_finite(run_tensors, str(folder.weights))
    run_tensors |= {name: run_tensors[original] for name, original in aliases.items()}
    mapped, (parameters, tied) = map_weights(run_tensors), named_tensors(model)
    _refuse_frozen_new_parts(start, mapped)
    tensors = {**mapped.tensors, **dict(_other_grids(mapped.tensors, model))}
    new_names = {
        name for name in parameters if name.startswith(HEADS) and _differs(tensors, name, parameters)
    }
    new_names |= {name for name in parameters if name.startswith(mapped.new_parts)}
    mismatched = [
        name for name in parameters if name not in new_names and _differs(tensors, name, parameters)
    ]
    if mismatched:
        name = mismatched[0]
        actual = "has none" if name not in tensors else f"has {_size(tensors[name])}"
        raise RequestError(
            f"start.run: the model of {folder.path} does not fit: of {name}, {_size(parameters[name])} here, "
            f"it {actual}; remove the sizes of the model, which are those of that run"
        )
    with torch.no_grad():
        for name, tensor in parameters.items():
            if name not in new_names:
                tensor.copy_(tensors[name])
    heads = sorted(_heads(tensors) - _heads([*parameters, *tied]))
    return TransferReport(
        sorted({_part(name) for name in new_names}), [*mapped.dropped, *_unused(tensors, model), *heads]
    )


def rate_note(recipe: Recipe) -> str | None:
    """Return a note if a recipe would train the weights of an imported model as if they were new.

    BERT's authors fine-tune it with 2e-5 to 5e-5 (Devlin et al. 2019, appendix A.3); rates for new weights
    are 20 times as large, and Muon's are larger still.
    """
    folder, start = start_folder(recipe), recipe.start
    if folder is None or start is None or start.frozen == "body" or "imported" not in folder.read_card():
        return None
    muon, peak = isinstance(recipe.optimizer, MuonConfig), getattr(recipe.schedule, "peak", 0.0)
    if not muon and peak <= HIGHEST_RATE:
        return None
    used = f"optimizer.kind={recipe.optimizer.kind} schedule.peak={peak:g}"
    changes = [*(["optimizer.kind=adamw"] if muon else []), "schedule.peak=5e-5"]
    return f"{used}: a rate for new weights, not for those of an imported model; usual is {' '.join(changes)}"


def _part(name: str) -> str:
    """Return the head, or the part of the model, that a tensor belongs to."""
    head = HEADS if name.startswith(HEADS) else ""
    return head + name.removeprefix(head).split(".")[0]


def _heads(names: Iterable[str]) -> set[str]:
    """Return the heads that some of these tensors belong to."""
    return {_part(name).removeprefix(HEADS) for name in names if name.startswith(HEADS)}


def _refuse_frozen_new_parts(start: StartConfig, adopted: MappedWeights) -> None:
    frozen = start.frozen
    if adopted.new_parts and frozen in {"embedding", "body"}:
        parts = " and ".join(name.removesuffix(".") for name in adopted.new_parts)
        raise RequestError(
            f"start.frozen={frozen}: {parts} are newly initialised and must be trained; start.frozen=encoder "
            "freezes what was loaded"
        )


def _unused(tensors: Mapping[str, torch.Tensor], model: nn.Module) -> list[str]:
    """Return the parts of a body that the model does not have, such as further blocks."""
    names = {name for name in tensors if not name.startswith(HEADS)} - model.state_dict().keys()
    return sorted({".".join(name.split(".")[:3]) for name in names})


def _other_grids(tensors: Mapping[str, torch.Tensor], model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the resized position tables of patches or cells, if the run's images have another size."""
    parameters = dict(model.named_parameters())
    for name, part in model.named_modules():
        key = f"{name}.positions.positions.weight"
        if not isinstance(part, PatchEmbedding | GridEmbedding) or key not in tensors.keys() & parameters:
            continue
        table, n_class_tokens = tensors[key], int(getattr(part, "class_token", None) is not None)
        if table.dim() != parameters[key].dim():
            continue
        old, new = (math.isqrt(max(0, len(rows) - n_class_tokens)) for rows in (table, parameters[key]))
        if old**2 == len(table) - n_class_tokens:
            yield key, resize_positions(table, (old, old), (new, new))


def _differs(tensors: Mapping[str, torch.Tensor], name: str, parameters: Mapping[str, torch.Tensor]) -> bool:
    return name not in tensors or tensors[name].shape != parameters[name].shape


def _size(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"


def freeze(recipe: Recipe, model: nn.Module) -> None:
    """Freeze parameters as the recipe requires.

    Raises:
        RequestError: no parameter would be left to train.
    """
    frozen = "none" if recipe.start is None else recipe.start.frozen
    tables = frozen_tables(recipe, model)
    for name, parameter in model.named_parameters():
        in_table, in_head = name.startswith(TABLES), name.startswith(HEADS)
        parameter.requires_grad_(
            not (
                (parameter in tables and tables[parameter] is None)
                or (frozen == "embedding" and in_table)
                or (frozen == "body" and not in_head)
                or (frozen == "encoder" and name.startswith(ENCODER))
            )
        )
    if frozen == "encoder" and all(parameter.requires_grad for parameter in model.parameters()):
        raise RequestError("start.frozen=encoder: this model has no encoder below a decoder")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise RequestError(
            f"start.frozen={frozen}: no parameter would be trained, since the heads of this model have no "
            "weights of their own"
        )


def rate_shares(recipe: Recipe, model: nn.Module) -> dict[nn.Parameter, float]:
    """Return the factor of the learning rate of each parameter whose factor is not 1."""
    share = 1.0 if recipe.start is None else recipe.start.layer_share
    if share == 1.0:
        return {}
    depths: dict[nn.Parameter, int] = {}
    deepest = 0
    for stack in model.modules():
        if isinstance(stack, EncoderStack | DecoderStack):
            n = len(stack.blocks)
            deepest = max(deepest, n)
            for i, block in enumerate(stack.blocks):
                depths |= dict.fromkeys(block.parameters(), n - i)
    if not depths:
        raise RequestError("start.layer_share: not supported by this model, which has no stack of blocks")
    for name, parameter in model.named_parameters():
        if name.startswith(TABLES):
            depths[parameter] = deepest + 1
    return {parameter: share**depth for parameter, depth in depths.items()}
