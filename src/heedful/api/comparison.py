"""Compare runs: ``heedful.compare``."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

from heedful.api.checks import check_runs, check_split, run_folder
from heedful.api.progress import Progress, counting
from heedful.api.run import Run, load
from heedful.checks import whole_number
from heedful.data.lines import Source
from heedful.data.memory import RowsLike
from heedful.errors import RequestError
from heedful.runs.arguments import at_least_one
from heedful.runs.comparing import Comparison
from heedful.runs.comparing import compare as compare_files
from heedful.runs.evaluate import evaluate
from heedful.runs.significance import compare_scores
from heedful.tasks.evaluation import Evaluation, EvaluationOptions
from heedful.tasks.metrics.significance import SEED


def compare(
    runs: Sequence[Run | Path | str],
    *,
    data: RowsLike | None = None,
    split: str | None = None,
    columns: Mapping[str, str | int] | None = None,
    limit: int | None = None,
    seed: int = SEED,
    device: str = "auto",
    progress: Progress = False,
) -> Comparison:
    """Compare runs, also those that still train: their settings, scores of validations and learning curves.

    A notebook shows the comparison as tables, and training and validation loss of a single run as a chart.
    ``comparison.runs[0].curve`` has the validations of the first run, each with its ``update``, ``seconds``
    and ``metrics``, and ``comparison.runs[0].losses`` the points of both losses.

    With ``data`` or ``split``, the runs are evaluated on the same rows, and the first is compared with each
    other one, metric by metric: ``comparison.significance`` has the differences, their 95 % intervals by
    paired bootstrap resampling, and p-values by approximate randomisation.

    Args:
        runs: runs, or their folders.
        data: rows, or paths of files, as of `Run.evaluate`, on which the runs are evaluated.
        split: instead, a data set of the first run's recipe: ``test`` (all test sets), ``valid`` or a name.
        columns: as of `Run.evaluate`.
        limit: evaluate only this many leading rows.
        seed: of the random resamples and shuffles.
        device: for runs that are given as folders.
        progress: as of `Run.evaluate`.

    Raises:
        RequestError: a folder is not a run, a run is given twice, or the runs to evaluate have different
            tasks.
        DamagedError: a file of a run is damaged.
        DataError: there is nothing to score.
    """
    check_runs(runs)
    given = [*runs]
    comparison = compare_files([run_folder(run, f"runs[{number}]") for number, run in enumerate(given)])
    if data is None and split is None:
        for name, value in (("limit", limit), ("columns", columns)):
            if value is not None:
                raise RequestError(f"{name}: requires data or split, on which the runs are evaluated")
        return comparison
    if data is not None and split is not None:
        raise RequestError("data and split exclude each other; remove one")
    limit, seed = at_least_one("limit", limit), whole_number("seed", seed, least=0)
    if len(given) < 2:
        raise RequestError("data and split need two runs or more to compare; evaluate scores one run")
    tasks = {run.task: run.name for run in comparison.runs}
    if len(tasks) > 1:
        pairs = ", ".join(f"{name} ({task})" for task, name in tasks.items())
        raise RequestError(f"the runs have different tasks and no metric in common: {pairs}")
    # A generator would be empty for the second run.
    rows = [*data] if isinstance(data, Iterator) else data
    loaded = [run if isinstance(run, Run) else load(run, device=device) for run in given]
    names = [run.name for run in comparison.runs]
    evaluations: dict[str, dict[str, Evaluation]] = {}
    with counting(progress, "rows", None) as count:
        options = EvaluationOptions(limit=limit, progress=count)
        for name, run in zip(names, loaded, strict=True):
            for part, reader, source, held in _data_sets(run, loaded[0], split, rows, columns):
                evaluations.setdefault(part, {})[name] = evaluate(reader, part, source, options)
                del held  # it was needed until here
    significance, notes = [], [*comparison.notes]
    for of_runs in evaluations.values():
        found, new_notes = compare_scores(of_runs, seed=seed)
        significance += found
        notes += new_notes
    return replace(comparison, significance=significance, notes=notes)


def _data_sets(
    run: Run,
    first: Run,
    split: str | None,
    data: RowsLike | None,
    columns: Mapping[str, str | int] | None,
) -> Iterator[tuple[str, Run, Source, object]]:
    """Yield name, run, source and what must live as long, for each data set to evaluate a run on.

    The data sets of a recipe are those of the first run, whose folder their paths start from.
    """
    if split is None:
        name, source, held = run._data_set("test", data, columns)
        yield name, run, source, held
        return
    check_split(split)
    if columns is not None:
        raise RequestError("columns: names the columns of data, which is not given")
    reader = copy(run)
    reader.task = copy(run.task)
    reader.task.recipe = run.recipe.model_copy(update={"root": first.recipe.root})
    for name, source in first.data_sets(split).items():
        yield name, reader, source, None
