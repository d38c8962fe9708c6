"""``heedful train --seeds``: one run for each seed, and the mean and deviation of their best scores."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.output import json_result, log, result

if TYPE_CHECKING:
    from heedful.recipes.schema import Recipe
    from heedful.runs.train import Trained
    from heedful.training.loop import TrainingResult
    from heedful.typing import JsonObject

Read = Callable[[Path | None, list[str]], "Recipe"]
"""Returns the recipe for the run folder that is resumed, if any, with further overrides."""


def train_seeds(
    n: int,
    folder: Path,
    read: Read,
    train: Callable[["Recipe", Path, bool], "Trained"],
    record: Callable[[Path, str, "TrainingResult"], "JsonObject"],
    report: Callable[[Path, "Recipe", "TrainingResult"], None],
    *,
    resume: bool,
    overwrite: bool,
    as_json: bool,
    stopped: int,
) -> None:
    """Train a recipe with its own seed and the ``n - 1`` seeds after it, one run after the other.

    The run of a seed is in the folder that ends in it: ``runs/mine-1``.

    Args:
        n: number of seeds.
        folder: beginning of the names of the run folders.
        read: returns the recipe.
        train: trains a recipe in a folder, or resumes it.
        record: returns the result of a run, with its metric, as JSON.
        report: logs the result of a run.
        resume: whether to leave finished runs as they are, continue unfinished ones and start the others.
        overwrite: whether to remove the runs that the folders hold.
        as_json: whether to print one JSON object.
        stopped: exit status if a signal stopped a training.
    """
    from heedful.artifacts.run_folder import RunFolder
    from heedful.runs.resuming import check_new
    from heedful.runs.seeds import Spread

    seed = read(None, []).training.seed
    folders = {s: folder.with_name(f"{folder.name}-{s}") for s in range(seed, seed + n)}
    resumed = {s: resume and RunFolder(out).recipe.is_file() for s, out in folders.items()}
    for s, out in folders.items():
        if not resumed[s] and not overwrite:
            check_new(RunFolder(out))
    records: list[JsonObject] = []
    scores: list[float] = []
    metric = ""
    is_first = True
    for number, (s, out) in enumerate(folders.items(), 1):
        log(f"seed {s} ({number} of {n}): {out}")
        recipe = read(out if resumed[s] else None, [f"training.seed={s}"])
        metric = recipe.training.metric
        trained = train(recipe, out, resumed[s])
        is_first = trained.is_first
        records.append({"seed": s, **record(out, metric, trained.result)})
        if trained.result.state.best:
            scores.append(trained.result.state.best[0].metric)
        if is_first and not as_json:
            report(out, recipe, trained.result)
            result(str(out))
        if trained.result.stop_reason == "signal":
            log(f"stopped at seed {s}; the same command with --resume continues it, and the seeds after it")
            raise typer.Exit(stopped)
    if not is_first:
        return
    spread = Spread.of(scores) if len(scores) == n > 1 else None
    if as_json:
        numbers = {"mean": spread and spread.mean, "deviation": spread and spread.deviation}
        json_result({"version": 1, "runs": records, "metric": metric, **numbers})
    elif spread is not None:
        log(f"best {metric} over {n} seeds: {spread} (mean ± standard deviation)")
        log(f"compare:     heedful compare {' '.join(map(str, folders.values()))}")
