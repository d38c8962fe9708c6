"""``heedful predict``."""

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.inputs import Input, Wanted
from heedful.cli.options import Beam, Device, Precision, changed_decoding, from_command_line, grouped
from heedful.cli.output import json_result, log, one_line, result, write_result
from heedful.cli.remarks import Remarks
from heedful.cli.source import Source, text_of
from heedful.errors import DataError, RequestError, WorkError
from heedful.tasks.prediction import Prediction

if TYPE_CHECKING:
    from heedful.runs.kind import Predictor
    from heedful.runs.run import Run
    from heedful.tasks.streaming import Pieces, Streaming


@dataclass(frozen=True)
class Inputs:
    """What is answered, and in which form it comes."""

    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Inputs (texts, or paths of pictures), one a line, or JSON lines; or one picture. "
            "- is standard input.",
        ),
    ] = "-"
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help="JSON lines in and out; so for files named .jsonl.")
    ] = False

    def source(self, run: Path) -> Source:
        """What it is read from; ``run`` is for the advice.

        Raises:
            DataError: there is no such file; where a text stands in its place, how that is given.
        """
        try:
            return Source.of(self.file)
        except (DataError, OSError) as error:  # a text may be too long for the name of a file
            if os.path.exists(self.file) or not (" " in self.file or not Path(self.file).suffix):
                raise
            told = error if isinstance(error, DataError) else f"{one_line(self.file[:60])}…: no such file"
            text = shlex.quote(self.file) if len(self.file) <= 60 else "TEXT"
            way = f"echo {text} | heedful predict {shlex.quote(str(run))}"
            raise DataError(f"{told}; FILE is a file of inputs; for a text: {way}") from None

    @property
    def structured(self) -> bool:
        """Whether answers are JSON lines."""
        return self.jsonl or self.file.endswith((".jsonl", ".jsonl.gz"))

    def read(self, source: Source, run: "Run") -> Iterator[Input]:
        """The inputs that stand in lines, or the one picture that the file is."""
        wanted = Wanted.by(run)
        if self._is_picture(run):
            return iter([Input({wanted.keys[0]: self.file})])
        return wanted.read(source, structured=self.structured)

    def _is_picture(self, run: "Run") -> bool:
        """Whether the file is a picture itself, and no list of such."""
        from heedful.data.pictures import SUFFIXES

        return bool(run.kind.pictures(run.recipe)) and self.file.lower().endswith(SUFFIXES)


@dataclass(frozen=True)
class PredictOptions:
    """What is asked of the run besides: how it decodes, and what single tasks can do."""

    beam: Beam = None
    n_best: Annotated[
        int | None, typer.Option("--n-best", min=1, help="Answers for each input (with --jsonl).")
    ] = None
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Change the decoding, for example kind=sample; may be repeated."
        ),
    ] = None
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Add attention over the source (--jsonl).")
    ] = False
    max_new_tokens: Annotated[
        int | None,
        typer.Option("--max-new-tokens", min=1, help="The most tokens of a completion (language models)."),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End a completion where this would come; may be repeated."),
    ] = None
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A text to read before every input, as it stands: a task with examples, say (language "
            "models).",
        ),
    ] = None
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What stands for a gap in the inputs (masked models). [default: [MASK]]",
        ),
    ] = None

    def check(self, structured: bool) -> None:
        """Refuse what plain lines have no place for."""
        if (self.alignment or self.n_best) and not structured:
            raise RequestError("--n-best and --alignment have no place in plain lines: add --jsonl")

    def _refuse_options_of_others(self, run: "Run") -> None:
        """Refuse what only runs of other tasks can do, by the names that the options have here.

        Raises:
            RequestError: something is asked for that the run has no option for.
        """
        from heedful.runs.kinds import KINDS

        for name in ("max_new_tokens", "stop", "prefix", "gap"):
            if getattr(self, name) and name not in run.kind.options:
                task, option = run.recipe.task.kind, f"--{name.replace('_', '-')}"
                others = " and ".join(key for key, kind in KINDS.items() if name in kind.options)
                instead = ""
                if name == "max_new_tokens" and run.recipe.decoding is not None:
                    instead = f"; set --decoding max_length.cap={self.max_new_tokens}"
                raise RequestError(
                    f"{option}: a run of the task {task} has no such option; it is of {others}{instead}"
                )

    def predictor(self, run: "Run", precision: str) -> "Predictor":
        """What answers so."""
        self._refuse_options_of_others(run)
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
    """How plain text is read and shown."""

    stream: Annotated[
        bool, typer.Option("--stream", help="Show answers while they are written, line ends and all.")
    ] = False
    whole: Annotated[bool, typer.Option("--whole", help="FILE is one input, line ends and all.")] = False

    def check(self, structured: bool) -> None:
        """Refuse what JSON lines have no place for."""
        if (self.stream or self.whole) and structured:
            raise RequestError("--stream and --whole are for plain text: leave --jsonl away")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("predict", short_help="Give the run's answer to each input.")(grouped(predict))


def predict(
    run: options.Run,
    inputs: Inputs,
    asked: PredictOptions,
    plain: Plain,
    precision: Precision = "auto",
    device: Device = "auto",
) -> None:
    """Give the run's answer to each input: one output for each, always, in order.

    What cannot be read is named, its output is empty, and the exit status is 1.
    """
    asked.check(inputs.structured)
    plain.check(inputs.structured)
    source = inputs.source(run)
    if plain.whole:
        source = source.joined()
    from heedful.runs.questions import streaming
    from heedful.runs.run import load

    loaded = load(run, device=device)
    predictor = asked.predictor(loaded, precision)
    given = inputs.read(source, loaded)
    if plain.stream:
        _stream(loaded, streaming(predictor, loaded.recipe.task.kind), given)
    else:
        blocks = source.blocks(given)
        _answer_all(loaded, predictor, blocks, alignment=asked.alignment, structured=inputs.structured)


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
        WorkError: an input could not be read; the others are answered all the same.
    """
    first, failed, remarks = 0, 0, Remarks()
    keys = run.kind.inputs(run.recipe)
    columns = {*keys, *run.kind.columns(run.recipe)}  # of the task's data
    for block in blocks:
        predictions = _answers(run, predictor, block, alignment=alignment, first=first)
        first += len(block)
        for given, prediction in zip(block, predictions, strict=True):
            if structured:
                json_result(_answered(given, prediction, columns))
            else:
                result(one_line(prediction.text))
            failed += bool(prediction.error)
            remarks.of(prediction, given.record.get(keys[0]))
    remarks.rest()
    _check(failed, first)


def _answers(
    run: "Run", predictor: "Predictor", block: Sequence[Input], *, alignment: bool, first: int
) -> list[Prediction]:
    """The answers, or why there are none.

    What could not be read goes with the others as an empty input, so that these keep their numbers.
    """
    empty = dict.fromkeys(run.kind.inputs(run.recipe), "")
    asked = [run.kind.input_of(run.recipe, empty if each.error else each.record) for each in block]
    predictions = predictor.predict(asked, alignment=alignment, first=first)
    return [
        Prediction("", error=given.error) if given.error else prediction
        for given, prediction in zip(block, predictions, strict=True)
    ]


def _check(failed: int, n: int) -> None:
    """In the end, whether all inputs could be read."""
    if failed:
        raise WorkError(f"{failed} of {n} inputs could not be read")


def _stream(run: "Run", predictor: "Streaming", inputs: Iterable[Input]) -> None:
    """Answer the inputs one by one; each answer appears as it is written, and ends its line.

    Raises:
        WorkError: an input could not be read; the others are answered all the same.
    """
    n, failed, remarks = 0, 0, Remarks()
    key = run.kind.inputs(run.recipe)[0]
    for given in inputs:
        prediction = _shown(predictor, given, key, ordinal=n)
        n, failed = n + 1, failed + bool(prediction.error)
        result("")
        remarks.of(prediction, given.record.get(key))
    remarks.rest()
    _check(failed, n)


def _shown(predictor: "Streaming", given: Input, key: str, *, ordinal: int) -> Prediction:
    """The answer, shown as it is written; or why there is none."""
    if given.error:
        return Prediction("", error=given.error)
    try:
        return _told(predictor.stream(given.record[key], ordinal=ordinal))
    except DataError as error:
        return Prediction("", error=str(error))


def _told(pieces: "Pieces") -> Prediction:
    """What the pieces make together, shown as they come."""
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            prediction: Prediction = end.value
            return prediction
        write_result(piece)


def _answered(given: Input, prediction: Prediction, columns: Collection[str]) -> dict[str, Any]:
    """The answer beside the input's own keys; those that answers have too are kept under ``input``.

    So are the task's ``columns`` if the input could not be read.
    """
    answer = {**prediction.to_dict(), "version": 1}
    kept = {"version", "input", *prediction.keys(), *(columns if given.error else ())}
    same = {key: value for key, value in given.record.items() if key in kept}
    own = {key: value for key, value in given.record.items() if key not in kept}
    return {**own, **({"input": same} if same else {}), **answer}
