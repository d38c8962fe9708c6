"""Start or resume a run in its folder: check the folder and the recipe, and record the run's inputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from heedful.artifacts.environment import environment
from heedful.artifacts.run_folder import (
    FORMAT,
    RunFolder,
    empty,
    locked,
    write_card,
    write_json,
    write_text,
)
from heedful.errors import DamagedError, RequestError
from heedful.files import is_temporary, remove_scratch_folders, remove_temporaries
from heedful.recipes.schema import Recipe
from heedful.recipes.yaml import dump_yaml, show
from heedful.runs.comparing import flattened
from heedful.runs.reading import saved_recipe
from heedful.tasks.registry import task_for
from heedful.training import checkpoints, distribution
from heedful.training.loop import TrainingResult, reached_limit
from heedful.typing import JsonMapping, JsonObject

# Sections that may differ between a recipe and the run that it resumes: they do not change the model.
_MAY_CHANGE = {"training", "validation", "decoding", "evaluation", "expected", "description", "root"}
# Settings of these sections that may not differ; values of different metrics cannot be compared.
_MUST_STAY = tuple(("training", key) for key in ("seed", "sampling", "metric"))
# Settings of ``training`` that affect the final weights after the last update.
_OF_FINAL_WEIGHTS = ("average", "average_of", "keep_average")

N_LISTED = 8
"""The most settings that a message lists."""

MAX_SHOWN = 60
"""The most characters of a value in a message."""


@contextmanager
def locked_run(folder: RunFolder, resume: bool, *, overwrite: bool = False) -> Iterator[None]:
    """Lock the folder of a run that is about to start or resume; with ``overwrite``, remove its run first.

    Raises:
        RequestError: the folder cannot be used, there is no run to resume, or another process is training it.
    """
    if resume:
        if not folder.recipe.exists():
            raise RequestError(
                f"{folder.path}: no run to resume; to start one, remove --resume (in Python: heedful.train)"
            )
    else:
        if overwrite and folder.recipe.exists():
            with locked(folder.path):
                empty(folder.path)
        check_new(folder)
    with locked(folder.path):
        if not resume:
            _refuse_to_overwrite(folder)  # another process may have written files in between
        remove_temporaries(folder.path)
        remove_temporaries(folder.cache)
        remove_scratch_folders()
        yield


def check_new(folder: RunFolder) -> None:
    """Check that a run can start in a folder.

    Raises:
        RequestError: the folder holds a run or other files.
    """
    _refuse_what_saved_nothing(folder)
    _refuse_to_overwrite(folder)


def _refuse_what_saved_nothing(folder: RunFolder) -> None:
    """Refuse the folder of a training that ended before its first checkpoint."""
    if folder.recipe.exists() and not (folder.has_ended or folder.has_checkpoints):
        with locked(folder.path):  # another message if a process trains there
            raise RequestError(
                f"{folder.path}: contains a training that ended before its first checkpoint; replace it "
                "with --overwrite (in Python: overwrite=True), choose another folder with --out (out=…), or "
                "start it again with --resume (heedful.resume)"
            )


def _refuse_to_overwrite(folder: RunFolder) -> None:
    if folder.path.exists() and not folder.path.is_dir():
        raise RequestError(f"{folder.path}: is a file; choose another folder with --out (in Python: out=…)")
    if folder.recipe.exists():
        raise RequestError(
            f"{folder.path}: already contains a run; continue it with --resume (in Python: "
            "heedful.resume), choose another folder with --out (out=…), or replace it with --overwrite "
            "(overwrite=True)"
        )
    # Ignore what a process leaves that is killed at its start.
    files = folder.path.iterdir() if folder.path.exists() else ()
    other_files = [path.name for path in files if path != folder.environment and not is_temporary(path)]
    if other_files:
        raise RequestError(
            f"{folder.path}: is not empty (it has {min(other_files)!r}); choose another folder with --out "
            "(in Python: out=…)"
        )


def begin_folder(folder: RunFolder, recipe: Recipe, resume: bool, device: torch.device) -> Recipe:
    """Start the run's folder, or check that it can be resumed; return the recipe that this run has.

    With ``processes: auto``, a resumed run continues with the number of processes that it started with.
    """
    if not resume:
        write_json(folder.environment, environment(device))
    else:
        folder.check_started()
        _prepare_card(folder)
        old_recipe = saved_recipe(folder)
        _refuse_another_recipe(folder, old_recipe, recipe)
        if recipe.training.processes == "auto" and distribution.world() == 1:
            recipe = _with_processes(recipe, old_recipe.training.processes)
        folder.started.unlink(missing_ok=True)
    write_text(folder.recipe, dump_yaml(recipe.model_dump(mode="json")))
    return recipe


def _prepare_card(folder: RunFolder) -> None:
    """Remove the recipe, which is about to change, from the card of a finished run.

    The run can then be used, with its old weights, until training is over, and also if that fails.
    """
    if not folder.has_ended:
        return
    if not folder.has_checkpoints:
        raise RequestError(
            f"{folder.path}: the run is finished and has no checkpoints to continue from; train into another "
            "folder"
        )
    try:
        card = folder.read_card()
    except (RequestError, DamagedError):
        return  # it is missing or damaged; it is written again at the end
    results = {path.name for path in folder.results}
    unchanged = {name: entry for name, entry in card["files"].items() if name not in results}
    folder.check_files({"files": unchanged})
    card["files"].pop(folder.recipe.name, None)
    write_card(folder.card, card)


def _refuse_another_recipe(folder: RunFolder, old_recipe: Recipe, recipe: Recipe) -> None:
    """Refuse to resume a run with a recipe that would have made another one.

    Raises:
        RequestError: names each setting that differs, with its new and its old value.
    """
    old, new = (r.model_dump(mode="json") for r in (old_recipe, recipe))
    sections = [key for key in dict.fromkeys((*old, *new)) if key not in _MAY_CHANGE]
    if old["training"]["metric"] in recipe.decoded_metrics:
        sections.append("validation")  # decoded metrics depend on what is decoded, and how
    before, after = (flattened({key: r[key] for key in sections if key in r}) for r in (old, new))
    for section, key in _MUST_STAY:
        before[f"{section}.{key}"], after[f"{section}.{key}"] = old[section][key], new[section][key]
    before["training.direction"], after["training.direction"] = old_recipe.direction, recipe.direction
    changed = [key for key in dict.fromkeys((*before, *after)) if before.get(key) != after.get(key)]
    if "task.kind" in changed:
        changed = ["task.kind"]  # other differences follow from it
    if changed:
        settings = [
            f"{key}={_shown(after, key)} (started with {_shown(before, key)})" for key in changed[:N_LISTED]
        ]
        more = f" and {len(changed) - N_LISTED} more" if len(changed) > N_LISTED else ""
        raise RequestError(
            f"{folder.path}: cannot be resumed with other settings than it was started with: "
            f"{', '.join(settings)}{more}; restore them, or train into another folder with --out "
            "(in Python: heedful.train with out=…)"
        )


def _shown(settings: JsonMapping, key: str) -> str:
    """Return the value of a setting for a message."""
    if key not in settings:
        return "nothing"
    text = show(settings[key])
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def with_fixed_processes(folder: RunFolder, recipe: Recipe, n_processes: int) -> Recipe:
    """Save the recipe with the number of processes, on which results depend; return it.

    Then write ``started.json``, with the hashes of the recipe and of the files prepared with it.
    """
    recipe = _with_processes(recipe, n_processes)
    if distribution.is_first():
        write_text(folder.recipe, dump_yaml(recipe.model_dump(mode="json")))
        prepared_files = [folder.recipe, *task_for(recipe).Processor.files(folder)]
        write_card(folder.started, {"version": FORMAT, "files": folder.hashes(prepared_files)})
    return recipe


def _with_processes(recipe: Recipe, n: int | Literal["auto"]) -> Recipe:
    settings = recipe.training.model_copy(update={"processes": n})
    return recipe.model_copy(update={"training": settings})


def finished_result(folder: RunFolder, recipe: Recipe) -> TrainingResult | None:
    """Return the result of a run that is finished according to ``recipe``; None if there is work left.

    A run is finished if its files match its card, the card is that of the newest checkpoint, a limit of the
    recipe is reached there, and the recipe has the run's other settings (final weights, decoding, root …).
    """
    try:
        card = folder.read_card()
        folder.check_files(card)
        if folder.recipe.name not in card["files"]:
            return None
        if _requested_outputs(saved_recipe(folder)) != _requested_outputs(recipe):
            return None
    except (DamagedError, RequestError):
        return None  # resuming repairs or refuses it
    newest, _ = checkpoints.latest_intact(folder.path)
    if newest is None or newest.state.update != card.get("updates") or card.get("stopped") == "signal":
        return None
    stop_reason = reached_limit(newest.state, recipe.training)
    if stop_reason is None:
        return None
    return TrainingResult(stop_reason, newest.state, newest.state.update)


def _requested_outputs(recipe: Recipe) -> JsonObject:
    """Return a recipe without the settings of updates, which do not matter once training is over."""
    settings = recipe.model_dump(mode="json")
    settings["training"] = {key: settings["training"][key] for key in _OF_FINAL_WEIGHTS}
    return settings
