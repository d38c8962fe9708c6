"""Events of a training, and callbacks for them: ``metrics.jsonl``, progress, TensorBoard."""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, get_type_hints

from pydantic import create_model

from heedful.errors import DamagedError, RequestError, WorkError, escaped
from heedful.files import is_unicode, require_end, write_text
from heedful.records import Count, Record, Text, checked, parse_strictly
from heedful.typing import JsonObject

if TYPE_CHECKING:
    import rich.progress

VERSION = 1
"""Format version of the lines in ``metrics.jsonl``."""

StopReason = Literal["updates", "epochs", "minutes", "patience", "data", "signal", "callback"]
"""Which condition ended the training: a limit, early stopping, no more data, a signal, or a callback."""


@dataclass(frozen=True)
class Started:
    """Training starts or resumes.

    Args:
        update: number of updates already made (0 for a new run).
        validated: the last validated update.
        max_updates: the last update, if updates or epochs are limited; of epochs, as many as the first has.
        world: number of processes.
        damaged: error messages of the damaged checkpoints that were skipped.
    """

    update: int
    validated: int = 0
    max_updates: int | None = None
    world: int = 1
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Updated:
    """One update was made.

    Args:
        update: its number, starting at 1.
        epoch: number of completed passes over the data.
        loss: the weighted sum of the loss terms.
        terms: the mean of each loss term over the update.
        rate: the learning rate.
        norm: the gradient norm before clipping.
        tokens: number of tokens in the update, over all ranks.
        seconds: since the previous update or validation, checkpoints and waiting for data included.
        elapsed: total training time in seconds, including earlier parts of a resumed run.
    """

    update: int
    epoch: int
    loss: float
    terms: dict[str, float]
    rate: float
    norm: float
    tokens: int
    seconds: float
    elapsed: float


@dataclass(frozen=True)
class Validated:
    """Validation ran after an update; ``best`` is true if its metric is the best so far."""

    update: int
    metrics: dict[str, float]
    best: bool
    elapsed: float


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    update: int
    path: Path


@dataclass(frozen=True)
class Stopped:
    """Training ended; ``reason`` is ``failed`` if an error ended it."""

    update: int
    reason: StopReason | Literal["failed"]
    elapsed: float


Event = Started | Updated | Validated | Saved | Stopped
Callback = Callable[[Event], object]
"""Called with each event; one that returns True asks the training to stop after the update."""


class JsonLines:
    """Append events to ``metrics.jsonl``: one JSON object per line, with ``version`` and ``event``.

    ``event`` is ``started``, ``updated``, ``validated`` or ``stopped``; the other keys are the fields
    of the event class of that name in `heedful.training.callbacks`. Non-finite values are written as null.
    When a run resumes from a checkpoint, lines after that checkpoint are removed first, so no update
    or validation appears twice; so are damaged lines.

    Args:
        path: the output file.
        every: write every n-th update.
        log: called with a note on each damaged line.
    """

    def __init__(self, path: Path, every: int = 1, log: Callable[[str], None] = lambda line: None) -> None:
        self.path = path
        self.every = every
        self.log = log

    def __call__(self, event: Event) -> None:
        """Append the event; raise `WorkError` if the file cannot be written."""
        if isinstance(event, Saved) or (isinstance(event, Updated) and event.update % self.every):
            return
        if isinstance(event, Started) and self.path.exists():
            last_updates = {"validated": event.validated}
            lines = [
                json.dumps(line) + "\n"
                for line in read_metrics(self.path, self.log)
                if line["update"] <= last_updates.get(line["event"], event.update)
            ]
            write_text(self.path, "".join(lines))
        values = {"version": VERSION, "event": type(event).__name__.lower(), **asdict(event)}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(finite(values), allow_nan=False) + "\n")
        except OSError as error:
            raise WorkError(f"{self.path}: cannot be written: {error.strerror or error}") from error


_STORED_TYPES: dict[Any, Any] = {
    int: Count,
    int | None: Count | None,
    float: float | None,
    dict[str, float]: dict[str, float | None],
    tuple[str, ...]: list[Text],
}
"""Types of fields of events in ``metrics.jsonl``, if they differ; numbers that are not finite are null."""


def _schema_of(event: type) -> type[Record]:
    """Return the schema of the lines of an event."""
    types, name = get_type_hints(event), event.__name__.lower()
    entries = {field.name: _STORED_TYPES.get(types[field.name], types[field.name]) for field in fields(event)}
    entries |= {"version": Literal[1], "event": Literal[name]}
    definitions: dict[str, Any] = {key: (kind, ...) for key, kind in entries.items()}
    return create_model(f"{event.__name__}Line", __base__=Record, **definitions)


LINES = {event.__name__.lower(): _schema_of(event) for event in (Started, Updated, Validated, Stopped)}
"""Schemas of the lines of ``metrics.jsonl``, by ``event``."""


def read_metrics(path: Path, log: Callable[[str], None] = lambda line: None) -> Iterator[JsonObject]:
    """Yield the lines of a ``metrics.jsonl`` as objects, without those that are damaged.

    A last line without an end is one that a killed process left incomplete, or that is being written.

    Args:
        path: the file.
        log: called with a note on each other line that is left out.

    Raises:
        DataError: the file is a device.
        DamagedError: it cannot be read.
    """
    require_end(path)
    try:
        *lines, _ = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from error
    for number, line in enumerate(lines, 1):
        try:
            yield _event_in(line)
        except ValueError as error:
            log(f"{path}:{number}: damaged: {error}; the line is left out")


def _event_in(line: bytes) -> JsonObject:
    """Return the object in a line of ``metrics.jsonl``.

    Raises:
        ValueError: it does not fit the schema of its event.
    """
    try:
        values = parse_strictly(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    event = values.get("event") if isinstance(values, dict) else None
    if not isinstance(event, str) or event not in LINES:
        raise ValueError(f"expected an object with an event: {', '.join(LINES)}")
    return checked(values, LINES[event]).model_dump()


def finite(value: object) -> object:
    """Return a value for JSON, with None in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Speed:
    """The speed of a training, as exponential moving sums over its updates (half-life 14 updates).

    Args:
        max_minutes: the time limit of the training.
    """

    def __init__(self, max_minutes: float | None = None) -> None:
        self.max_minutes = max_minutes
        self.seconds = self.tokens = self.weight = 0.0

    def summary(self, event: Updated, max_updates: int | None) -> str:
        """Add an update; return loss, rate, tokens per second and the remaining time as text.

        The time remains until the limit that ends the training first; patience may end it earlier.
        """
        self.tokens = 0.95 * self.tokens + event.tokens
        self.seconds = 0.95 * self.seconds + event.seconds
        self.weight = 0.95 * self.weight + 1
        tokens = self.tokens / max(self.seconds, 1e-9)
        summary = f"loss {event.loss:.4f}, rate {event.rate:.2e}, {tokens:,.0f} tokens/s"
        remaining = []
        if max_updates is not None:
            remaining.append((max_updates - event.update) * self.seconds / self.weight)
        if self.max_minutes is not None:
            remaining.append(60 * self.max_minutes - event.elapsed)
        return f"{summary}, {duration(max(0.0, min(remaining)))} left" if remaining else summary


class Progress:
    """Show a progress bar on a terminal, or print a plain line at intervals elsewhere.

    Args:
        seconds: minimum interval between plain lines.
        stream: output stream; default: standard error.
        max_minutes: the time limit of the training.
    """

    def __init__(
        self, seconds: float = 30.0, stream: TextIO | None = None, max_minutes: float | None = None
    ) -> None:
        self.stream = stream or sys.stderr
        self.seconds = seconds
        self._bar: "rich.progress.Progress | None" = None
        self._max_updates: int | None = None
        self._speed = Speed(max_minutes)
        self._written = -math.inf

    def __call__(self, event: Event) -> None:
        """Show the event; write errors are ignored so that they do not end the training."""
        with suppress(OSError):
            self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case Started():
                self._start(event)
            case Updated():
                self._update(event)
            case Validated():
                metrics = ", ".join(f"{name} {value:.4g}" for name, value in event.metrics.items())
                self._print(f"update {event.update}: validation: {metrics}{' (best)' if event.best else ''}")
            case Stopped():
                if self._bar is not None:
                    self._bar.stop()
                    self._bar = None
                self._print(
                    f"stopped after update {event.update} ({event.reason}), {duration(event.elapsed)}"
                )

    def _start(self, event: Started) -> None:
        self._max_updates = event.max_updates
        for message in event.damaged:
            self._print(f"warning: skipped a damaged checkpoint: {message}")
        if event.update:
            self._print(f"resuming after update {event.update}")
        if self.stream.isatty():
            self._bar = _rich_bar(self.stream)
            self._bar.add_task("", total=event.max_updates, completed=event.update)
            self._bar.start()

    def _update(self, event: Updated) -> None:
        summary = self._speed.summary(event, self._max_updates)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=event.update, description=summary)
        elif time.monotonic() - self._written >= self.seconds:
            self._written = time.monotonic()
            total = f"/{self._max_updates}" if self._max_updates else ""
            self._print(f"update {event.update}{total}: epoch {event.epoch}, {summary}")

    def _print(self, message: str) -> None:
        text = escaped(message)
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)


def duration(seconds: float) -> str:
    """Format seconds: ``1:02:03``, or ``2:03``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def _rich_bar(stream: TextIO) -> "rich.progress.Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (MofNCompleteColumn(), BarColumn(bar_width=20), TextColumn("{task.description}", markup=False))
    return Progress(*columns, console=Console(file=stream))


class TensorBoard:
    """Write TensorBoard scalars: ``train/...`` and ``validation/...``.

    Args:
        folder: output folder of the event files.
        every: write every n-th update.

    Raises:
        RequestError: TensorBoard is not installed, or ``folder`` is not valid UTF-8.
    """

    def __init__(self, folder: Path, every: int = 1) -> None:
        if not is_unicode(str(folder)):
            raise RequestError(f"{folder}: the path must be valid UTF-8 for TensorBoard; choose another")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise RequestError(
                "TensorBoard is not installed; install the extra: pip install 'heedful[tensorboard]'"
            ) from error
        self._writer_class = SummaryWriter
        self._writer: SummaryWriter
        self.folder = folder
        self.every = every

    def __call__(self, event: Event) -> None:
        """Write the scalars of the event."""
        match event:
            case Started():
                # Hide what an interrupted run wrote after this update.
                self._writer = self._writer_class(str(self.folder), purge_step=event.update + 1)
            case Updated() if event.update % self.every == 0:
                scalars = {"loss": event.loss, "rate": event.rate, "norm": event.norm, **event.terms}
                self._write("train", scalars, event.update)
                speed = event.tokens / max(event.seconds, 1e-9)
                self._write("train", {"tokens_per_second": speed}, event.update)
            case Validated():
                self._write("validation", event.metrics, event.update)
            case Stopped():
                self._writer.close()

    def _write(self, group: str, scalars: dict[str, float], update: int) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(f"{group}/{name}", value, update)
