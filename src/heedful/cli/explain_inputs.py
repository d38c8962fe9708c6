"""The inputs of ``heedful explain``, and a given answer."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.input_streams import Source
from heedful.cli.inputs import Inputs as FileInputs
from heedful.cli.options import from_command_line
from heedful.cli.output import log
from heedful.errors import RequestError
from heedful.explain.views import OVER_INPUTS

if TYPE_CHECKING:
    from heedful.api.run import Run
    from heedful.data.lines import Record
    from heedful.tasks.prediction import TaskInput

SEVERAL = f"several need --view {', '.join(OVER_INPUTS[:-1])} or {OVER_INPUTS[-1]}"
"""For messages: what several inputs need."""


@dataclass(frozen=True)
class Inputs:
    """Options for the inputs, and for a given answer instead of the predicted one."""

    input: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="A text, two texts separated by a tab, or the path of an image; - reads standard input. The "
            "first input is explained; views over all inputs use the others too.",
        ),
    ] = None
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Also read inputs from a file, as predict does (lines, a table, JSON lines, CoNLL, paths of "
            "images), skipping empty ones; - reads standard input. Several need a view over all inputs, or "
            "--out for every input.",
        ),
    ] = None
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Field to read in the file of --inputs: NAME or KEY=NAME, as of predict."
        ),
    ] = None
    pair: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, for runs that read text pairs.")
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Explain this answer (text or label) instead of the predicted one."
        ),
    ] = None

    def read(self, run: "Run") -> "Sequence[TaskInput]":
        """Return the inputs in the form the run takes: arguments first, then those of ``--inputs``.

        Raises:
            RequestError: there is no input, or ``--pair`` is given with several inputs.
            DataError: the file does not exist, or an input in it cannot be read.
        """
        texts, others = self._arguments(run), [*self._valid_in_file(run)]
        if not texts and not others:
            raise self._no_input()
        if self.pair is not None:
            if _max_texts(run) == 1:
                raise RequestError(f"--pair: task {run.recipe.task.kind} reads a single text; remove --pair")
            if len(texts) + len(others) > 1 or not all(isinstance(other, str) for other in others):
                raise RequestError(
                    "--pair: not supported with several inputs; separate the two texts of each by a tab"
                )
            return [(str([*texts, *others][0]), from_command_line(self.pair))]
        return [*texts, *others]

    def records(self, run: "Run") -> "Iterator[tuple[Record, TaskInput]]":
        """Yield each input that is not empty with its record; of a record with an error, the input is empty.

        The record of an argument has the field ``input``.

        Raises:
            RequestError: as of `read`; or ``--pair`` is given.
        """
        from heedful.data.lines import Location, Record

        if self.pair is not None:
            raise RequestError(
                "--pair: not supported with a table, folder or JSON lines; separate the two texts by a tab"
            )
        if not self.input and self.inputs is None:
            raise self._no_input()
        for given in self._arguments(run):
            text = "\t".join(map(str, given)) if isinstance(given, tuple) else str(given)
            yield Record(Location(""), {"input": text}), given
        yield from self._in_file(run)

    def _no_input(self) -> RequestError:
        file = self.inputs
        return RequestError(f"{file}: contains no input" if file else "no input: give INPUT or --inputs FILE")

    def _arguments(self, run: "Run") -> "list[TaskInput]":
        """Return the inputs of the command line; two texts with a tab between them are a pair."""
        texts = self._texts()
        if run.task.columns.images:
            for text in texts:
                if os.path.isdir(text):
                    raise RequestError(
                        f"{text}: is a folder; give the path of an image in it, or --inputs {text} to read "
                        f"all of them ({SEVERAL})"
                    )
        else:
            for text in self.input or []:
                if os.path.isfile(text):
                    log(
                        f"heedful: {text!r} is read as a text; to read the inputs in this file, use --inputs "
                        f"({SEVERAL})"
                    )
            texts = [from_command_line(text) for text in texts]
        if _max_texts(run) == 1 or self.pair is not None:
            return [*texts]
        return [tuple(text.split("\t")) if "\t" in text else text for text in texts]

    def _texts(self) -> list[str]:
        arguments = self.input or []
        if self.inputs == "-" and "-" in arguments:
            raise RequestError("--inputs -: INPUT already reads standard input")
        return [Source.of(text).text() if text == "-" else text for text in arguments]

    def _valid_in_file(self, run: "Run") -> "Iterator[TaskInput]":
        """Yield the inputs of the file; raise the error of one that cannot be read."""
        for record, task_input in self._in_file(run):
            if record.error is not None:
                raise record.error
            yield task_input

    def _in_file(self, run: "Run") -> "Iterator[tuple[Record, TaskInput]]":
        """Yield the inputs of the file that are not empty with their records, read as `heedful predict` does.

        Raises:
            RequestError: there are names of columns, but no file.
        """
        from heedful.data.lines import EmptyLineError

        if self.inputs is None:
            if self.column:
                raise RequestError("--column: names the columns of a file; add --inputs FILE")
            return
        given = FileInputs(file=[self.inputs], column=self.column)
        for record in given.read(given.source(run.folder.path, "explain"), run).records:
            if isinstance(record.error, EmptyLineError):
                continue
            task_input = "" if record.error else run.task.columns.input_of(record.row)
            if record.error or not _is_blank(task_input):
                yield record, task_input


def _max_texts(run: "Run") -> int:
    """Return the number of texts that an input may have."""
    return len(run.task.columns.inputs) + len(run.task.columns.optional_inputs)


def _is_blank(task_input: "TaskInput") -> bool:
    """Whether an input has no text in any part."""
    parts = task_input if isinstance(task_input, list | tuple) else [task_input]
    return not any(not isinstance(part, str) or part.strip() for part in parts)
