"""The command ``heedful predict``."""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from heedful.cli import options
from heedful.cli.inputs import Source, in_blocks, names_of, text_of
from heedful.cli.mask_folder import MaskFolder, folders_of, is_folder
from heedful.cli.options import Beam, DecodingChanges, Device, Precision, from_command_line
from heedful.cli.output import check_not_input, check_out, json_result, log, one_line, result, write_result
from heedful.cli.tables import OUTPUTS, TableWriter
from heedful.errors import DataError, RequestError, WorkError
from heedful.files import has_suffix
from heedful.tables import Dialect
from heedful.tasks.prediction import Prediction, Predictor
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.data.lines import Record
    from heedful.runs.run import Run
    from heedful.tasks.embedding import Embedding
    from heedful.tasks.generation.streaming import Streaming
    from heedful.tasks.task_info import Columns

Answer = TypeVar("Answer")

JSON_LINES = (".jsonl", ".ndjson")
"""Suffixes of JSON lines."""

NAMED_FORMS = (".csv", ".tsv", ".conll", ".conllu", *JSON_LINES)
"""Suffixes that say how a file is read, so that nobody needs to be informed."""

FIRST = 10
"""Number of notes per sort that are logged in full."""


@dataclass(frozen=True)
class Inputs:
    """Options for the inputs and their format."""

    file: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Inputs (texts or paths of images), one per line; a table (.csv, .tsv, .xlsx, .parquet); "
            "JSON lines (.jsonl); or images and folders of images. - reads standard input.",
            show_default=False,
        ),
    ] = None
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="FILE", help="The same as FILE; may be repeated.")
    ] = None
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read and write JSON lines; default for .jsonl files.")
    ] = False
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Field to read in a table or in JSON lines: NAME, once for each text of an input, or "
            "KEY=NAME (text=review); without a header, and in CoNLL, its number (text=0). "
            "[default: as in the recipe]",
        ),
    ] = None

    @property
    def files(self) -> list[str]:
        """The files; - if none is given."""
        return [*(self.data or ()), *(self.file or ())] or ["-"]

    @property
    def only_file(self) -> str | None:
        """The file, if it is only one and not a folder."""
        is_single = len(self.files) == 1 and not os.path.isdir(self.files[0])
        return self.files[0] if is_single else None

    def source(self, run: Path, verb: str = "predict", *, whole: bool = False) -> Source | None:
        """Open the source of the inputs; None if they are images themselves.

        Args:
            run: for messages, like ``verb``.
            verb: the verb.
            whole: whether the source is one input, including line breaks.

        Raises:
            DataError: the file does not exist; if it looks like a text, the message shows how to pass one.
        """
        file = self.only_file
        if file is None:
            return None
        from heedful.data.image_files import is_image_name

        if is_image_name(file):
            from heedful.data.lines import find

            find(file, Path())
            return None
        try:
            source = Source.of(file)
        except (DataError, OSError) as error:  # OSError: a text may be too long for a file name
            if os.path.exists(file) or not (" " in file or not Path(file).suffix):
                raise
            problem = error if isinstance(error, DataError) else f"{one_line(file[:60])}…: no such file"
            text = shlex.quote(file) if len(file) <= 60 else "TEXT"
            remedy = f"echo {text} | heedful {verb} {shlex.quote(str(run))}"
            raise DataError(f"{problem}; FILE must be a file of inputs; to pass a text: {remedy}") from None
        return source.as_one_line() if whole else source

    @property
    def structured(self) -> bool:
        """Whether answers are JSON lines."""
        return self.jsonl or has_suffix(self.only_file or "", *JSON_LINES)

    def blocks(
        self, source: Source | None, run: "Run", *, whole: bool = False, columns: "Columns | None" = None
    ) -> "Iterator[list[Record]]":
        """Yield the inputs in blocks that are answered together (see `read`)."""
        records = self.read(source, run, whole=whole, columns=columns)
        return in_blocks(records) if source is None else source.blocks(records)

    def read(
        self, source: Source | None, run: "Run", *, whole: bool = False, columns: "Columns | None" = None
    ) -> "Iterator[Record]":
        """Yield the inputs: records of the file, or files themselves if they are images.

        Args:
            source: the source of the inputs.
            run: the run.
            whole: whether the source is one input, whatever the file's name.
            columns: the columns of an input; by default those of predictions.

        Raises:
            RequestError: the run or the file does not support the options.
            DataError: a folder has no images, or the file is in the wrong format.
        """
        from heedful.runs.inputs import FORMS, input_form, read_inputs

        columns = columns or run.task.columns
        if source is None:
            return self._images(run, columns)
        names = self._names(columns)
        form = "lines" if whole else input_form(run, columns, source.file, names)
        if form == "lines" and self.structured and not whole:
            form = "jsonl"
            if source.file.can_be_read_again:
                check_objects(source, columns.inputs)
        if self.column and form == "lines":
            raise RequestError(
                "--column requires a table (.csv, .tsv, .xlsx, .parquet), CoNLL or JSON lines; for standard "
                "input, write it to a file"
            )
        if form in FORMS and not has_suffix(self.files[0], *NAMED_FORMS) and source.file.can_be_read_again:
            log(f"heedful: {self.files[0]}: read as {FORMS[form]}")
        return read_inputs(run, columns, source.file, form, names)

    def dialect(self, source: Source | None, run: "Run", *, whole: bool) -> Dialect:
        """Return the dialect of the file if it is a table, or the usual one; arguments as of `read`."""
        from heedful.runs.inputs import input_dialect, input_form

        if source is None or whole:
            return Dialect()
        columns = run.task.columns
        names = self._names(columns)
        form = input_form(run, columns, source.file, names)
        return input_dialect(run, columns, source.file, form, names)

    def _names(self, columns: "Columns") -> dict[str, str]:
        """Return the fields that the user names, by column."""
        return names_of(self.column or (), (*columns.inputs, *columns.optional_inputs))

    def _images(self, run: "Run", columns: "Columns") -> "Iterator[Record]":
        """Yield the images that are given as files and folders."""
        from heedful.data.lines import Location, Record

        if not run.task.columns.images:
            if (file := self.only_file) is not None:
                raise RequestError(f"{file}: an image; this run reads texts")
            is_folder = len(self.files) == 1
            problem = f"{self.files[0]}: is a folder, not a file" if is_folder else "expected one FILE"
            raise RequestError(f"{problem}; several files and folders are for images, not for this task")
        rows = ({columns.inputs[0]: path} for path in image_paths(self.files))
        return (Record(Location(""), row, row) for row in rows)


def check_objects(source: Source, columns: Sequence[str]) -> None:
    """Check that a file begins with an object of JSON, or an array, whose reader has a remedy of its own.

    Raises:
        RequestError: it has lines of text.
    """
    first = next(filter(str.strip, source.lines()), "{").lstrip()
    if first.startswith(("{", "[")):
        return
    fields = ", ".join(f"{column}: .[{number}]" for number, column in enumerate(columns))
    program = f"{{{columns[0]}: .}}" if len(columns) == 1 else f'split("\\t") | {{{fields}}}'
    command = f"jq -Rc {shlex.quote(program)} {shlex.quote(source.file.name)} > NEW.jsonl"
    raise RequestError(
        f"{source.file.name}: --jsonl requires JSON lines, got lines of text; convert them: {command}"
    )


def image_paths(files: Sequence[str]) -> Iterator[str]:
    """Yield the paths of images: files as given, and those in folders and their subfolders, sorted by name.

    Raises:
        DataError: a folder has no images, or one of several files is not an image by its name.
    """
    from heedful.data.image_files import SUFFIXES, is_image_name, unread_note
    from heedful.data.lines import File, files_in

    for file in files:
        if os.path.isdir(file):
            found = [found.name for found in files_in(File(Path(file), file))]
            if not (images := [name for name in found if is_image_name(name)]):
                raise DataError(
                    f"{file}: no images in this folder; expected files named {', '.join(SUFFIXES)}"
                )
            if note := unread_note(
                [Path(name).relative_to(file) for name in found if not is_image_name(name)]
            ):
                log(f"heedful: {file}: {note}")
            yield from images
        elif is_image_name(file):
            yield file
        else:
            raise DataError(f"{file}: expected an image or a folder; a list of paths must be the only FILE")


@dataclass(frozen=True)
class DecodingOptions(DecodingChanges):
    """Options for decoding and for single tasks."""

    beam: Beam = None
    n_best: Annotated[
        int | None, typer.Option("--n-best", min=1, help="Number of answers per input (requires --jsonl).")
    ] = None
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Add attention over the source (requires --jsonl).")
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
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Text that marks a gap in the inputs (masked language models). [default: [MASK]]",
        ),
    ] = None

    def _check_task_options(self, run: "Run") -> None:
        """Check that the run's task supports the options.

        Raises:
            RequestError: an option is not supported.
        """
        from heedful.tasks.registry import TASKS

        for name in ("max_new_tokens", "stop", "prefix", "gap"):
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
            alignment=self.alignment,
            max_new_tokens=self.max_new_tokens,
            stop=[from_command_line(text) for text in self.stop or ()] or None,
            prefix=None if self.prefix is None else text_of(self.prefix),
            gap=None if self.gap is None else from_command_line(self.gap),
        )
        if decoding is not None:
            log(f"heedful: decoding in {run.inference(precision).description}")
        return predictor


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
        help="Write a table (.csv, .tsv or .jsonl): the fields of the inputs, the prediction and the "
        "probability of each label; or, for segmentation, a folder of masks (PNG).",
    ),
]


def _check_formats(inputs: Inputs, task: DecodingOptions, plain: Plain, out: Path | None) -> None:
    """Raise `RequestError` for options that the formats of inputs and outputs do not support."""
    if (task.alignment or task.n_best) and (out or not inputs.structured):
        raise RequestError("--n-best and --alignment require --jsonl, without --out")
    if (plain.stream or plain.whole) and inputs.structured:
        raise RequestError("--stream and --whole require plain text; remove --jsonl")
    if plain.whole and has_suffix(inputs.only_file or "", ".parquet"):
        raise RequestError("--whole: not supported for .parquet, which has rows; remove it")
    if plain.stream and out:
        raise RequestError("--stream is not supported with --out; remove one of them")


def predict(
    run: options.Run,
    inputs: Inputs,
    task: DecodingOptions,
    plain: Plain,
    precision: Precision = "auto",
    device: Device = "auto",
    out: Out = None,
) -> None:
    """Predict with a run: print one output per input, in order.

    Invalid inputs are reported and get an empty output; the exit status is then 1.
    """
    _check_formats(inputs, task, plain, out)
    if out is not None:
        check_not_input(out, inputs.files)
    with nullcontext() if out is None or is_folder(out) else TableWriter(out) as table:
        source = inputs.source(run, whole=plain.whole)
        from heedful.runs.arguments import streaming
        from heedful.runs.run import load

        loaded_run = load(run, device=device)
        masks = None if out is None or table is not None else _mask_folder(out, loaded_run, inputs)
        predictor = task.predictor(loaded_run, precision)
        if table is not None:
            table.dialect = inputs.dialect(source, loaded_run, whole=plain.whole)
        if plain.stream:
            records = inputs.read(source, loaded_run, whole=plain.whole)
            answers = _streamed(loaded_run, streaming(predictor, loaded_run.recipe.task.kind), records)
        else:
            blocks = inputs.blocks(source, loaded_run, whole=plain.whole)
            answers = _answers(loaded_run, predictor, blocks)
        columns = {*loaded_run.task.columns.inputs, *loaded_run.task.columns.required}
        first_key = loaded_run.task.columns.inputs[0]
        notes = NoteLog()
        for record, prediction in answers:
            if masks is not None:
                masks.add(record.row.get(first_key, ""), prediction)
            if table is not None:
                table.add(table_fields(record, table, loaded_run.task.columns), prediction)
            elif inputs.structured:
                json_result(answer_record(record, prediction, columns))
            else:
                result("" if plain.stream else one_line(prediction.text))
            notes.add(prediction, record.row.get(first_key))
        notes.summarize()
        if table is not None:
            table.write()
            log(f"{table.path}: {notes.n:,} rows")
        if masks is not None:
            log(f"{masks.path}: {len(masks):,} masks")
        if notes.failed:
            raise WorkError(f"{notes.failed} of {notes.n} inputs could not be read")


def _mask_folder(out: Path, run: "Run", inputs: Inputs) -> MaskFolder:
    """Return the folder of masks.

    Raises:
        RequestError: the task predicts no images, so that ``out`` must be a table.
    """
    if not run.task.info.predicts_images:
        check_out(out, OUTPUTS)
    return MaskFolder(out, folders_of(inputs.files))


def _answers(
    run: "Run", predictor: Predictor, blocks: "Iterable[Sequence[Record]]"
) -> "Iterator[tuple[Record, Prediction]]":
    """Yield each input with its answer, or with the error of an invalid input, block by block.

    Invalid inputs are replaced by empty ones, so that the others keep their ordinals.
    """
    n_answered, columns = 0, run.task.columns
    empty = dict.fromkeys(columns.inputs, "")
    for block in blocks:
        batch = [columns.input_of(empty if record.error else record.row) for record in block]
        predictions = predictor.predict(batch, first=n_answered)
        for record, prediction in zip(block, predictions, strict=True):
            yield record, Prediction("", error=str(record.error)) if record.error else prediction
        n_answered += len(block)


def _streamed(
    run: "Run", predictor: "Streaming", records: "Iterable[Record]"
) -> "Iterator[tuple[Record, Prediction]]":
    """Print each answer while it is generated, then yield its input and the answer or the error."""
    key = run.task.columns.inputs[0]
    for ordinal, record in enumerate(records):
        prediction = Prediction("", error=str(record.error))
        if record.error is None:
            try:
                pieces = predictor.stream(record.row[key], ordinal=ordinal)
                while True:
                    write_result(next(pieces))
            except StopIteration as end:
                prediction = end.value
            except DataError as error:
                prediction = Prediction("", error=str(error))
        yield record, prediction


def answer_record(record: "Record", prediction: Prediction, columns: set[str]) -> JsonObject:
    """Merge the answer with the input's other fields; those that clash with the answer go under ``input``.

    The task's ``columns`` also go under ``input`` if the input could not be read.
    """
    answer = {**prediction.to_dict(), "version": 1}
    return with_input(record, answer, {*prediction.keys(), *(columns if record.error else ())})


def table_fields(record: "Record", table: TableWriter, columns: "Columns") -> JsonMapping:
    """Return the fields of a record for a table: words as a line, as tags are, but for JSON lines."""
    from heedful.tasks.inputs.words import as_line

    words = record.row.get(columns.inputs[0])
    if table.is_jsonl or not columns.input_lists or not isinstance(words, list):
        return record.fields
    return {name: as_line(words) if value == words else value for name, value in record.fields.items()}


def with_input(record: "Record", answer: JsonObject, reserved: Collection[str]) -> JsonObject:
    """Merge an answer with the input's fields; ``reserved`` ones go under ``input``."""
    nested_keys = {"version", "input", *reserved}
    nested = {key: value for key, value in record.fields.items() if key in nested_keys}
    passed_through = {key: value for key, value in record.fields.items() if key not in nested_keys}
    return {**passed_through, **({"input": nested} if nested else {}), **answer}


def answered(
    blocks: "Iterable[Sequence[Record]]",
    columns: "Columns",
    answer: Callable[[list[Any]], Iterable[Answer]],
    failed: Callable[[str], Answer],
) -> "Iterator[tuple[Record, Answer]]":
    """Yield each input with its answer, or with the error of an invalid input, block by block.

    Args:
        blocks: the inputs.
        columns: the columns of an input.
        answer: returns the answers to valid inputs.
        failed: returns the answer to an invalid input, from its error.
    """
    for block in blocks:
        answers = iter(answer([columns.input_of(record.row) for record in block if record.error is None]))
        for record in block:
            yield record, next(answers) if record.error is None else failed(str(record.error))


class NoteLog:
    """Log notes and errors of answers: the first notes of each sort in full, the others as a count.

    Errors are always logged. Unknown words and other notes are counted separately, so that many of one sort
    do not hide the other.
    """

    def __init__(self) -> None:
        self.n = self.failed = 0
        self._counts: Counter[str] = Counter()
        self._odd: Counter[str] = Counter()

    def add(self, answer: "Prediction | Embedding", input_text: Any) -> None:
        """Log the note or error of one answer; ``input_text`` is its input."""
        from heedful.tasks.inputs.texts import is_of_unknown_words

        self.n += 1
        if answer.error:
            self.failed += 1
            log(f"heedful: {answer.error}")
            return
        self._add_odd(answer, input_text)
        if answer.note:
            kind = "unknown words" if is_of_unknown_words(answer.note) else "a note"
            self._counts[kind] += 1
            if self._counts[kind] <= FIRST:
                log(f"heedful: {answer.note}: {input_text[:60]!r}{'…' * (len(input_text) > 60)}")

    def _add_odd(self, answer: "Prediction | Embedding", input_text: Any) -> None:
        """Count an input that is answered like any other, although it is hardly a text."""
        from heedful.data.findings import NUL

        texts = [input_text] if isinstance(input_text, str) else input_text
        if isinstance(texts, list) and any(isinstance(text, str) and NUL in text for text in texts):
            self._odd["with NUL characters, which are read as text"] += 1
        if isinstance(input_text, str) and input_text.isspace() and not answer.note:
            self._odd["of white space alone, which is read as text"] += 1

    def summarize(self) -> None:
        """Log how many inputs are hardly texts, and how many further notes of each sort there were."""
        for kind, n in self._odd.items():
            log(f"heedful: {n:,} input{'s' * (n > 1)} {kind}")
        for kind, n in self._counts.items():
            if n > FIRST:
                further = f"{n - FIRST:,} more input{'s' if n > FIRST + 1 else ''}"
                log(f"heedful: … and {further} with {kind} (use --jsonl to get the note of every answer)")
