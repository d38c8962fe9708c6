"""The command ``heedful predict``."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heedful.cli import options
from heedful.cli.answers import NoteLog, located, table_fields
from heedful.cli.constraint_options import ConstraintOptions, RecordConstraints
from heedful.cli.input_streams import text_of
from heedful.cli.inputs import Inputs, Output
from heedful.cli.mask_folder import MaskFolder, folders_of, is_folder
from heedful.cli.options import (
    Beam,
    DecodingChanges,
    Device,
    Ensemble,
    Precision,
    from_command_line,
    load_runs,
)
from heedful.cli.output import check_not_input, check_out, json_result, log, one_line, result, write_result
from heedful.cli.tables import OUTPUTS, TableWriter
from heedful.data.links import pharaoh
from heedful.errors import DataError, RequestError, WorkError
from heedful.files import has_suffix
from heedful.tasks.prediction import Prediction, Predictor

if TYPE_CHECKING:
    from heedful.api.run import Run
    from heedful.data.lines import Record
    from heedful.tasks.generation.streaming import Streaming


@dataclass(frozen=True)
class DecodingOptions(DecodingChanges):
    """Options for decoding and for single tasks."""

    beam: Beam = None
    n_best: Annotated[
        int | None,
        typer.Option(
            "--n-best",
            min=1,
            help="Number of answers per input (with --to jsonl, or --out; in a table prediction_2, …).",
        ),
    ] = None
    alignment: Annotated[
        bool,
        typer.Option(
            "--alignment",
            help="Add the word alignment with the source: 0-0 1-2 after a tab; with --jsonl, pairs.",
        ),
    ] = False
    alignment_head: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER.HEAD",
            help="Head that aligns, from 1 (3.1), or LAYER for the mean of its heads. [default: the best]",
        ),
    ] = None
    alignment_step: Annotated[
        Literal["output", "input"],  # heedful.objectives.guided.DecoderStep
        typer.Option(
            help="Use the weights of --alignment-head when it predicts the word (output) or reads it (input)."
        ),
    ] = "output"
    attention: Annotated[
        bool,
        typer.Option(
            "--attention", help="Add attention over the source (with --to jsonl, or --out NAME.jsonl)."
        ),
    ] = False
    max_new_tokens: Annotated[
        int | None,
        typer.Option("--max-new-tokens", min=1, help="Maximum number of generated tokens (language models)."),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Stop generating before this text; may be repeated (language models)."
        ),
    ] = None
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File whose text is prepended to every input unchanged, e.g. few-shot examples (language "
            "models).",
        ),
    ] = None
    regex: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="Regular expression that every output matches (language models)."
        ),
    ] = None
    json_schema: Annotated[
        str | None,
        typer.Option(
            "--json-schema",
            metavar="FILE",
            help="JSON schema of every output (language models).",
        ),
    ] = None
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Text that marks a gap in the inputs (masked language models). [default: [MASK]]",
        ),
    ] = None

    words: Annotated[
        Literal["blanks", "raw"] | None,
        typer.Option(
            help="Split inputs into words at blanks, or as raw text into words and punctuation marks at the "
            "word boundaries of Unicode (taggers). [default: blanks]",
        ),
    ] = None
    threshold: Annotated[
        float | None,
        typer.Option(
            parser=options.probability,
            metavar="NUMBER",
            min=0,
            max=1,
            help="Hold back answers less probable than this: labels, tags and answers from passages. "
            "evaluate --accuracy finds a threshold.",
        ),
    ] = None
    otherwise: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Write this in place of answers that are held back, and for empty inputs. [default: none]",
        ),
    ] = None

    def _check_task_options(self, run: "Run") -> None:
        """Check that the run's task supports the options.

        Raises:
            RequestError: an option is not supported.
        """
        from heedful.tasks.registry import TASKS

        for name in ("max_new_tokens", "stop", "prefix", "regex", "json_schema", "gap", "words"):
            if getattr(self, name) and name not in run.task.info.options:
                task, option = run.recipe.task.kind, f"--{name.replace('_', '-')}"
                supporting_tasks = " and ".join(
                    key for key, task in TASKS.items() if name in task.info.options
                )
                remedy = ""
                if name == "max_new_tokens" and run.recipe.decoding is not None:
                    remedy = f"; set --decoding max_length.cap={self.max_new_tokens}"
                raise RequestError(
                    f"{option}: not supported for task {task}, only for {supporting_tasks}{remedy}"
                )

    def predictor(self, run: "Run", precision: str) -> Predictor:
        """Return the predictor with these options."""
        self._check_task_options(run)
        decoding = self.changed(run.recipe.decoding, self.beam)
        predictor = run.predictor(
            beam=self.beam,
            n_best=self.n_best,
            decoding=decoding,
            precision=precision,
            attention=self.attention,
            max_new_tokens=self.max_new_tokens,
            stop=[from_command_line(text) for text in self.stop or ()] or None,
            prefix=None if self.prefix is None else text_of(self.prefix),
            regex=None if self.regex is None else from_command_line(self.regex),
            json_schema=self.json_schema,
            gap=None if self.gap is None else from_command_line(self.gap),
            words=self.words,
        )
        if self.alignment:
            predictor = self._aligning(run, predictor)
        if decoding is not None:
            log(f"heedful: decoding in {run.inference(precision).description}")
        return predictor

    def abstaining(self, run: "Run", predictor: Predictor) -> Predictor:
        """Return the predictor that holds answers back."""
        from heedful.tasks.abstaining import Abstaining

        return Abstaining.of(run.task, predictor, self.threshold, self.otherwise)

    def _aligning(self, run: "Run", predictor: Predictor) -> Predictor:
        """Return the predictor with word alignments, and log which head aligns."""
        from heedful.explain.alignment.word_alignment import HeadChoice

        given = self.alignment_head
        choice = given and HeadChoice.parse(given, "--alignment-head", self.alignment_step)
        aligning = run.aligning(predictor, choice or None)
        if choice is None:
            log(f"heedful: alignment by {aligning.head.choice} ({aligning.head.reason})")
        return aligning


@dataclass(frozen=True)
class Plain:
    """Options for plain text input and output."""

    stream: Annotated[
        bool, typer.Option("--stream", help="Print answers while they are generated, including line breaks.")
    ] = False
    whole: Annotated[
        bool, typer.Option("--whole", help="Read FILE as a single input, including line breaks.")
    ] = False


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Write a table (.csv, .tsv, .xlsx or .jsonl): the fields of the inputs, the prediction, its "
        "probability, that of each label, and notes; or, for segmentation, a folder of masks (PNG).",
    ),
]


JSON_LINES = ".jsonl"

JSON_OUTPUT = "--to jsonl (--jsonl for inputs in JSON lines), or --out NAME.jsonl"


def _check_formats(
    inputs: Inputs, task: DecodingOptions, plain: Plain, out: Path | None, *, is_jsonl: bool
) -> None:
    """Raise `RequestError` for options that the formats of inputs and outputs do not support."""
    writes_json = is_jsonl if out is None else has_suffix(out.name, JSON_LINES)
    if task.attention and not writes_json:
        raise RequestError(f"--attention requires {JSON_OUTPUT}")
    if (task.n_best or 1) > 1 and out is None and not writes_json:
        raise RequestError(f"--n-best {task.n_best} requires {JSON_OUTPUT}, or a table: --out NAME.csv")
    if task.alignment_head is not None and not task.alignment:
        raise RequestError("--alignment-head requires --alignment")
    if task.alignment_step != "output" and task.alignment_head is None:
        raise RequestError("--alignment-step requires --alignment-head")
    if plain.stream and (task.threshold is not None or task.otherwise is not None):
        raise RequestError("--stream is not supported with --threshold and --otherwise; remove one of them")
    if plain.stream and task.alignment:
        raise RequestError("--stream is not supported with --alignment; remove one of them")
    if (plain.stream and is_jsonl) or (plain.whole and inputs.are_objects):
        raise RequestError("--stream and --whole require plain text; remove --jsonl")
    if plain.whole and has_suffix(inputs.only_file or "", ".parquet"):
        raise RequestError("--whole: not supported for .parquet, which has rows; remove it")
    if plain.stream and out:
        raise RequestError("--stream is not supported with --out; remove one of them")


def predict(
    run: options.Run,
    inputs: Inputs,
    output: Output,
    task: DecodingOptions,
    plain: Plain,
    wanted: ConstraintOptions,
    ensemble: Ensemble = None,
    precision: Precision = "auto",
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Predict with a run: print one output per input, in order.

    Inputs that cannot be read are reported and get an empty output; the exit status is then 1. So do empty
    inputs, which are no failure: the exit status stays 0.
    """
    is_jsonl = output.is_jsonl(inputs)
    output.check_with(out)
    _check_formats(inputs, task, plain, out, is_jsonl=is_jsonl)
    if out is not None:
        check_not_input(out, inputs.files)
    holds_back = task.threshold is not None or task.otherwise is not None
    with nullcontext() if out is None or is_folder(out) else TableWriter(out, holds_back=holds_back) as table:
        source = inputs.source(run, whole=plain.whole)
        from heedful.runs.arguments import streaming

        loaded_run = load_runs(run, ensemble, device)
        masks = None if out is None or table is not None else _mask_folder(out, loaded_run, inputs)
        constraints = wanted.constraints(loaded_run, are_objects=inputs.are_objects)
        predictor = task.predictor(loaded_run, precision)
        given = inputs.read(source, loaded_run, whole=plain.whole)
        if table is not None:
            table.dialect = given.dialect()
        if plain.stream:
            stream = streaming(predictor, loaded_run.recipe.task.kind)
            answers = _streamed(loaded_run, stream, given.records, constraints)
        else:
            abstaining = task.abstaining(loaded_run, predictor)
            answers = _answers(loaded_run, abstaining, given.blocks(), constraints)
        first_key = loaded_run.task.columns.inputs[0]
        notes = NoteLog()
        for record, answer in answers:
            prediction = located(record, answer)
            if masks is not None:
                masks.add(record.row.get(first_key, ""), prediction)
            if table is not None:
                # In a table, the row is the location.
                shown = prediction if table.is_jsonl or prediction.error else answer
                table.add(table_fields(record, table, loaded_run.task.columns), shown)
            elif is_jsonl:
                json_result(prediction.to_dict(record.fields))
            else:
                result("" if plain.stream else _line(prediction, task.alignment))
            notes.add(prediction, record.row.get(first_key), record.location)
        notes.summarize()
        if table is not None:
            table.write()
            log(f"{table.path}: {notes.n:,} rows")
        if masks is not None:
            log(f"{masks.path}: {len(masks):,} masks")
        if notes.failed:
            done = "answered" if constraints.used else "read"
            raise WorkError(f"{notes.failed} of {notes.n} inputs could not be {done}")


def _line(prediction: Prediction, alignment: bool) -> str:
    """Return the line of an answer in plain text; with alignment, its pairs follow after a tab.

    White space in the answer is then written as spaces, so that the line has two fields, and words are those
    of the answer.
    """
    if not alignment:
        return one_line(prediction.text)
    return f"{_WHITE_SPACE.sub(' ', prediction.text)}\t{pharaoh(prediction.alignment or ())}"


_WHITE_SPACE = re.compile(r"\s")


def _mask_folder(out: Path, run: "Run", inputs: Inputs) -> MaskFolder:
    """Return the folder of masks.

    Raises:
        RequestError: the task predicts no images, so that ``out`` must be a table.
    """
    if not run.task.info.predicts_images:
        check_out(out, OUTPUTS)
    return MaskFolder(out, folders_of(inputs.files))


def _answers(
    run: "Run",
    predictor: Predictor,
    blocks: "Iterable[Sequence[Record]]",
    constraints: RecordConstraints,
) -> "Iterator[tuple[Record, Prediction]]":
    """Yield each input with its answer, or with the error of an invalid input, block by block.

    Invalid inputs are replaced by empty ones, so that the others keep their ordinals.
    """
    from heedful.tasks.generation.output_constraints import arguments_of

    n_answered, columns = 0, run.task.columns
    empty = dict.fromkeys(columns.inputs, "")
    for block in blocks:
        batch = [columns.input_of(empty if record.error else record.row) for record in block]
        wanted, errors = constraints.for_block(block, batch)
        predictions = predictor.predict(batch, first=n_answered, **arguments_of(wanted))
        for i, (record, prediction) in enumerate(zip(block, predictions, strict=True)):
            error = errors.get(i) or (record.error and str(record.error))
            if not error and prediction.error and wanted[i]:
                error = f"{record.location}: {prediction.error}"
            yield record, Prediction("", error=error) if error else prediction
        n_answered += len(block)


def _streamed(
    run: "Run", predictor: "Streaming", records: "Iterable[Record]", constraints: RecordConstraints
) -> "Iterator[tuple[Record, Prediction]]":
    """Print each answer while it is generated, then yield its input and the answer or the error."""
    key = run.task.columns.inputs[0]
    for ordinal, record in enumerate(records):
        prediction = Prediction("", error=str(record.error))
        if record.error is None:
            try:
                wanted = constraints.of(record, record.row[key])
                pieces = predictor.stream(record.row[key], ordinal=ordinal, constraints=wanted)
                while True:
                    write_result(next(pieces))
            except StopIteration as end:
                prediction = end.value
            except DataError as error:
                prediction = Prediction("", error=str(error))
        yield record, prediction
