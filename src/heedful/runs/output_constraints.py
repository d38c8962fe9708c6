"""Constraints on the outputs of a prediction, from the arguments of a call: for all inputs, or for each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, TypedDict, cast

from heedful.errors import DataError, RequestError
from heedful.runs.loading import RunOptions
from heedful.tasks.base import Task
from heedful.tasks.generation.output_constraints import CONSTRAINT_KEYS, OutputConstraints, Terminology
from heedful.tasks.prediction import TaskInput
from heedful.tasks.task_info import TaskInfo

Phrases: TypeAlias = Sequence[str] | Sequence[Sequence[str] | None]
"""Phrases for all inputs, or a list of them (or None) for each."""


Terms: TypeAlias = Mapping[str, str] | Path | str
"""Target terms by source term, or a file of them."""


class ConstraintOptions(TypedDict, total=False):
    """Constraints on outputs, as arguments of a prediction; None: not given."""

    must: Phrases | None
    must_not: Phrases | None
    target_prefix: str | Sequence[str | None] | None
    terminology: Terms | None


class OutputOptions(RunOptions, ConstraintOptions, total=False):
    """Options of a prediction: those of its predictor, and constraints on outputs."""


def run_options(options: OutputOptions) -> RunOptions:
    """Return the options without the constraints on outputs."""
    names = ConstraintOptions.__annotations__
    return cast(RunOptions, {name: value for name, value in options.items() if name not in names})


def check_supported(task: Task, name: str, option: str = "") -> None:
    """Check that a task generates the texts that are to be constrained.

    Args:
        task: the task.
        name: of the constraint.
        option: how the user wrote it, if it differs.

    Raises:
        RequestError: it does not; or it reads no texts, in which source terms could occur.
    """
    info: TaskInfo = task.info
    option = option or name
    if not info.writes:
        raise RequestError(
            f"{option}: not supported for task {task.recipe.task.kind}, which generates no text"
        )
    if name == "terminology" and (task.columns.images or task.columns.running_text):
        raise RequestError(
            f"{option}: not supported for task {task.recipe.task.kind}, which has no source text; use must"
        )


def constraints_of(
    task: Task, inputs: Sequence[TaskInput], options: OutputOptions
) -> list[OutputConstraints]:
    """Return the constraints of the output for each input; empty if there are none.

    Raises:
        RequestError: the task generates no text, an option has the wrong type, or it does not have as many
            entries as there are inputs.
    """
    names = ConstraintOptions.__annotations__
    given = {name: value for name, value in options.items() if name in names and value is not None}
    for name in given:
        check_supported(task, name)
    terms = given.pop("terminology", None)
    terminology = None if terms is None else Terminology.of(terms)
    if not given and terminology is None:
        return []
    values = {name: _for_each(name, given[name], len(inputs)) for name in CONSTRAINT_KEYS if name in given}
    constraints = []
    for number, task_input in enumerate(inputs):
        try:
            own = OutputConstraints.of({name: entries[number] for name, entries in values.items()})
        except DataError as error:
            raise RequestError(f"inputs[{number}]: {error}") from None
        if terminology is not None and isinstance(task_input, str):
            own = own.joined(terminology.constraints(task_input))
        constraints.append(own)
    return constraints if any(constraints) else []


def _for_each(name: str, value: object, n: int) -> Sequence[object]:
    """Return the value of an option for each of ``n`` inputs."""
    if isinstance(value, str):
        return [value] * n
    if not isinstance(value, list | tuple):
        raise RequestError(f"{name}: expected texts, or a list with an entry for each input")
    if name != "target_prefix" and all(isinstance(entry, str) for entry in value):
        return [value] * n
    if len(value) != n:
        raise RequestError(f"{name}: expected {n} entries, one for each input, got {len(value)}")
    return value
