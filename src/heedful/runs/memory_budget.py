"""Check before training that the model and the widest micro-batch fit in memory."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, takewhile

import numpy as np
import torch
from torch import nn

from heedful.data.batch import Batch
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


def too_wide(recipe: Recipe, longest: Longest | None, content: str, factor: int | None = None) -> str:
    """Return the error message for a micro-batch that does not fit in memory.

    The longest row is named first if it is longer than an update.

    Args:
        recipe: the recipe.
        longest: the longest training row, if known.
        content: description of the content of the micro-batch.
        factor: how many times as many micro-batches fit; None: unknown, or none do.
    """
    task_info, training = task_for(recipe).info, recipe.training
    budget = training.tokens_per_update
    remedy = f"lower training.tokens_per_update, raise training.accumulate, or {task_info.memory_advice}"
    if factor is not None:
        remedy = (
            f"training.accumulate={factor * training.accumulate} fits; or lower "
            f"training.tokens_per_update, or {task_info.memory_advice}"
        )
    message = f"the widest micro-batch ({content}) does not fit in memory; {remedy}"
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
    message_for: Callable[[str, int | None], str],
) -> None:
    """Run the widest micro-batch forward and backward, so that memory runs out before the training or never.

    It is the widest one of the update that is the widest before it is split into ``n_parts``. If memory runs
    out, two, four … times as many parts are tried.

    Args:
        module: the model and its loss.
        data: the training data.
        n_parts: number of parts of an update.
        device: where the model is.
        message_for: returns the error message for a description of the micro-batch, and how many times as
            many parts fit (`too_wide`).

    Raises:
        RequestError: memory is insufficient.
    """
    update = max(data.epoch(0), key=partial(_rectangle, data)).tolist()
    content = _overflowing(module, data, data.split(update, n_parts), device)
    if content is None:
        return
    factors = takewhile(lambda factor: factor * n_parts < 2 * len(update), (2**k for k in count(1)))
    fitting = (
        factor
        for factor in factors
        if _overflowing(module, data, data.split(update, factor * n_parts), device) is None
    )
    raise RequestError(message_for(content, next(fitting, None)))


def _rectangle(data: PlannedData, samples: np.ndarray | Sequence[int]) -> int:
    """Return the number of tokens of a batch of these samples, with padding."""
    return len(samples) * int(data.lengths[samples].max()) if len(samples) else 0


def _overflowing(
    module: ModelWithLoss, data: PlannedData, parts: Sequence[Sequence[int]], device: torch.device
) -> str | None:
    """Run the widest of these micro-batches; return a description if memory runs out, else None."""
    part = max(parts, key=partial(_rectangle, data))
    content = f"{len(part)} sequences of up to {data.lengths[part].max()} tokens"
    try:
        with memory_errors_as(content):
            run_once(module, data.collate(part, 0).to(device))
    except RequestError as error:
        if str(error) != content:
            raise
        return content
    return None


def run_once(module: ModelWithLoss, batch: Batch) -> None:
    """Run the batch forward and backward; the model stays as it was."""
    # Running statistics are put back; tables that only grew (positions) may stay.
    saved_state = {name: value.clone() for name, value in module.model.state_dict().items()}
    try:
        module(batch, module.counts(batch))[0].backward()
    finally:
        module.model.load_state_dict(saved_state)
        module.model.zero_grad(set_to_none=True)
