"""Ensembles of runs with one vocabulary."""

from collections.abc import Sequence

from heedful.errors import RequestError
from heedful.models.ensemble import EnsembleModel
from heedful.runs.loading import LoadedRun


def ensemble_of(runs: Sequence[LoadedRun]) -> LoadedRun:
    """Return a run whose model is the ensemble of the models of several runs; all else is that of the first.

    Raises:
        RequestError: there are fewer than two, they generate no text, or they differ in the task, in how text
            is encoded or presented to the model, or in the device.
    """
    if len(runs) < 2:
        raise RequestError(f"an ensemble needs at least two runs, got {len(runs)}")
    first = runs[0]
    kind, name = first.recipe.task.kind, first.folder.path
    if not first.task.info.writes:
        raise RequestError(f"ensembles are not supported for task {kind}, which generates no text")
    for other in runs[1:]:
        path = other.folder.path
        if other.recipe.task.kind != kind:
            raise RequestError(f"{path}: its task is {other.recipe.task.kind}, that of {name} is {kind}")
        if other.processor.fingerprint != first.processor.fingerprint:
            raise RequestError(
                f"{path}: its vocabulary or tokenisation is not that of {name}; train both runs on the same "
                "data, with the same section tokenizer (heedful train --seeds, or start.run)"
            )
        own, expected = map(_lengths, (other, first))
        if own != expected:
            raise RequestError(f"{path}: reads texts of other lengths than {name}: {own}, not {expected}")
        devices = [next(run.model.parameters()).device for run in (first, other)]
        if devices[0] != devices[1]:
            raise RequestError(f"{path}: is on the device {devices[1]}, {name} on {devices[0]}")
    if any(isinstance(run.model, EnsembleModel) for run in runs):
        raise RequestError("an ensemble cannot be part of another; give all runs at once")
    return LoadedRun(first.folder, first.task, EnsembleModel([run.model for run in runs]))


def _lengths(run: LoadedRun) -> object:
    """Return how source and target are presented to the model, or how many tokens it reads."""
    recipe = run.recipe
    longest = getattr(recipe.model, "longest", None)
    return getattr(recipe, "sequence_format", longest), getattr(recipe, "max_source", None)
