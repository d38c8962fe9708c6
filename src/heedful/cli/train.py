"""``heedful train``."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.output import json_result, result, say

if TYPE_CHECKING:
    from heedful.runs.recipe import Recipe


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
        ..., help="A YAML file, the name of a shipped recipe, or, with --resume, a run's folder."
    ),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Changes to the recipe."),
    out: Path = typer.Option(None, help="The run's folder. [default: runs/NAME]"),
    resume: bool = typer.Option(False, "--resume", help="Go on from the newest checkpoint, bit for bit."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
    print_recipe: bool = typer.Option(False, "--print", help="Print the merged recipe and leave."),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Also write TensorBoard's event files."),
    as_json: bool = typer.Option(False, "--json", help="Print the outcome as one JSON object."),
) -> None:
    """Train a model as a recipe says."""
    from heedful.runs.recipe import read_recipe
    from heedful.runs.yaml import dump_yaml

    if resume and Path(recipe).is_dir():
        settings, folder = _resumed(Path(recipe), overrides or []), Path(recipe)
    else:
        settings, _ = read_recipe(recipe, overrides or [])
        folder = out or Path("runs") / Path(recipe).stem
    if print_recipe:
        result(dump_yaml(settings.model_dump(mode="json")).rstrip())
        return
    train_into(folder, settings, resume=resume, device=device, tensorboard=tensorboard, as_json=as_json)


def _resumed(folder: Path, overrides: list[str]) -> "Recipe":
    """The recipe that a run was made from, with changes."""
    from heedful.runs.problems import validate
    from heedful.runs.recipe import Recipe
    from heedful.runs.resolve import overrides_tree
    from heedful.runs.saved import saved_tree
    from heedful.runs.trees import merge

    return validate(merge(saved_tree(folder), overrides_tree(overrides)), Recipe)


def train_into(
    folder: Path, recipe: "Recipe", *, resume: bool, device: str, tensorboard: bool, as_json: bool
) -> None:
    """Train, show progress, and say what came of it and what can be done with it."""
    from heedful.runs.train import train_run
    from heedful.training.listeners import JsonLines, Progress, TensorBoard

    trained = train_run(
        recipe,
        folder,
        resume=resume,
        device=device,
        say=say,
        listeners=lambda made: [
            JsonLines(made.metrics),
            Progress(),
            *([TensorBoard(made.tensorboard)] if tensorboard else []),
        ],
    )
    state, stopped = trained.result.state, trained.result.stopped
    best = state.best[0] if state.best else None
    outcome = {
        "version": 1,
        "run": str(folder),
        "stopped": stopped,
        "updates": state.update,
        "epochs": state.epoch,
        "seconds": round(state.seconds, 1),
        "tokens": state.tokens,
        "metric": recipe.training.metric,
        "best": None if best is None else {"update": best.update, "value": best.metric},
    }
    if as_json:
        json_result(outcome)
        return
    say(f"stopped after {state.update:,} updates ({_WHY[stopped]}), {state.seconds / 60:.1f} minutes")
    if best is not None:
        say(f"best {recipe.training.metric}: {best.metric:.4f} at update {best.update:,}")
    if stopped == "signal":
        say(f"go on with:  heedful train {folder} --resume")
    say(f"use it:      heedful predict {folder}")
    say(f"score it:    heedful evaluate {folder}")
    result(str(folder))
