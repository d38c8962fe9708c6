"""The command ``heedful predict``."""

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.cli.inputs import Input, InputFormat
from heedful.cli.options import Beam, Device, Precision, changed_decoding, from_command_line, grouped
from heedful.cli.output import json_result, log, one_line, result, write_result
from heedful.cli.remarks import NoteLog
from heedful.cli.source import Source, text_of
from heedful.errors import DataError, RequestError, WorkError
from heedful.tasks.prediction import Prediction
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.runs.run import Run
    from heedful.tasks.base import Predictor
    from heedful.tasks.streaming import Pieces, Streaming


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
        """Yield the inputs: one per line, or the file itself if it is an image."""
        input_format = InputFormat.by(run)
        if self._is_image(run):
            return iter([Input({input_format.keys[0]: self.file})])
        return input_format.read(source, structured=self.structured)

    def _is_image(self, run: "Run") -> bool:
        """Return whether the file is an image, not a list of image paths."""
        from heedful.data.images import SUFFIXES

        return bool(run.task.columns.images) and self.file.lower().endswith(SUFFIXES)


@dataclass(frozen=True)
class PredictOptions:
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

    def check(self, structured: bool) -> None:
        """Raise `RequestError` for options that require JSON lines."""
        if (self.alignment or self.n_best) and not structured:
            raise RequestError("--n-best and --alignment require --jsonl")

    def _check_task_options(self, run: "Run") -> None:
        """Check that the run's task supports the options.

        Raises:
            RequestError: an option is not supported.
        """
        from heedful.tasks.registry import TASKS

        for name in ("max_new_tokens", "stop", "prefix", "gap"):
            if getattr(self, name) and name not in run.task.info.options:
                task, option = run.recipe.task.kind, f"--{name.replace('_', '-')}"
                others = " and ".join(key for key, task in TASKS.items() if name in task.info.options)
                remedy = ""
                if name == "max_new_tokens" and run.recipe.decoding is not None:
                    remedy = f"; set --decoding max_length.cap={self.max_new_tokens}"
                raise RequestError(f"{option}: not supported for task {task}, only for {others}{remedy}")

    def predictor(self, run: "Run", precision: str) -> "Predictor":
        """Return the predictor with these options."""
        self._check_task_options(run)
        decoding = changed_decoding(run.recipe.decoding, self.decoding)
        predictor = run.predictor(
            beam=self.beam,
            n_best=self.n_best,
            decoding=decoding,
            precision=precision,
            max_new_tokens=self.max_new_tokens,
            stop=[from_command_line(text) for text in self.stop or ()] or None,
            prefix=None if self.prefix is None else text_of(self.prefix),
            gap=None if self.gap is None else from_command_line(self.gap),
        )
        if decoding is not None:
            log(f"heedful: decoding in {run.inference(precision).chosen}")
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

    def check(self, structured: bool) -> None:
        """Raise `RequestError` for options that JSON lines do not support."""
        if (self.stream or self.whole) and structured:
            raise RequestError("--stream and --whole require plain text; remove --jsonl")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("predict", short_help="Predict with a run: one output per input.")(grouped(predict))


def predict(
    run: options.Run,
    inputs: Inputs,
    task: PredictOptions,
    plain: Plain,
    precision: Precision = "auto",
    device: Device = "auto",
) -> None:
    """Predict with a run: print one output per input, in order.

    Invalid inputs are reported and get an empty output; the exit status is then 1.
    """
    task.check(inputs.structured)
    plain.check(inputs.structured)
    source = inputs.source(run)
    if plain.whole:
        source = source.joined()
    from heedful.runs.questions import streaming
    from heedful.runs.run import load

    loaded = load(run, device=device)
    predictor = task.predictor(loaded, precision)
    parsed = inputs.read(source, loaded)
    if plain.stream:
        _stream(loaded, streaming(predictor, loaded.recipe.task.kind), parsed)
    else:
        blocks = source.blocks(parsed)
        _answer_all(loaded, predictor, blocks, alignment=task.alignment, structured=inputs.structured)


def _answer_all(
    run: "Run",
    predictor: "Predictor",
    blocks: Iterable[list[Input]],
    *,
    alignment: bool,
    structured: bool,
) -> None:
    """Print the answers block by block.

    Raises:
        WorkError: some inputs could not be read; the others have been answered.
    """
    first, failed, notes = 0, 0, NoteLog()
    keys = run.task.columns.inputs
    columns = {*keys, *run.task.columns.required}
    for block in blocks:
        predictions = _answers(run, predictor, block, alignment=alignment, first=first)
        first += len(block)
        for given, prediction in zip(block, predictions, strict=True):
            if structured:
                json_result(_answer_record(given, prediction, columns))
            else:
                result(one_line(prediction.text))
            failed += bool(prediction.error)
            notes.add(prediction, given.record.get(keys[0]))
    notes.summarize()
    _check(failed, first)


def _answers(
    run: "Run", predictor: "Predictor", block: Sequence[Input], *, alignment: bool, first: int
) -> list[Prediction]:
    """Return the answers, or the errors of invalid inputs.

    Invalid inputs are replaced by empty ones, so that the others keep their ordinals.
    """
    empty = dict.fromkeys(run.task.columns.inputs, "")
    batch = [run.task.columns.input_of(empty if each.error else each.record) for each in block]
    predictions = predictor.predict(batch, alignment=alignment, first=first)
    return [
        Prediction("", error=given.error) if given.error else prediction
        for given, prediction in zip(block, predictions, strict=True)
    ]


def _check(failed: int, n: int) -> None:
    """Raise `WorkError` if some of the `n` inputs could not be read."""
    if failed:
        raise WorkError(f"{failed} of {n} inputs could not be read")


def _stream(run: "Run", predictor: "Streaming", inputs: Iterable[Input]) -> None:
    """Answer the inputs one by one, printing each answer while it is generated.

    Raises:
        WorkError: some inputs could not be read; the others have been answered.
    """
    n, failed, notes = 0, 0, NoteLog()
    key = run.task.columns.inputs[0]
    for given in inputs:
        prediction = _stream_one(predictor, given, key, ordinal=n)
        n, failed = n + 1, failed + bool(prediction.error)
        result("")
        notes.add(prediction, given.record.get(key))
    notes.summarize()
    _check(failed, n)


def _stream_one(predictor: "Streaming", given: Input, key: str, *, ordinal: int) -> Prediction:
    """Print the answer of one input while it is generated, and return it or its error."""
    if given.error:
        return Prediction("", error=given.error)
    try:
        return _print_pieces(predictor.stream(given.record[key], ordinal=ordinal))
    except DataError as error:
        return Prediction("", error=str(error))


def _print_pieces(pieces: "Pieces") -> Prediction:
    """Print the pieces as they arrive and return the complete prediction."""
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            prediction: Prediction = end.value
            return prediction
        write_result(piece)


def _answer_record(given: Input, prediction: Prediction, columns: Collection[str]) -> JsonObject:
    """Merge the answer with the input's other keys; keys that clash with the answer go under ``input``.

    The task's ``columns`` also go under ``input`` if the input could not be read.
    """
    answer = {**prediction.to_dict(), "version": 1}
    kept = {"version", "input", *prediction.keys(), *(columns if given.error else ())}
    nested = {key: value for key, value in given.record.items() if key in kept}
    other = {key: value for key, value in given.record.items() if key not in kept}
    return {**other, **({"input": nested} if nested else {}), **answer}
