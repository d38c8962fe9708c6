"""Whether a finished run that is to be resumed has all that its recipe asks for."""

from heedful.artifacts.run_folder import RunFolder
from heedful.errors import DamagedError, RequestError
from heedful.recipes.schema import Recipe
from heedful.runs.run import check_files
from heedful.runs.saved import saved_recipe
from heedful.training import checkpoints
from heedful.training.loop import TrainingResult, reached_limit
from heedful.typing import JsonObject

# What the final weights are made by, when no update is made any more; all else says how updates are made.
_OF_FINAL_WEIGHTS = ("average", "average_of")


def at_its_end(folder: RunFolder, recipe: Recipe) -> TrainingResult | None:
    """How a finished run stands for which nothing is to be done; None where anything is.

    Nothing is, where the folder is what its card says, the card is of the newest checkpoint, a limit of the
    recipe is reached there, and the recipe asks for no other weights, decoding, root … than the run has.
    """
    try:
        card = folder.require()
        check_files(folder, card)
        if folder.recipe.name not in card["files"] or _asked(saved_recipe(folder)) != _asked(recipe):
            return None
    except (DamagedError, RequestError):
        return None  # it is mended, or refused, as it is resumed
    found, _ = checkpoints.latest_good(folder.path)
    if found is None or found.state.update != card.get("updates") or card.get("stopped") == "signal":
        return None
    stopped = reached_limit(found.state, recipe.training)
    return None if stopped is None else TrainingResult(stopped, found.state, found.state.update)


def _asked(recipe: Recipe) -> JsonObject:
    """What a recipe asks for, apart from how updates are made, and how many."""
    plain = recipe.model_dump(mode="json")
    plain["training"] = {key: plain["training"][key] for key in _OF_FINAL_WEIGHTS}
    return plain
