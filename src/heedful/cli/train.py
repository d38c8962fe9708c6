"""The command ``heedful train``."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.options import Device, complete_recipe
from heedful.cli.output import OutputClosedError, json_result, log, result
from heedful.errors import DataError, RequestError
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.recipes.resolve import RecipeInput
    from heedful.recipes.schema import Recipe
    from heedful.runs.train import Trained
    from heedful.training.loop import TrainingResult
    from heedful.training.settings import TrainingConfig

TEMPLATES = "my-own-"
"""Beginning of the names of recipes whose files are the user's."""

# Exit status if a signal stopped training: the run is incomplete and can be resumed.
STOPPED = 130

_REASONS = {
    "updates": "max_updates reached",
    "epochs": "max_epochs reached",
    "minutes": "max_minutes reached",
    "patience": "validation no longer improves",
    "data": "no more data",
    "signal": "interrupted",
    "callback": "a callback asked to stop",
}


def train(
    recipe: str = typer.Argument(
        ...,
        metavar="RECIPE",
        help="YAML file, name of a shipped recipe, or, with --resume, a run folder.",
        autocompletion=complete_recipe,
    ),
    overrides: list[str] = typer.Argument(None, metavar="KEY=VALUE", help="Override keys of the recipe."),
    data: list[str] = typer.Option(
        None,
        "--data",
        metavar="FILE",
        help="Train on this file or folder, a tenth of it as validation data; twice for aligned files "
        "(source, target).",
    ),
    column: list[str] = typer.Option(
        None,
        "--column",
        metavar="KEY=NAME",
        help="Field of a column of the task in the file (text=body; without a header, and in CoNLL, its "
        "number, tags=1), once for each that has another name.",
    ),
    out: Path = typer.Option(None, help="Run folder. [default: runs/NAME]"),
    resume: bool = typer.Option(
        False, "--resume", help="Resume from the latest checkpoint; bit-identical on the same CPU."
    ),
    overwrite: bool = typer.Option(False, "--overwrite", help="Remove the run that the folder holds."),
    seeds: int = typer.Option(
        None,
        min=2,
        metavar="N",
        help="Train N runs, OUT-1 to OUT-N, with the recipe's training.seed (1) and those after it, and "
        "print the mean and standard deviation of their best scores.",
    ),
    device: Device = "auto",
    print_recipe: bool = typer.Option(False, "--print", help="Print the merged recipe and exit."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also write TensorBoard event files."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as one JSON object."),
) -> None:
    """Train a model from a recipe."""
    if print_recipe and as_json:
        raise RequestError("--json: not supported with --print, which prints the recipe as YAML")
    if resume and overwrite:
        raise RequestError("--overwrite: not supported with --resume, which continues the run; remove one")
    if seeds is not None:
        if print_recipe:
            raise RequestError("--print: not supported with --seeds; remove one")
        _train_seeds(
            seeds,
            recipe,
            overrides or [],
            data or [],
            column or [],
            out,
            resume=resume,
            overwrite=overwrite,
            device=device,
            tensorboard=tensorboard,
            as_json=as_json,
        )
        return
    if resume and Path(recipe).is_dir():
        settings, folder = _saved(Path(recipe), overrides or [], out), Path(recipe)
    else:
        folder = out or Path("runs") / Path(recipe).stem
        resumed = folder if resume else None
        given = _on_files(recipe, data or [], column or [], overrides or [])
        settings = _read(recipe, given, overrides or [], resumed, reads_data=not (resume or print_recipe))
    if print_recipe:
        from heedful.recipes.yaml import dump_yaml

        result(dump_yaml(settings.model_dump(mode="json")).rstrip())
        return
    from heedful.api.training import train_into

    trained = train_into(
        settings,
        folder,
        resume=resume,
        overwrite=overwrite,
        device=device,
        tensorboard=tensorboard,
        log=log,
    )
    report(folder, settings, trained, as_json)


def _train_seeds(
    n: int,
    recipe: str,
    overrides: list[str],
    data: list[str],
    columns: list[str],
    out: Path | None,
    *,
    resume: bool,
    overwrite: bool,
    device: str,
    tensorboard: bool,
    as_json: bool,
) -> None:
    """Train a recipe with several seeds; the arguments are those of `train`."""
    from heedful.artifacts.run_folder import RunFolder
    from heedful.cli.train_seeds import train_seeds

    if RunFolder(recipe).recipe.is_file():
        raise RequestError(
            f"{recipe}: expected a recipe with --seeds, got a run folder; to resume, give the recipe with "
            "which the seeds were trained"
        )
    given = _on_files(recipe, data, columns, overrides)

    def read(resumed: Path | None, further: list[str]) -> "Recipe":
        return _read(recipe, given, [*overrides, *further], resumed, reads_data=not resume)

    def train_one(settings: "Recipe", folder: Path, is_resumed: bool) -> "Trained":
        from heedful.api.training import train_into

        return train_into(
            settings,
            folder,
            resume=is_resumed,
            overwrite=overwrite,
            device=device,
            tensorboard=tensorboard,
            log=log,
        )

    train_seeds(
        n,
        out or Path("runs") / Path(recipe).stem,
        read,
        train_one,
        _result_record,
        log_result,
        resume=resume,
        overwrite=overwrite,
        as_json=as_json,
        stopped=STOPPED,
    )


def _saved(run: Path, overrides: list[str], out: Path | None) -> "Recipe":
    """Return the recipe of a run that is resumed."""
    from heedful.artifacts.run_folder import RunFolder
    from heedful.runs.reading import saved_recipe

    if out is not None and out.resolve() != run.resolve():
        raise RequestError(
            f"--out {out}: not supported with --resume, which continues in the run's folder; remove --out"
        )
    return saved_recipe(RunFolder(run), overrides)


def _on_files(recipe: str, data: list[str], columns: list[str], overrides: list[str]) -> "RecipeInput":
    """Return the recipe with the user's files as training data, if there are any.

    Raises:
        RequestError: columns are named without data.
        DataError: a file does not exist, or does not have the columns.
    """
    if not data:
        if columns:
            raise RequestError("--column: names the columns of a file; add --data FILE")
        return recipe
    from heedful.api.given import with_data
    from heedful.cli.inputs import names_of
    from heedful.runs.column_keys import keys_of_recipe

    names = names_of(columns, keys_of_recipe(recipe, overrides), data) if columns else {}
    return with_data(recipe, {"train": data}, names)[0]


def _read(
    recipe: str, given: "RecipeInput", overrides: list[str], resumed: Path | None, *, reads_data: bool
) -> "Recipe":
    """Return the recipe of a file or a shipped one, and check its files if data are read.

    Args:
        recipe: path or name.
        given: the recipe, with the user's files.
        overrides: ``key=value`` each.
        resumed: the run folder that is resumed, if it exists.
        reads_data: whether its data will be read; a run that is resumed may have them all.
    """
    from heedful.artifacts.run_folder import RunFolder, missing_run
    from heedful.recipes.resolve import is_recipe_file, shipped_recipes
    from heedful.runs.required_files import check_before_imports

    if resumed and not (is_recipe_file(recipe) or Path(recipe).exists() or recipe in shipped_recipes()):
        raise missing_run(Path(recipe))
    if RunFolder(recipe).recipe.is_file():
        raise RequestError(
            f"{recipe}: expected a recipe, got a run folder; to continue its training, add --resume"
        )
    if reads_data:
        try:
            check_before_imports(given, overrides)
        except DataError as error:
            if given == recipe and recipe in shipped_recipes() and recipe.startswith(TEMPLATES):
                raise DataError(f"{error}; to train on a file or folder of yours, add --data FILE") from None
            raise
    # Imports torch, which takes longer than all checks above.
    from heedful.runs.reading import read_recipe

    return read_recipe(given, overrides, log, resumed=RunFolder(resumed) if resumed else None)[0]


def report(folder: Path, recipe: "Recipe", trained: "Trained", as_json: bool) -> None:
    """Print the result of a training in the process that reports it; exit with `STOPPED` after a signal."""
    was_stopped = trained.result.stop_reason == "signal"
    try:
        if trained.is_first and as_json:
            json_result(_result_record(folder, recipe.training.metric, trained.result))
        elif trained.is_first:
            log_result(folder, recipe, trained.result)
            result(str(folder))
    except OutputClosedError:
        if not was_stopped:
            raise
    if was_stopped:
        raise typer.Exit(STOPPED)


def _result_record(folder: Path, metric: str, outcome: "TrainingResult") -> JsonObject:
    state = outcome.state
    best = state.best[0] if state.best else None
    return {
        "version": 1,
        "run": str(folder),
        "stopped": outcome.stop_reason,
        "updates": state.update,
        "epochs": state.epoch,
        "seconds": round(state.seconds, 1),
        "tokens": state.tokens,
        "metric": metric,
        "best": None if best is None else {"update": best.update, "value": best.metric},
    }


def log_result(folder: Path, recipe: "Recipe", outcome: "TrainingResult") -> None:
    """Log the result of a training and follow-up commands."""
    settings = recipe.training
    state, reason = outcome.state, outcome.stop_reason
    best = state.best[0] if state.best else None
    nothing_done = nothing_to_do(settings, outcome)
    log(
        nothing_done
        or f"stopped after {state.update:,} updates ({_REASONS[reason]}), {state.seconds / 60:.1f} minutes"
    )
    if best is not None:
        log(f"best {settings.metric}: {best.metric:.4f} at update {best.update:,}")
        is_last = not nothing_done and reason == "updates" and best.update == state.update
        if is_last and not recipe.is_best_possible(best.metric):
            log(
                "the last validation was the best: a longer training may be better, for example with "
                f"training.max_updates={2 * state.update}"
            )
        elif not nothing_done and (note := _overfitting(folder)):
            log(note)
    if reason == "signal":
        log(f"resume:      heedful train {folder} --resume")
    log(f"predict:     heedful predict {folder}")
    test_data = "" if recipe.data.sets.test else " FILE (test data), or --split valid"
    log(f"evaluate:    heedful evaluate {folder}{test_data}")


def _overfitting(folder: Path) -> str | None:
    """Return the note of a run whose model overfits."""
    from heedful.artifacts.run_folder import RunFolder
    from heedful.training.callbacks import read_metrics
    from heedful.training.overfitting import overfitting_note

    path = RunFolder(folder).metrics
    return overfitting_note(read_metrics(path)) if path.is_file() else None


def nothing_to_do(settings: "TrainingConfig", outcome: "TrainingResult") -> str | None:
    """Return the message for a resumed run that was already finished; None if it made updates."""
    state = outcome.state
    limits = {
        "updates": (f"{state.update:,} updates", state.update, "max_updates"),
        "epochs": (f"{state.epoch:,} epochs", state.epoch, "max_epochs"),
        "minutes": (f"{state.seconds / 60:.1f} minutes", state.seconds / 60, "max_minutes"),
        "patience": (f"{state.bad_validations} validations without improvement", 0, "patience"),
    }.get(outcome.stop_reason)
    if limits is None or not outcome.resumed_at or state.update > outcome.resumed_at:
        return None
    amount, reached_value, key = limits
    limit = getattr(settings, key)
    too_few = key in {"max_updates", "max_epochs"} and reached_value > limit
    remedy = "nothing to do" if too_few else f"nothing to do; raise training.{key} to continue"
    return f"the run already has {amount}, and training.{key} is {limit:,}: {remedy}"
