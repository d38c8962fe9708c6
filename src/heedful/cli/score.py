"""The command ``heedful score``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.cli.inputs import Input, Source
from heedful.cli.options import Device
from heedful.cli.output import json_result, result
from heedful.cli.predict import Inputs, NoteLog, answer_record, answered
from heedful.cli.tables import table_inputs
from heedful.errors import RequestError, WorkError
from heedful.tasks.prediction import Prediction

if TYPE_CHECKING:
    from heedful.runs.run import Run
    from heedful.tasks.task_info import Columns

Whole = Annotated[bool, typer.Option("--whole", help="Read FILE as a single text, including line breaks.")]


def score(run: options.Run, inputs: Inputs, whole: Whole = False, device: Device = "auto") -> None:
    """Print the log-probability (natural logarithm) of given texts: one number per input, in order.

    An input is a text; for translators and captioners a source (or path) and a text, separated by a tab. JSON
    lines also have the log-probability of each token. Invalid inputs get an empty output; the exit status is
    then 1.
    """
    if whole and (inputs.structured or inputs.is_parquet or inputs.is_table):
        raise RequestError("--whole requires a plain text file; remove it")
    if inputs.only_file is None:
        raise RequestError("expected one FILE of texts to score")
    source = inputs.source(run, "score")
    from heedful.runs.arguments import text_scoring
    from heedful.runs.run import load

    loaded_run = load(run, device=device)
    columns = text_scoring(loaded_run.task).scored
    parsed = _parsed(source.as_one_line() if whole else source, loaded_run, inputs, columns)
    notes = NoteLog()
    answers = answered(
        source.blocks(parsed), columns, loaded_run.score, lambda error: Prediction("", error=error)
    )
    for parsed_input, prediction in answers:
        if inputs.structured:
            json_result(answer_record(parsed_input, prediction, {*columns.inputs, *columns.required}))
        else:
            result("" if prediction.error else f"{prediction.score:.4f}")
        notes.add(prediction, str(parsed_input.values.get(columns.inputs[-1], "")))
    notes.summarize()
    if notes.failed:
        raise WorkError(f"{notes.failed} of {notes.n} inputs could not be scored")


def _parsed(source: Source, run: "Run", inputs: Inputs, columns: "Columns") -> Iterator[Input]:
    """Yield the inputs of the file."""
    input_format = inputs.input_format(run, columns)
    if inputs.is_table:
        return table_inputs(inputs.files[0], input_format, run.recipe.data.train)
    return input_format.read(source, structured=inputs.structured or inputs.is_parquet)
