"""Whether a model can be trained on this machine at all: asked before any work is done."""

from collections.abc import Sequence

import torch
from torch import nn

from heedful.errors import RequestError
from heedful.memory import gibibytes, machine_memory, room_for
from heedful.models.registry import SIZES
from heedful.runs.kinds import kind_of
from heedful.runs.recipe import Recipe
from heedful.runs.starting import freeze
from heedful.text.specials import SPECIALS
from heedful.training.optimizers import fewest_states

TOO_LARGE = "model: does not fit in memory"
WAY_OUT = "lower its sizes (heedful describe tells what it takes)"


def fewest_sizes(recipe: Recipe) -> tuple[int, ...]:
    """The smallest sizes that any data could give the recipe's model."""
    return kind_of(recipe).sizes(recipe, (len(SPECIALS) + 1,) * len(SIZES[recipe.model.kind]))


def require_room(recipe: Recipe, sizes: Sequence[int], device: torch.device) -> None:
    """Refuse a model of which not even what every training keeps has room on the device.

    Args:
        recipe: of the training.
        sizes: of the codec, as `Kind.model` takes them.
        device: where it would be trained.

    Raises:
        RequestError: it has none; the message has both numbers.
    """
    try:
        with torch.device("meta"), room_for(f"{TOO_LARGE}; {WAY_OUT}"):
            model = kind_of(recipe).model(recipe, sizes)
    except ValueError:
        return  # whoever builds it tells
    freeze(recipe, model)
    needed, there = least_memory(recipe, model), memory_of(device)
    if there is not None and needed > there:
        whose = "this machine" if device.type == "cpu" else "the GPU"
        raise RequestError(
            f"{TOO_LARGE}: its weights, their gradients and the optimizer's state take at least "
            f"{gibibytes(needed)}, and {whose} has {gibibytes(there)}; {WAY_OUT}"
        )


def least_memory(recipe: Recipe, model: nn.Module) -> int:
    """Bytes that training holds between any two updates.

    Weights, and for each that is trained its gradient and what the optimizer keeps of it; no activations.
    """
    states = fewest_states(recipe.optimizer)
    return sum(
        p.numel() * p.element_size() * (2 + states if p.requires_grad else 1) for p in model.parameters()
    )


def memory_of(device: torch.device) -> int | None:
    """Bytes that the device has; None where that is not known."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return machine_memory()
