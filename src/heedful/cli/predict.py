"""The command ``heedful predict``."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.inputs import Input, InputFormat, Source, text_of
from heedful.cli.options import Beam, Device, Precision, changed_decoding, from_command_line
from heedful.cli.output import json_result, log, one_line, result, write_result
from heedful.errors import DataError, RequestError, WorkError
from heedful.tasks.prediction import Prediction, Predictor
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.runs.run import Run
    from heedful.tasks.generation.streaming import Streaming

FIRST = 10
"""Number of notes per sort that are logged in full."""


@dataclass(frozen=True)
class Inputs:
    """Options for the inputs and their format."""

    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Inputs (texts or paths of images), one per line, or JSON lines; or a single image. "
            "- reads standard input.",
        ),
    ] = "-"
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Read and write JSON lines; default for .jsonl files.")
    ] = False

    def source(self, run: Path) -> Source:
        """Open the source of the inputs; ``run`` is used in error messages.

        Raises:
            DataError: the file does not exist; if it looks like a text, the message shows how to pass one.
        """
        try:
            return Source.of(self.file)
        except (DataError, OSError) as error:  # OSError: a text may be too long for a file name
            if os.path.exists(self.file) or not (" " in self.file or not Path(self.file).suffix):
                raise
            problem = error if isinstance(error, DataError) else f"{one_line(self.file[:60])}…: no such file"
            text = shlex.quote(self.file) if len(self.file) <= 60 else "TEXT"
            remedy = f"echo {text} | heedful predict {shlex.quote(str(run))}"
            raise DataError(f"{problem}; FILE must be a file of inputs; to pass a text: {remedy}") from None

    @property
    def structured(self) -> bool:
        """Whether inputs and answers are JSON lines."""
        return self.jsonl or self.file.endswith((".jsonl", ".jsonl.gz"))

    def read(self, source: Source, run: "Run") -> Iterator[Input]:
        """Yield the inputs: one per line, or the file itself if it is an image (not a list of paths)."""
        from heedful.data.images import SUFFIXES

        input_format = InputFormat.by(run)
        if run.task.columns.images and self.file.lower().endswith(SUFFIXES):
            return iter([Input({input_format.keys[0]: self.file})])
        return input_format.read(source, structured=self.structured)


@dataclass(frozen=True)
class DecodingOptions:
    """Options for decoding and for single tasks."""

    beam: Beam = None
    n_best: Annotated[
        int | None, typer.Option("--n-best", min=1, help="Number of answers per input (requires --jsonl).")
    ] = None
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Override a decoding setting, e.g. kind=sample; may be repeated."
        ),
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
        decoding = changed_decoding(run.recipe.decoding, self.decoding)
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


def predict(
    run: options.Run,
    inputs: Inputs,
    task: DecodingOptions,
    plain: Plain,
    precision: Precision = "auto",
    device: Device = "auto",
) -> None:
    """Predict with a run: print one output per input, in order.

    Invalid inputs are reported and get an empty output; the exit status is then 1.
    """
    if (task.alignment or task.n_best) and not inputs.structured:
        raise RequestError("--n-best and --alignment require --jsonl")
    if (plain.stream or plain.whole) and inputs.structured:
        raise RequestError("--stream and --whole require plain text; remove --jsonl")
    source = inputs.source(run)
    if plain.whole:
        source = source.as_one_line()
    from heedful.runs.run import load, streaming

    loaded_run = load(run, device=device)
    predictor = task.predictor(loaded_run, precision)
    parsed = inputs.read(source, loaded_run)
    if plain.stream:
        answers = _streamed(loaded_run, streaming(predictor, loaded_run.recipe.task.kind), parsed)
    else:
        answers = _answers(loaded_run, predictor, source.blocks(parsed))
    columns = {*loaded_run.task.columns.inputs, *loaded_run.task.columns.required}
    n, failed, notes = 0, 0, NoteLog()
    for parsed_input, prediction in answers:
        if inputs.structured:
            json_result(_answer_record(parsed_input, prediction, columns))
        else:
            result("" if plain.stream else one_line(prediction.text))
        n, failed = n + 1, failed + bool(prediction.error)
        notes.add(prediction, parsed_input.record.get(loaded_run.task.columns.inputs[0]))
    notes.summarize()
    if failed:
        raise WorkError(f"{failed} of {n} inputs could not be read")


def _answers(
    run: "Run", predictor: Predictor, blocks: Iterable[Sequence[Input]]
) -> Iterator[tuple[Input, Prediction]]:
    """Yield each input with its answer, or with the error of an invalid input, block by block.

    Invalid inputs are replaced by empty ones, so that the others keep their ordinals.
    """
    n_answered, columns = 0, run.task.columns
    empty = dict.fromkeys(columns.inputs, "")
    for block in blocks:
        batch = [
            columns.input_of(empty if parsed_input.error else parsed_input.record) for parsed_input in block
        ]
        predictions = predictor.predict(batch, first=n_answered)
        for parsed_input, prediction in zip(block, predictions, strict=True):
            yield parsed_input, Prediction("", error=parsed_input.error) if parsed_input.error else prediction
        n_answered += len(block)


def _streamed(
    run: "Run", predictor: "Streaming", inputs: Iterable[Input]
) -> Iterator[tuple[Input, Prediction]]:
    """Print each answer while it is generated, then yield its input and the answer or the error."""
    key = run.task.columns.inputs[0]
    for ordinal, parsed_input in enumerate(inputs):
        prediction = Prediction("", error=parsed_input.error)
        if not parsed_input.error:
            try:
                pieces = predictor.stream(parsed_input.record[key], ordinal=ordinal)
                while True:
                    write_result(next(pieces))
            except StopIteration as end:
                prediction = end.value
            except DataError as error:
                prediction = Prediction("", error=str(error))
        yield parsed_input, prediction


def _answer_record(parsed_input: Input, prediction: Prediction, columns: set[str]) -> JsonObject:
    """Merge the answer with the input's other keys; keys that clash with the answer go under ``input``.

    The task's ``columns`` also go under ``input`` if the input could not be read.
    """
    answer = {**prediction.to_dict(), "version": 1}
    nested_keys = {"version", "input", *prediction.keys(), *(columns if parsed_input.error else ())}
    nested = {key: value for key, value in parsed_input.record.items() if key in nested_keys}
    passed_through = {key: value for key, value in parsed_input.record.items() if key not in nested_keys}
    return {**passed_through, **({"input": nested} if nested else {}), **answer}


class NoteLog:
    """Log notes and errors of predictions: the first notes of each sort in full, the others as a count.

    Errors are always logged. Unknown words and other notes are counted separately, so that many of one sort
    do not hide the other.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, prediction: Prediction, input_text: Any) -> None:
        """Log the note or error of one prediction; ``input_text`` is its input."""
        from heedful.tasks.inputs.texts import is_of_unknown_words

        if prediction.error:
            log(f"heedful: {prediction.error}")
        elif prediction.note:
            kind = "unknown words" if is_of_unknown_words(prediction.note) else "a note"
            self._counts[kind] += 1
            if self._counts[kind] <= FIRST:
                log(f"heedful: {prediction.note}: {input_text[:60]!r}{'…' * (len(input_text) > 60)}")

    def summarize(self) -> None:
        """Log how many further notes of each sort there were."""
        for kind, n in self._counts.items():
            if n > FIRST:
                further = f"{n - FIRST:,} more input{'s' if n > FIRST + 1 else ''}"
                log(f"heedful: … and {further} with {kind} (use --jsonl to get the note of every answer)")
