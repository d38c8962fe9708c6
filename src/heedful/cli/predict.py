"""``heedful predict``."""

import json
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.options import Beam, Device, Precision, changed_decoding, grouped
from heedful.cli.output import json_result, one_line, result, say, standard_input
from heedful.errors import DataError, RequestError, WorkError
from heedful.files import is_unicode

if TYPE_CHECKING:
    from heedful.runs.kind import Predictor
    from heedful.runs.run import Run
    from heedful.tasks.prediction import Prediction
    from heedful.tasks.streaming import Pieces, Streaming

# What stands under a key in messages, where it is no text.
_EXAMPLES = {"picture": "cat.png"}
# Inputs that are read, sorted by length, and answered together.
BLOCK = 2048

PATIENCE = 0.05
"""Seconds that a pipe may be silent before what has come is answered; whoever fills it is faster by far."""


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

    @property
    def structured(self) -> bool:
        """Whether answers are JSON lines."""
        return self.jsonl or self.file.endswith((".jsonl", ".jsonl.gz"))

    def is_picture(self, run: "Run") -> bool:
        """Whether the file is a picture itself, and no list of such."""
        from heedful.data.pictures import SUFFIXES

        return bool(run.kind.pictures(run.recipe)) and self.file.lower().endswith(SUFFIXES)

    def records(self, run: "Run", lines: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The inputs that stand in lines, by what the run calls them."""
        keys, more = run.kind.inputs(run.recipe), run.kind.optional(run.recipe)
        if self.structured and not self.is_picture(run):
            return _records(lines, self.file, keys, more, run.kind.reads_words)
        return _fields(lines, self.file, keys, more)


@dataclass(frozen=True)
class Asked:
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

    def predictor(self, run: "Run", precision: str) -> "Predictor":
        """What answers so."""
        decoding = changed_decoding(run.recipe.decoding, self.decoding)
        predictor = run.predictor(
            beam=self.beam,
            n_best=self.n_best,
            decoding=decoding,
            precision=precision,
            max_new_tokens=self.max_new_tokens,
            stop=self.stop or None,
            prefix=None if self.prefix is None else _text_of(self.prefix),
            gap=self.gap,
        )
        if decoding is not None:
            say(f"heedful: decoding in {run.inference(precision).chosen}")
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
    asked: Asked,
    plain: Plain,
    precision: Precision = "auto",
    device: Device = "auto",
) -> None:
    """Give the run's answer to each input: one output for each, always, in order."""
    asked.check(inputs.structured)
    plain.check(inputs.structured)
    piped = Piped.of(standard_input()) if inputs.file == "-" else None
    lines = _lines(inputs.file) if piped is None else _standard_input(piped)
    if plain.whole:
        lines = iter(["\n".join(lines)])
    from heedful.runs.asking import streaming
    from heedful.runs.run import load

    loaded = load(run, device=device)
    predictor = asked.predictor(loaded, precision)
    if inputs.is_picture(loaded):
        lines = iter([inputs.file])
    if plain.stream:
        _stream(streaming(predictor, loaded.recipe.task.kind), lines)
        return
    # At a terminal, every line is answered at once.
    size = 1 if inputs.file == "-" and sys.stdin.isatty() else BLOCK
    blocks = _blocks(inputs.records(loaded, lines), size, (lambda: True) if piped is None else piped.ready)
    _answer_all(loaded, predictor, blocks, alignment=asked.alignment, structured=inputs.structured)


def _answer_all(
    run: "Run",
    predictor: "Predictor",
    blocks: Iterable[list[dict[str, Any]]],
    *,
    alignment: bool,
    structured: bool,
) -> None:
    """Print the answers block by block.

    Raises:
        WorkError: an input could not be read; the others are answered all the same.
    """
    first, failed = 0, 0
    key, columns = run.kind.inputs(run.recipe)[0], run.kind.columns(run.recipe)
    for block in blocks:
        inputs = [run.kind.input_of(run.recipe, record) for record in block]
        predictions = predictor.predict(inputs, alignment=alignment, first=first)
        first += len(block)
        for record, prediction in zip(block, predictions, strict=True):
            if structured:
                json_result(_answered(record, {**prediction.to_dict(), "version": 1}, columns))
            else:
                result(one_line(prediction.text))
            if prediction.error:
                failed += 1
                say(f"heedful: {prediction.error}")
            _remark(prediction, record[key])
    if failed:
        raise WorkError(f"{failed} of {first} inputs could not be read")


def _remark(prediction: "Prediction", given: str) -> None:
    """What was out of the ordinary with an input."""
    if prediction.note:
        say(f"heedful: {prediction.note}: {given[:60]!r}…")


def _stream(predictor: "Streaming", lines: Iterable[str]) -> None:
    """Answer the inputs one by one; each answer appears as it is written, and ends its line.

    Raises:
        WorkError: an input could not be read; the others are answered all the same.
    """
    n, failed = 0, 0
    for line in lines:
        try:
            prediction = _shown(predictor.stream(line, ordinal=n))
        except DataError as error:
            failed += 1
            say(f"heedful: {error}")
        else:
            _remark(prediction, line)
        n += 1
        result("")
    if failed:
        raise WorkError(f"{failed} of {n} inputs could not be read")


def _shown(pieces: "Pieces") -> "Prediction":
    """What the pieces make together, shown as they come."""
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            prediction: Prediction = end.value
            return prediction
        sys.stdout.write(piece)
        sys.stdout.flush()


def _lines(file: str) -> Iterator[str]:
    """Lines without their ends; only a newline ends a line."""
    from heedful.data.lines import find, lines

    if file == "-":
        return _standard_input(standard_input())
    found = find(file, Path())
    # A data file without a line is a mistake, but nothing to predict is no reason to fail.
    is_empty = found.path.is_file() and found.path.stat().st_size == 0
    return iter(()) if is_empty else lines(found)


def _text_of(file: str) -> str:
    """All of a file."""
    from heedful.data.lines import find, read_text

    return read_text(find(file, Path()))


class Piped:
    """The lines of a pipe or socket, each with its end; what may come later is not waited for.

    Args:
        descriptor: of the pipe; nothing else may read from it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._ended = descriptor, False
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []

    @classmethod
    def of(cls, stream: IO[bytes]) -> "Piped | None":
        """What an unread stream comes through; None where it is no pipe, so that all of it is there."""
        try:
            mode = os.fstat(stream.fileno()).st_mode
        except OSError:  # it has no descriptor
            return None
        waits = os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        return cls(stream.fileno()) if waits else None

    def __iter__(self) -> Iterator[bytes]:
        """Every line, waiting for it."""
        while self._lines or self._read():
            if self._lines:
                yield self._lines.popleft()

    def ready(self) -> bool:
        """Whether there is another line, or comes within `PATIENCE`."""
        import select
        from time import monotonic

        until = monotonic() + PATIENCE
        while not self._lines and not self._ended:
            if not select.select([self._descriptor], [], [], max(0.0, until - monotonic()))[0]:
                return False
            self._read()
        return bool(self._lines)

    def _read(self) -> bool:
        """Take in what is there, or wait for something; False at the end."""
        if self._ended:
            return False
        chunk = os.read(self._descriptor, 1 << 16)
        self._ended = not chunk
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._lines.append(b"".join([*self._begun, part, b"\n"]))
            self._begun = []
        self._begun.append(rest)
        if self._ended and any(self._begun):
            self._lines.append(b"".join(self._begun))
        return True


def _standard_input(stream: Iterable[bytes]) -> Iterator[str]:
    for number, raw in enumerate(stream, 1):
        try:
            line = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            place = f"standard input:{number}: byte {error.start + 1} of the line"
            raise DataError(f"{place} is not UTF-8; convert it to UTF-8") from None
        yield line.removeprefix("\ufeff") if number == 1 else line


def _fields(
    lines: Iterable[str], file: str, keys: Sequence[str], more: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """A line is a text, or texts that belong together with tabs between them; ``more`` may be left out."""
    every = (*keys, *more)
    if len(every) == 1:
        yield from ({keys[0]: line} for line in lines)
        return
    for number, line in enumerate(lines, 1):
        texts = line.split("\t")
        if not len(keys) <= len(texts) <= len(every):
            wanted = f"{len(keys)} or {len(every)}" if more else str(len(keys))
            raise DataError(
                f"{_named(file)}:{number}: {len(texts)} texts, but this run reads {wanted} "
                f"({', '.join(every)}) with a tab between them"
            )
        yield dict(zip(every, texts, strict=False))


def _named(file: str) -> str:
    return "standard input" if file == "-" else file


def _records(
    lines: Iterable[str], file: str, keys: Sequence[str], more: Sequence[str] = (), listed: bool = False
) -> Iterator[dict[str, Any]]:
    """One JSON object a line, with a text under each of ``keys``; other keys are handed through.

    Under those of ``more`` there is a text or nothing. With ``listed``, a list of texts may stand for a text.
    """
    name = _named(file)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            value = _EXAMPLES.get(keys[0], "A man sleeps.")
            example = f'with --jsonl every line is an object such as {{"{keys[0]}": "{value}"}}'
            raise DataError(f"{name}:{number}: not JSON ({error}); {example}") from None
        given = record if isinstance(record, dict) else {}
        for key in (*keys, *(key for key in more if key in given)):
            texts = _texts(record.get(key), listed) if isinstance(record, dict) else None
            if texts is None:
                raise DataError(f'{name}:{number}: expected an object with a text under "{key}"')
            if not all(map(is_unicode, texts)):
                raise DataError(f'{name}:{number}: the text under "{key}" has half of a surrogate pair')
        yield record


def _answered(record: dict[str, Any], answer: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """The answer beside the input's own keys; the task's columns that it has too are kept under ``input``."""
    same = {key: record[key] for key in columns if key in record and key in answer}
    return {**record, **({"input": same} if same else {}), **answer}


def _texts(value: Any, listed: bool) -> list[str] | None:
    """The text, or with ``listed`` the texts of a list; None for what is neither."""
    if isinstance(value, str):
        return [value]
    is_list = listed and isinstance(value, list) and all(isinstance(part, str) for part in value)
    return value if is_list else None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _blocks(
    records: Iterable[dict[str, Any]], size: int, ready: Callable[[], bool]
) -> Iterator[list[dict[str, Any]]]:
    """The records, up to ``size`` together: fewer where the next one is not ``ready``."""
    records = iter(records)
    for record in records:
        block = [record]
        while len(block) < size and ready() and (another := next(records, None)) is not None:
            block.append(another)
        yield block
