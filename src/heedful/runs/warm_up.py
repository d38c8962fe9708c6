"""Power normalisation and the length of a run: it must leave its warm-up.

A recipe with a number of updates is held to that when it is read; what only the training shows is here.
"""

from torch import nn

from heedful.errors import RequestError
from heedful.nn.norms import PowerNorm
from heedful.recipes.schema import Recipe
from heedful.tasks.base import Log


def check_warm_up(recipe: Recipe) -> None:
    """Power normalisation must leave its warm-up; a recipe with a number of updates has been held to that.

    Raises:
        RequestError: patience may end the training before.
    """
    batches = recipe.batches_within_warm_up(recipe.training.fewest_updates)
    if batches is not None:
        raise RequestError(
            f"model.layer.norm.warmup={recipe.norm_warmup}: training.patience may end the run after "
            f"{batches} batches, when power normalisation has hardly left its warm-up; set it to at most "
            f"{batches // 2}, or set training.max_updates"
        )


def log_warm_up(model: nn.Module, log: Log) -> None:
    """Say so where the clock, or the end of the data, came within the warm-up of power normalisation."""
    norms = [part for part in model.modules() if isinstance(part, PowerNorm)]
    if not norms or (seen := int(norms[0].n_batches)) >= norms[0].warmup:
        return
    log(
        f"power normalisation is still in its warm-up ({seen:,} of {norms[0].warmup:,} batches): it was "
        "trained on statistics of single batches, and predicts by running ones; lower "
        "model.layer.norm.warmup, or train longer"
    )
