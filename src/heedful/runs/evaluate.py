"""Score a run: select the data sets, and evaluate its task on each."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from heedful.data.annotated import SKIPPED_COMMENTS, note_comments
from heedful.data.lines import Source
from heedful.data.report import Tally
from heedful.data.user_files import user_table
from heedful.errors import RequestError, nearest
from heedful.nn.modes import evaluating
from heedful.recipes.resolve import overrides_tree
from heedful.recipes.trees import Mark, Tree, merge
from heedful.runs.arguments import inputs_of
from heedful.runs.column_keys import ColumnKeys
from heedful.runs.left_out import unread
from heedful.runs.loading import LoadedRun
from heedful.runs.prepare import rows_of
from heedful.runs.reading import recipe_from
from heedful.tasks.evaluation import Evaluation, EvaluationOptions
from heedful.tasks.prediction import Prediction, TaskInput

_VALIDATION = {"dev", "development", "val", "validation"}
"""Other names of the validation data."""

AS_THE_RECIPE_SAYS = EvaluationOptions()

RunT = TypeVar("RunT", bound=LoadedRun)


def chosen_splits(
    run: LoadedRun, split: str, files: Sequence[Path] | None, columns: Mapping[str, str] | None = None
) -> dict[str, Source]:
    """Return the data sets to score by name: ``files`` if given, else a split; ``test`` is all test sets.

    Args:
        run: the run.
        split: the name of a data set of the recipe.
        files: files in place of it.
        columns: the fields of columns in a table, where they differ from those of the recipe.

    Raises:
        RequestError: there is no such split, the run was imported and no files are given, or names of columns
            are given for files that are not a table.
    """
    if files:
        source = _named_table(run, files, columns) if columns else run.task.source_from(files)
        # Files that are concatenated are all named; of aligned ones, only the first.
        named_files = files if isinstance(getattr(source, "paths", None), list) else files[:1]
        return {" + ".join(path.resolve().name for path in named_files): source}
    if run.folder.card.is_file() and "imported" in run.folder.read_card():
        raise RequestError(
            "an imported run has no data sets; give FILE to evaluate it on your data (in Python, data=…)"
        )
    data = run.recipe.data.sets
    splits = {**data.test, "valid": data.valid, "train": data.train}
    if split == "test" and "test" not in data.test:
        if not data.test:
            raise RequestError(
                'the recipe has no test set; give split="valid" or data=… (of the command: --split valid, or '
                "FILE)"
            )
        return dict(data.test)
    if split not in splits:
        names = ", ".join(dict.fromkeys([*(["test"] if data.test else []), *splits]))
        hint = " (did you mean 'valid'?)" if split in _VALIDATION else nearest(split, splits)
        raise RequestError(f"split {split}: no such split{hint}; expected one of {names}")
    return {split: splits[split]}


def _named_table(run: LoadedRun, files: Sequence[Path], names: Mapping[str, str]) -> Source:
    """Return a table of which the user names fields.

    Raises:
        RequestError: it is not a table, or the task has no such column.
    """
    columns, task = run.task.columns, run.recipe.task.kind
    if len(files) > 1 or files[0].is_dir():
        raise RequestError(f"columns: the task {task} reads these files without names of columns")
    ColumnKeys.of_task(task, columns).check(names)
    wanted = [*dict.fromkeys((*columns.required, *names))]
    return user_table(files[0], wanted, run.recipe.data.train, names, run.task.known_tags)


def with_evaluation(run: RunT, overrides: Sequence[str]) -> RunT:
    """Return a copy of the run with other settings in the section ``evaluation`` of its recipe.

    Args:
        run: the run; it does not change.
        overrides: settings such as ``language=ja`` for ``evaluation.language=ja``.

    Raises:
        RequestError: recipes of the task have no such setting, or the value is not allowed.
    """
    recipe_tree = Tree.of(run.recipe.model_dump(mode="json"), Mark("the run's recipe"))
    changed, changed.task = copy(run), copy(run.task)
    changed.task.recipe = recipe_from(
        merge(recipe_tree, overrides_tree([f"evaluation.{text}" for text in overrides]))
    )
    return changed


def evaluate(
    run: LoadedRun, split: str, source: Source, options: EvaluationOptions = AS_THE_RECIPE_SAYS
) -> Evaluation:
    """Score the run on a data set.

    Args:
        run: the run.
        split: the name of the data set in the result.
        source: the source of its rows.
        options: decoding, and number of rows.

    Returns:
        Scores, with a record for each row.

    Raises:
        DataError: there is nothing to score.
        RequestError: the run does not support the options.
    """
    if options.stride is not None and not run.task.info.windows:
        raise RequestError(
            f"stride {options.stride}: not supported for task {run.recipe.task.kind}, which has no windows"
        )

    def predict(inputs: list[TaskInput]) -> list[Prediction]:
        predictor = run.predictor(
            decoding=options.decoding, progress=options.progress, precision=options.precision
        )
        return predictor.predict(inputs_of(run.task.columns, inputs))

    comments = Tally()
    rows = note_comments(rows_of(run.recipe, source, whole=True), comments.add)
    with evaluating(run.model):
        evaluation = run.task.evaluate(run.model, predict, split, rows, options)
    skipped = [comments.line("noted", SKIPPED_COMMENTS)] if comments.count else []
    added = [*skipped, *unread(source, run.recipe.folder)]
    return replace(evaluation, unit=run.task.info.unit, notes=(*evaluation.notes, *added))
