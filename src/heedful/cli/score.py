"""The command ``heedful score``."""

from typing import Annotated

import typer

from heedful.cli import options
from heedful.cli.answers import NoteLog, located
from heedful.cli.inputs import Inputs, Output
from heedful.cli.options import Device, Ensemble, load_runs
from heedful.cli.output import json_result, result
from heedful.errors import RequestError, WorkError
from heedful.tasks.prediction import Prediction

Whole = Annotated[bool, typer.Option("--whole", help="Read FILE as a single text, including line breaks.")]


def score(
    run: options.Run,
    inputs: Inputs,
    output: Output,
    whole: Whole = False,
    ensemble: Ensemble = None,
    device: Device = "auto",
) -> None:
    """Print the log-probability (natural logarithm) of given texts: one number per input, in order.

    An input is a text; for translators and captioners a source (or path) and a text, separated by a tab. JSON
    lines also have the log-probability of each token. Invalid inputs get an empty output; the exit status is
    then 1.
    """
    from heedful.data.user_files import is_user_table

    if whole and (inputs.are_objects or is_user_table(inputs.files[0])):
        raise RequestError("--whole requires a plain text file; remove it")
    is_jsonl = output.is_jsonl(inputs)
    source = inputs.source(run, "score", whole=whole)
    if source is None:
        raise RequestError("expected one FILE of texts to score")
    from heedful.runs.arguments import text_scoring
    from heedful.runs.inputs import answered

    loaded_run = load_runs(run, ensemble, device)
    columns = text_scoring(loaded_run.task).scored
    blocks = inputs.read(source, loaded_run, whole=whole, columns=columns).blocks()
    notes = NoteLog()
    answers = answered(blocks, columns, loaded_run.score, lambda error: Prediction("", error=error))
    for record, answer in answers:
        prediction = located(record, answer)
        if is_jsonl:
            json_result(prediction.to_dict(record.fields))
        else:
            result("" if prediction.error else f"{prediction.score:.4f}")
        notes.add(prediction, str(record.row.get(columns.inputs[-1], "")), record.location)
    notes.summarize()
    if notes.failed:
        raise WorkError(f"{notes.failed} of {notes.n} inputs could not be scored")
