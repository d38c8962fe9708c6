"""Options of commands that constrain the outputs of a run, and constraints in the fields of its inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import from_command_line
from heedful.errors import DataError

if TYPE_CHECKING:
    from heedful.api.run import Run
    from heedful.data.lines import Record
    from heedful.tasks.generation.output_constraints import OutputConstraints, Terminology


@dataclass(frozen=True)
class ConstraintOptions:
    """Options for constraints on outputs."""

    must: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Phrase that every output must contain (beam search); may be repeated."
        ),
    ] = None
    must_not: Annotated[
        list[str] | None,
        typer.Option(
            "--must-not", metavar="TEXT", help="Phrase that no output may contain; may be repeated."
        ),
    ] = None
    target_prefix: Annotated[
        str | None,
        typer.Option("--target-prefix", metavar="TEXT", help="Text with which every output begins."),
    ] = None
    terminology: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.tsv",
            help="Lines with a source term, a tab and a target term: outputs contain the target terms of the "
            "source terms in their inputs (beam search).",
        ),
    ] = None

    def constraints(self, run: "Run", *, are_objects: bool) -> "RecordConstraints":
        """Return the constraints of this run's outputs.

        Args:
            run: the run.
            are_objects: whether inputs are JSON lines, whose fields may add constraints.

        Raises:
            RequestError: the run does not support them.
            DataError: the terminology cannot be read.
        """
        from heedful.runs.output_constraints import check_supported
        from heedful.tasks.generation.output_constraints import OutputConstraints, Terminology

        texts = {
            "must": [from_command_line(text) for text in self.must or ()] or None,
            "must_not": [from_command_line(text) for text in self.must_not or ()] or None,
            "target_prefix": None if self.target_prefix is None else from_command_line(self.target_prefix),
        }
        given = {name: value for name, value in texts.items() if value is not None}
        for name in (*given, *(["terminology"] if self.terminology else [])):
            check_supported(run.task, name, f"--{name.replace('_', '-')}")
        terminology = None if self.terminology is None else Terminology.read(self.terminology)
        reads_fields = are_objects and run.task.info.writes
        return RecordConstraints(OutputConstraints.of(given), terminology, reads_fields)


@dataclass(frozen=True)
class RecordConstraints:
    """The constraints of the output for each record.

    Args:
        shared: those of all outputs.
        terminology: terms that the output has if its input has them.
        reads_fields: whether records may have constraints of their own in their fields.
    """

    shared: "OutputConstraints"
    terminology: "Terminology | None" = None
    reads_fields: bool = False

    @property
    def used(self) -> bool:
        """Whether there may be any."""
        return bool(self.shared or self.terminology or self.reads_fields)

    def of(self, record: "Record", task_input: object) -> "OutputConstraints":
        """Return the constraints of the output for a record.

        Raises:
            DataError: a field has the wrong type.
        """
        from heedful.tasks.generation.output_constraints import OutputConstraints

        constraints = self.shared
        if self.reads_fields:
            try:
                constraints = constraints.joined(OutputConstraints.of(record.fields))
            except DataError as error:
                raise DataError(f"{record.location}: {error}") from None
        if self.terminology is not None and isinstance(task_input, str):
            constraints = constraints.joined(self.terminology.constraints(task_input))
        return constraints

    def for_block(
        self, block: "Sequence[Record]", inputs: Sequence[object]
    ) -> "tuple[list[OutputConstraints], dict[int, str]]":
        """Return the constraints for each record, and the errors of those that are invalid, by index."""
        from heedful.tasks.generation.output_constraints import NO_CONSTRAINTS

        constraints, errors = [], {}
        for i, (record, task_input) in enumerate(zip(block, inputs, strict=True)):
            try:
                constraints.append(NO_CONSTRAINTS if record.error else self.of(record, task_input))
            except DataError as error:
                constraints.append(NO_CONSTRAINTS)
                errors[i] = str(error)
        return constraints, errors
