"""Train from Python: `recipe`, `train`, `resume`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Never

from heedful.api.checks import (
    check_callbacks,
    check_overrides,
    check_switches,
    folder_of,
    names_in_rows,
    refuse_argument,
    run_folder,
)
from heedful.api.given import (
    DataLike,
    RecipeLike,
    Settings,
    hold_again,
    overrides_layer,
    recipe_input,
    with_data,
)
from heedful.api.notebook import NotebookProgress, in_notebook
from heedful.api.progress import Progress, check_progress
from heedful.api.run import Run, load
from heedful.artifacts.run_folder import RunFolder
from heedful.data.memory import HeldRows
from heedful.errors import RequestError
from heedful.plugins import allow_plugins
from heedful.recipes.resolve import as_one_layer
from heedful.recipes.schema import Recipe
from heedful.recipes.sizes import merge_above_sizes
from heedful.runs.column_keys import keys_of_recipe
from heedful.runs.reading import read_recipe, saved_recipe
from heedful.runs.train import Trained, train_run
from heedful.tasks.base import Log
from heedful.training.callbacks import Callback, JsonLines, TensorBoard, Updated
from heedful.training.callbacks import Progress as ShownProgress
from heedful.training.notices import ContentionNotice, LossNotice


def recipe(name: RecipeLike, /, **changes: Any) -> dict[str, Any]:
    """Return the settings of a recipe as a dict that can be edited, printed and given to `train`.

    Args:
        name: a shipped recipe, the path of a YAML file, settings, or the recipe of a run (``run.recipe``).
        **changes: sections and keys to merge over it, nested: ``training={"max_updates": 300}``. Entries of
            ``sizes`` lose what is changed, so that the changes hold for any amount of data.

    Raises:
        RequestError: there is no such recipe.
    """
    settings: dict[str, Any] = merge_above_sizes(
        as_one_layer(recipe_input(name)), overrides_layer(changes)
    ).data
    return settings


def train(
    recipe: RecipeLike,
    out: str | Path | None = None,
    *,
    overrides: Settings | None = None,
    data: DataLike | None = None,
    columns: Mapping[str, str | int] | None = None,
    callbacks: Sequence[Callback] = (),
    overwrite: bool = False,
    device: str = "auto",
    plugins: Sequence[str] = (),
    tensorboard: bool = False,
    progress: Progress = True,
    **unknown: Never,
) -> Run:
    """Train a recipe into a run, and load the run.

    Args:
        recipe: the path of a YAML file, the name of a shipped recipe, settings (`heedful.recipe`), or the
            recipe of a run (``run.recipe``).
        out: the run's folder, which must be new or empty; by default ``runs/NAME`` for a recipe with a name.
        overrides: settings to merge over the recipe, ``{"training.max_updates": 500}`` or nested; a class or
            function of yours may stand for the ``kind`` of a part.
        data: rows that replace the recipe's data sets: ``train``, ``valid`` and any named test sets, each an
            iterable of mappings (a generator is read to its end), a ``DataFrame`` of pandas or polars, a
            ``datasets.Dataset``, or a function that returns an iterable of mappings, which is called for each
            pass; or the path of a file in the form of the recipe's data, of a table whose columns have names,
            or of a folder, or the paths of aligned files, ``("train.en", "train.de")``. Without ``valid``,
            a tenth of ``train`` is used. Values are texts, numbers, lists of texts, and images as paths,
            arrays, bytes or Pillow images.
        columns: names in the rows of the task's columns, where they differ: ``{"text": "review"}``. If the
            recipe does not name its columns, give all.
        callbacks: functions of an event (`heedful.training.callbacks`: ``Started``, ``Updated``,
            ``Validated``, ``Saved``, ``Stopped``). One that returns True stops the training after the update.
        overwrite: whether to remove the run that the folder holds.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        plugins: packages and files (``./my_parts.py``) whose classes the recipe may name.
        tensorboard: whether to write TensorBoard's event files.
        progress: whether to show progress: lines on standard error, or, in a notebook, a bar and a table; or
            a function, called with the number of updates just made.
        **unknown: none; settings of the recipe, such as ``max_updates``, are overrides.

    Raises:
        RequestError: the recipe is invalid (the message lists every problem), the folder has a run, or
            another training is running in this process.
        DataError: the data cannot be used.
        WorkError: training failed, for example because the loss is NaN.
    """
    allow_plugins(plugins)
    check_callbacks(callbacks)
    check_switches(overwrite=overwrite, tensorboard=tensorboard)
    check_progress(progress)
    for name in unknown:
        refuse_argument(name, as_one_layer(recipe_input(recipe)))
    folder = _run_folder(recipe, out)
    settings, held = read(recipe, overrides, data, columns, show if progress is True else ignore)
    train_into(
        settings,
        folder,
        overwrite=overwrite,
        device=device,
        callbacks=callbacks,
        tensorboard=tensorboard,
        progress=progress,
    )
    return loaded(folder, device, held)


def _run_folder(recipe: RecipeLike, out: str | Path | None) -> Path:
    if out is not None:
        return folder_of(out, "out")
    if not isinstance(recipe, str | Path):
        raise RequestError("out: a recipe without a name needs the folder of the run, such as runs/mine")
    return Path("runs") / Path(recipe).stem


def resume(
    run: Run | str | Path,
    *,
    overrides: Settings | None = None,
    data: DataLike | None = None,
    callbacks: Sequence[Callback] = (),
    device: str = "auto",
    plugins: Sequence[str] = (),
    tensorboard: bool = False,
    progress: Progress = True,
) -> Run:
    """Continue the training of a run from its newest checkpoint, on the same CPU bit for bit, and load it.

    Args:
        run: its folder, or the run.
        overrides: settings to change; those that would have made another model are refused. For a longer
            training, ``{"training.max_updates": 1000}``.
        data: the same rows again, if the run was trained on rows from Python.
        callbacks: as of `train`, like all that follow.
        device: see there.
        plugins: see there.
        tensorboard: see there.
        progress: see there.

    Raises:
        RequestError: the folder is not a run, a setting may not change, or another training is running in
            this process.
        DataError: the data have changed.
        DamagedError: all checkpoints are damaged.
    """
    allow_plugins(plugins)
    check_callbacks(callbacks)
    check_overrides(overrides)
    check_switches(tensorboard=tensorboard)
    check_progress(progress)
    folder = RunFolder(run_folder(run))
    settings = saved_recipe(folder, overrides_layer(overrides))
    held = hold_again(saved_recipe(folder), folder, data) if data else []
    train_into(
        settings,
        folder.path,
        resume=True,
        device=device,
        callbacks=callbacks,
        tensorboard=tensorboard,
        progress=progress,
    )
    return loaded(folder.path, device, held)


def read(
    recipe: RecipeLike,
    overrides: Settings | None,
    data: DataLike | None,
    columns: Mapping[str, str | int] | None,
    log: Log,
) -> tuple[Recipe, list[HeldRows]]:
    """Return the validated recipe of a training, and the rows that must be held while it is used."""
    check_overrides(overrides)
    columns = names_in_rows(columns)
    source, held = recipe_input(recipe), list[HeldRows]()
    if data is not None:
        if columns:
            keys_of_recipe(source, overrides_layer(overrides)).check(columns)
        source, held = with_data(source, data, columns)
    elif columns is not None:
        raise RequestError("columns: names the columns of data, which is not given")
    return read_recipe(source, overrides_layer(overrides), log)[0], held


def train_into(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    tensorboard: bool = False,
    progress: Progress = True,
    log: Log | None = None,
) -> Trained:
    """Train a validated recipe with the callbacks of every run: ``metrics.jsonl``, progress and warnings."""
    if recipe.training.processes == "auto" and "__main__:" in recipe.model_dump_json():
        # Other processes cannot import classes of a notebook or script.
        settings = recipe.training.model_copy(update={"processes": 1})
        recipe = recipe.model_copy(update={"training": settings})
    every = recipe.training.log_every
    log = log or (show if progress is True else ignore)

    def own_callbacks(folder: RunFolder) -> list[Callback]:
        minutes = recipe.training.max_minutes
        shown: list[Callback] = []
        if callable(progress):
            shown = [lambda event: progress(1) if isinstance(event, Updated) else None]
        elif progress:
            shown = [NotebookProgress(minutes) if in_notebook() else ShownProgress(max_minutes=minutes)]
        return [
            JsonLines(folder.metrics, every, log),
            *shown,
            ContentionNotice(log, recipe.training.tokens_per_update),
            LossNotice(log),
            *([TensorBoard(folder.tensorboard, every)] if tensorboard else []),
            *callbacks,
        ]

    return train_run(
        recipe, out, resume=resume, overwrite=overwrite, device=device, callbacks=own_callbacks, log=log
    )


def loaded(out: Path, device: str, held: Sequence[HeldRows]) -> Run:
    """Load a run that was just written, with the rows that its recipe refers to."""
    run = load(out, device=device, verify=False)
    run.held = held
    return run


def show(line: str) -> None:
    """Print a line on standard error; in a notebook, which shows that as an error, on standard output."""
    print(line, file=sys.stdout if in_notebook() else sys.stderr, flush=True)


def ignore(line: str) -> None:
    """Print nothing."""
