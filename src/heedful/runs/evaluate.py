"""Scoring a run: which data sets, and the scores that its kind gives them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heedful.data.sources import SourceConfig
from heedful.errors import RequestError, nearest
from heedful.runs.kind import Evaluation, Scoring
from heedful.runs.prepare import rows_of
from heedful.runs.run import Run


def chosen_splits(run: Run, split: str, files: Sequence[Path] | None) -> dict[str, SourceConfig]:
    """The data sets to score: ``test`` stands for all test sets of the recipe, ``files`` for themselves.

    Raises:
        RequestError: there is no such split, or the run was imported and no files are given.
    """
    if files:
        source = run.kind.source_of(run.recipe, files)
        # Files one after the other are all named; of those side by side, the first stands for the others.
        named = files if isinstance(getattr(source, "paths", None), list) else files[:1]
        return {" + ".join(path.resolve().name for path in named): source}
    if run.folder.card.is_file() and "imported" in run.folder.require():
        raise RequestError(
            "this run was imported, so it has no test set nor other data of its own: "
            f"{run.kind.own_data} scores it on yours"
        )
    own = run.recipe.data
    known = {**own.test, "valid": own.valid, "train": own.train}
    if split == "test" and "test" not in own.test:
        if not own.test:
            raise RequestError(f"the recipe names no test set; use --split valid, or {run.kind.own_data}")
        return dict(own.test)
    if split not in known:
        names = ", ".join(dict.fromkeys(["test", *known]))
        raise RequestError(f"--split {split}: no such split{nearest(split, known)}; there are {names}")
    return {split: known[split]}


def evaluate(
    run: Run,
    split: str,
    source: SourceConfig,
    *,
    decoding: Any = None,
    limit: int | None = None,
    stride: int | None = None,
    progress: Callable[[int], None] = lambda n: None,
    precision: str = "auto",
) -> Any:
    """Score the run on a data set.

    Args:
        run: the run.
        split: what to call the data set.
        source: where its rows are.
        decoding: another than the recipe's.
        limit: only so many rows.
        stride: how far windows move on, for a language model; instead of the recipe's.
        progress: called with the number of rows just done.
        precision: of the weights while decoding (`heedful.inference.choosing`).

    Returns:
        An `Evaluation` of the run's kind.

    Raises:
        DataError: there is nothing to score.
        RequestError: the run cannot be scored so.
    """
    if stride is not None and not run.kind.strides:
        raise RequestError(f"--stride {stride}: a run of the task {run.recipe.task.kind} has no windows")
    how = Scoring(decoding, limit, stride, progress, precision)
    found: Evaluation = run.kind.scored(run, split, rows_of(run.recipe, source), how)
    return found
