"""Check before training that the model and the widest micro-batch fit in memory."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from heedful.data.report import Longest
from heedful.errors import RequestError
from heedful.memory import gibibytes, machine_memory, memory_errors_as
from heedful.models.base import Model
from heedful.models.registry import SIZES
from heedful.recipes.schema import Recipe
from heedful.runs.warm_start import freeze, rate_shares
from heedful.tasks.pretrained import check_vectors
from heedful.tasks.registry import task_for
from heedful.text.specials import SPECIALS
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import build_optimizer, fewest_states
from heedful.training.update import PlannedData

TOO_LARGE = "model: does not fit in memory"
REMEDY = "lower its sizes (`heedful describe` shows what it takes)"


def fewest_sizes(recipe: Recipe) -> tuple[int, ...]:
    """Return the smallest sizes that any data could give the recipe's model."""
    return task_for(recipe).expected_sizes((len(SPECIALS) + 1,) * len(SIZES[recipe.model.kind]))


def check_model(recipe: Recipe, device: torch.device, *, is_new: bool) -> None:
    """Refuse settings that do not fit the model, before the data are read: it is built without memory.

    Args:
        recipe: the recipe.
        device: the training device.
        is_new: whether the model is newly initialised, not restored from a checkpoint.

    Raises:
        RequestError: with the key. Memory is too small, the objective, optimizer or learning rates need
            a part that the model lacks, or pretrained vectors do not suit its embeddings.
    """
    model = require_memory(recipe, fewest_sizes(recipe), device)
    try:
        task_for(recipe).auxiliary_losses(model)
    except ValueError as error:
        raise RequestError(f"model: {error}") from None
    build_optimizer(recipe.optimizer, model, rate_shares(recipe, model))
    if is_new:
        check_vectors(recipe, model)


def require_memory(recipe: Recipe, sizes: Sequence[int], device: torch.device) -> Model:
    """Refuse a model whose weights, gradients and optimizer state do not fit on the device.

    This is checked before the data are read, with `fewest_sizes`, and again with the sizes that they
    determine. Either takes tenths of a second.

    Args:
        recipe: the recipe.
        sizes: sizes of the processor (`Task.build_model`).
        device: the training device.

    Returns:
        The model, without memory.

    Raises:
        RequestError: it does not fit (the message has both numbers), or the sizes do not suit the
            configuration.
    """
    try:
        with torch.device("meta"), memory_errors_as(f"{TOO_LARGE}; {REMEDY}"):
            model = task_for(recipe).build_model(sizes)
    except ValueError as error:
        raise RequestError(f"model: {error}") from None
    freeze(recipe, model)
    needed, available = least_memory(recipe, model), machine_memory()
    if device.type == "cuda":
        available = torch.cuda.get_device_properties(device).total_memory
    if available is not None and needed > available:
        owner = "this machine" if device.type == "cpu" else "the GPU"
        raise RequestError(
            f"{TOO_LARGE}: its weights, their gradients and the optimizer's state take at least "
            f"{gibibytes(needed)}, and {owner} has {gibibytes(available)}; {REMEDY}"
        )
    return model


def least_memory(recipe: Recipe, model: nn.Module) -> int:
    """Return the bytes that training holds between two updates.

    These are the weights, and gradient and optimizer state of each trained one; no activations.
    """
    states = fewest_states(recipe.optimizer)
    return sum(
        p.numel() * p.element_size() * (2 + states if p.requires_grad else 1) for p in model.parameters()
    )


def too_wide(recipe: Recipe, longest: Longest | None, content: str) -> str:
    """Return the error message for a micro-batch that does not fit in memory.

    The longest row is named first if it is longer than an update.

    Args:
        recipe: the recipe.
        longest: the longest training row, if known.
        content: description of the content of the micro-batch.
    """
    task_info, budget = task_for(recipe).info, recipe.training.tokens_per_update
    message = (
        f"the widest micro-batch ({content}) does not fit in memory; lower training.tokens_per_update, raise "
        f"training.accumulate, or {task_info.memory_advice}"
    )
    if longest is None or not task_info.unlimited_length:
        return message
    if longest.tokens <= budget:
        return f"{message} ({longest})"
    return (
        f"{longest}, more than training.tokens_per_update ({budget:,}): set data.filter.max_length "
        f"(data.filter.too_long: truncate cuts such rows, drop leaves them out); {message}"
    )


def rehearse(
    module: ModelWithLoss,
    data: PlannedData,
    n_parts: int,
    device: torch.device,
    message_for: Callable[[str], str],
) -> None:
    """Run the widest micro-batch forward and backward, so that memory runs out before the training or never.

    It is the widest one of the update that is the widest before it is split into ``n_parts``. ``message_for``
    returns the error message for a description of its content (`too_wide`).
    """

    def rectangle(samples: np.ndarray | Sequence[int]) -> int:
        return len(samples) * int(data.lengths[samples].max()) if len(samples) else 0

    part = max(data.split(max(data.epoch(0), key=rectangle).tolist(), n_parts), key=rectangle)
    batch = data.collate(part, 0).to(device)
    # Running statistics are put back; tables that only grew (positions) may stay.
    saved_state = {name: value.clone() for name, value in module.model.state_dict().items()}
    with memory_errors_as(message_for(f"{len(part)} sequences of up to {data.lengths[part].max()} tokens")):
        module(batch, module.counts(batch))[0].backward()
    module.model.load_state_dict(saved_state)
    module.model.zero_grad(set_to_none=True)
