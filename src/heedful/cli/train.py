"""``heedful train``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from heedful.cli.options import Device
from heedful.cli.output import json_result, log, result
from heedful.cli.streams import OutputClosedError
from heedful.errors import RequestError

if TYPE_CHECKING:
    from heedful.recipes.schema import Recipe
    from heedful.training.loop import TrainingResult
    from heedful.training.settings import TrainingConfig

# Exit status where a signal ended the training: what was asked for is not done, but can be gone on with.
STOPPED = 130

_WHY = {
    "updates": "max_updates reached",
    "epochs": "max_epochs reached",
    "minutes": "max_minutes reached",
    "patience": "validation no longer improves",
    "data": "no more data",
    "signal": "asked to stop",
}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("train")(train)


def train(
    recipe: str = typer.Argument(
        ...,
        metavar="RECIPE",
        help="A YAML file, the name of a shipped recipe, or, with --resume, a run's folder.",
    ),
    overrides: list[str] = typer.Argument(None, metavar="KEY=VALUE", help="Changes to the recipe."),
    out: Path = typer.Option(None, help="The run's folder. [default: runs/NAME]"),
    resume: bool = typer.Option(
        False, "--resume", help="Go on from the newest checkpoint, on the same CPU bit for bit."
    ),
    device: Device = "auto",
    print_recipe: bool = typer.Option(False, "--print", help="Print the merged recipe and leave."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also write TensorBoard's event files."),
    as_json: bool = typer.Option(False, "--json", help="Print the outcome as one JSON object."),
) -> None:
    """Train a model as a recipe says."""
    from heedful.artifacts.run_folder import RunFolder
    from heedful.recipes.yaml import dump_yaml
    from heedful.runs.reading import read_recipe

    if print_recipe and as_json:
        raise RequestError("--json: is of what a training comes to; --print prints the recipe, which is YAML")
    if resume and Path(recipe).is_dir():
        if out is not None and out.resolve() != Path(recipe).resolve():
            raise RequestError(f"--out {out}: a run is resumed where it is; leave --out away")
        settings, folder = _resumed(Path(recipe), overrides or []), Path(recipe)
    else:
        if resume:
            _refuse_no_run(recipe)
        if RunFolder(recipe).recipe.is_file():
            raise RequestError(f"{recipe}: is a run, not a recipe; go on training it with --resume")
        settings, _ = read_recipe(recipe, overrides or [])
        folder = out or Path("runs") / Path(recipe).stem
    if print_recipe:
        result(dump_yaml(settings.model_dump(mode="json")).rstrip())
        return
    train_into(folder, settings, resume=resume, device=device, tensorboard=tensorboard, as_json=as_json)


def _refuse_no_run(what: str) -> None:
    """Refuse what is to be resumed and is neither a run's folder nor a recipe."""
    from heedful.recipes.resolve import SUFFIXES, shipped_recipes

    if not (what.endswith(SUFFIXES) or Path(what).exists() or what in shipped_recipes()):
        raise RequestError(f"{what}: no such run")


def _resumed(folder: Path, overrides: list[str]) -> "Recipe":
    """The recipe that a run was made from, with changes."""
    from heedful.recipes.resolve import overrides_tree
    from heedful.recipes.trees import merge
    from heedful.runs.reading import recipe_from
    from heedful.runs.saved import saved_tree

    return recipe_from(merge(saved_tree(folder), overrides_tree(overrides)))


def train_into(
    folder: Path, recipe: "Recipe", *, resume: bool, device: str, tensorboard: bool, as_json: bool
) -> None:
    """Train, show progress, and say what came of it and what can be done with it."""
    from heedful.runs.train import train_run
    from heedful.training.callbacks import JsonLines, Progress, TensorBoard
    from heedful.training.notices import ContentionNotice, LossNotice

    trained = train_run(
        recipe,
        folder,
        resume=resume,
        device=device,
        log=log,
        callbacks=lambda made: [
            JsonLines(made.metrics, recipe.training.log_every),
            Progress(),
            ContentionNotice(log, recipe.training.tokens_per_update),
            LossNotice(log),
            *([TensorBoard(made.tensorboard, recipe.training.log_every)] if tensorboard else []),
        ],
    )
    was_stopped = trained.result.stopped == "signal"
    try:
        if trained.is_first:
            _report(folder, recipe.training, trained.result, as_json=as_json)
    except OutputClosedError:
        if not was_stopped:
            raise
    if was_stopped:
        raise typer.Exit(STOPPED)


def _report(folder: Path, settings: "TrainingConfig", ended: "TrainingResult", *, as_json: bool) -> None:
    if as_json:
        json_result(_outcome(folder, settings.metric, ended))
    else:
        _log(folder, settings, ended)
        result(str(folder))


def _outcome(folder: Path, metric: str, ended: "TrainingResult") -> dict[str, Any]:
    """What came of a training, for JSON."""
    state = ended.state
    best = state.best[0] if state.best else None
    return {
        "version": 1,
        "run": str(folder),
        "stopped": ended.stopped,
        "updates": state.update,
        "epochs": state.epoch,
        "seconds": round(state.seconds, 1),
        "tokens": state.tokens,
        "metric": metric,
        "best": None if best is None else {"update": best.update, "value": best.metric},
    }


def _log(folder: Path, settings: "TrainingConfig", ended: "TrainingResult") -> None:
    """What came of a training, and what can be done with it."""
    state, stopped = ended.state, ended.stopped
    best = state.best[0] if state.best else None
    log(
        nothing_to_do(settings, ended)
        or f"stopped after {state.update:,} updates ({_WHY[stopped]}), {state.seconds / 60:.1f} minutes"
    )
    if best is not None:
        log(f"best {settings.metric}: {best.metric:.4f} at update {best.update:,}")
    if stopped == "signal":
        log(f"go on with:  heedful train {folder} --resume")
    log(f"use it:      heedful predict {folder}")
    log(f"score it:    heedful evaluate {folder}")


def nothing_to_do(settings: "TrainingConfig", ended: "TrainingResult") -> str | None:
    """What to say of a resumed run that was at its end already; None where updates were made."""
    state = ended.state
    has = {
        "updates": (f"{state.update:,} updates", state.update, "max_updates"),
        "epochs": (f"{state.epoch:,} epochs", state.epoch, "max_epochs"),
        "minutes": (f"{state.seconds / 60:.1f} minutes", state.seconds / 60, "max_minutes"),
        "patience": (f"{state.bad_validations} validations without a better one", 0, "patience"),
    }.get(ended.stopped)
    if has is None or not ended.before or state.update > ended.before:
        return None
    words, number, key = has
    limit = getattr(settings, key)
    too_few = key in {"max_updates", "max_epochs"} and number > limit
    way_out = "nothing to do" if too_few else f"nothing to do; raise training.{key} to go on"
    return f"the run already has {words}, and training.{key} is {limit:,}: {way_out}"
