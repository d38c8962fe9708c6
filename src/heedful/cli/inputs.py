"""Inputs of commands: lines of a file or of standard input, and the texts or JSON objects in them."""

import json
import math
import os
import select
import stat
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, TypeVar

from heedful import limits
from heedful.errors import DataError, RequestError, nearest
from heedful.files import is_unicode
from heedful.limits import line_too_long, too_large
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.data.lines import File, Location
    from heedful.runs.run import Run
    from heedful.tasks.task_info import Columns

STANDARD_INPUT = "standard input"
"""Its name in messages."""
BLOCK = 2048
"""Maximum number of inputs that are read, sorted by length and answered together."""
PATIENCE = 0.05
"""Seconds without new data from a pipe after which the lines read so far are processed."""
LONGEST = 60
"""Maximum characters of a key or number quoted in messages."""
DEEPEST = 200
"""Maximum nesting of lists and objects in a line, safely below the limit of Python's parser."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Source:
    """The lines of a file or of standard input.

    Args:
        name: name in messages.
        raw: lines with their line ends.
        size: maximum number of lines per block.
        ready: returns whether another line is available without waiting.
        file: the file, of which more is read to guess its encoding; None: standard input.
    """

    name: str
    raw: Iterable[bytes]
    size: int = BLOCK
    ready: Callable[[], bool] = lambda: True
    file: "File | None" = None

    @classmethod
    def of(cls, file: str) -> "Source":
        """Open a file, or standard input if `file` is ``-``; at a terminal each line is its own block.

        Rows of a Parquet file are JSON lines.

        Raises:
            RequestError: the file does not exist, or standard input is closed.
        """
        if file != "-":
            from heedful.data.lines import find, raw_lines
            from heedful.data.parquet import is_parquet, parquet_lines

            located = find(file, Path())
            if is_parquet(file):
                return cls(located.name, parquet_lines(located.path))
            return cls(located.name, raw_lines(located), file=located)
        if sys.stdin is None:
            raise RequestError("standard input is closed: expected input to read")
        from heedful.data.lines import bounded_lines

        stream, name = sys.stdin.buffer, STANDARD_INPUT
        if (piped := Piped.of(stream)) is not None:
            return cls(name, piped, ready=piped.ready)
        return cls(name, bounded_lines(stream, name), size=1 if sys.stdin.isatty() else BLOCK)

    def lines(self) -> Iterator[str]:
        """Yield the decoded lines without line ends; only a newline ends a line.

        Raises:
            DataError: a line is not UTF-8, or the file cannot be read.
        """
        from heedful.data.lines import Location, decoded

        return (
            decoded(raw, Location(self.name, number), self.file) for number, raw in enumerate(self.raw, 1)
        )

    def text(self) -> str:
        """Return the whole text without the last line end."""
        return "\n".join(self.lines())

    def as_one_line(self) -> "Source":
        """Return a source with the whole text as one line."""
        return replace(self, raw=[f"{self.text()}\n".encode()])

    def blocks(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """Group items, one per line, into blocks that are answered together.

        If reading fails, the items before the failure are yielded first.
        """
        for item in items:
            block = [item]
            try:
                while len(block) < self.size and self.ready() and (another := next(items, None)) is not None:
                    block.append(another)
            except DataError:
                yield block
                raise
            yield block


def text_of(file: str) -> str:
    """Return the whole text of a file; raise `DataError` if it is empty or cannot be read."""
    from heedful.data.lines import find, read_text

    return read_text(find(file, Path()))


class Piped:
    """Iterate over the lines of a pipe or socket, with their line ends, without waiting for later lines.

    Args:
        descriptor: file descriptor of the pipe; nothing else may read from it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._ended = descriptor, False
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._n_partial = self._n_complete = 0

    @classmethod
    def of(cls, stream: IO[bytes]) -> "Piped | None":
        """Return a reader for a stream that is a pipe and not yet read; None if it is not a pipe."""
        try:
            mode = os.fstat(stream.fileno()).st_mode
        except OSError:  # it has no descriptor
            return None
        waits = os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        return cls(stream.fileno()) if waits else None

    def __iter__(self) -> Iterator[bytes]:
        """Yield every line; blocks until the next one arrives."""
        while self._lines or self._read():
            if self._lines:
                yield self._lines.popleft()

    def ready(self) -> bool:
        """Return whether another line is available or arrives within `PATIENCE` seconds."""
        until = monotonic() + PATIENCE
        while not self._lines and not self._ended:
            if not select.select([self._descriptor], [], [], max(0.0, until - monotonic()))[0]:
                return False
            self._read()
        return bool(self._lines)

    def _read(self) -> bool:
        """Read the available data, blocking if there is none; return False at the end.

        Raises:
            DataError: the incomplete line is longer than `heedful.limits.LONGEST_LINE`.
        """
        if self._ended:
            return False
        chunk = os.read(self._descriptor, 1 << 16)
        self._ended = not chunk
        *complete, partial = chunk.split(b"\n")
        for part in complete:
            self._lines.append(b"".join([*self._partial, part, b"\n"]))
            self._partial, self._n_partial = [], 0
        self._n_complete += len(complete)
        self._partial.append(partial)
        self._n_partial += len(partial)
        if self._n_partial > limits.LONGEST_LINE:
            raise line_too_long(STANDARD_INPUT, self._n_complete + 1)
        if self._ended and any(self._partial):
            self._lines.append(b"".join(self._partial))
        return True


# Lines ------------------------------------------------------------------------------------------------------


class _ValueRefusedError(DataError):
    """A line is valid JSON but contains a value that cannot be read or written back.

    It is an error of this line only, even if the line is the first.
    """


@dataclass(frozen=True)
class Input:
    """The input of one line.

    Args:
        record: values by key, including keys that the run does not read; incomplete if there is an error.
        error: why the line cannot be used, or None.
        fields: the key in the record of each key that the run reads, if it is another one.
    """

    record: JsonMapping
    error: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> JsonMapping:
        """The record with the values that the run reads under the run's own keys."""
        return {**self.record, **{key: self.record[name] for key, name in self.fields.items()}}


@dataclass(frozen=True)
class InputFormat:
    """Keys that an input line must have.

    Args:
        keys: required keys.
        optional_keys: optional keys.
        accepts_list: whether JSON may give a list of strings instead of a string.
        names: the fields of keys in JSON lines and tables, if the user names them (``--column``).
        recipe_names: the fields of columns in the run's training data; used if the first line has them.
        longest: characters that a text may have; None: `heedful.limits.LONGEST_TEXT`.
    """

    keys: tuple[str, ...]
    optional_keys: tuple[str, ...] = ()
    accepts_list: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    recipe_names: Mapping[str, str] = field(default_factory=dict)
    longest: int | None = None

    @classmethod
    def by(cls, run: "Run", chosen: Sequence[str] = (), columns: "Columns | None" = None) -> "InputFormat":
        """Return the input format of a run.

        Args:
            run: the run.
            chosen: fields that the user names: ``KEY=NAME``, or ``NAME`` for the next key.
            columns: the columns of an input; by default those of predictions.

        Raises:
            RequestError: there are more names than keys.
        """
        from heedful.data.sources import field_names

        columns = columns or run.task.columns
        keys = (*columns.inputs, *columns.optional_inputs)
        names = names_of(chosen, keys)
        recipe_names = {k: name for k, name in field_names(run.recipe.data.train).items() if k in keys}
        lists, longest = columns.input_lists, columns.longest_text
        return cls(columns.inputs, columns.optional_inputs, lists, names, recipe_names, longest)

    def _named_as(self, line: str) -> "InputFormat | None":
        """Return the format with the names of the recipe, if a line has them and the user names no fields.

        None if the line is not an object, so that a later one decides.
        """
        try:
            record = _parse(line)
        except (ValueError, DataError):
            return None
        if not isinstance(record, dict):
            return None
        names = {key: self.recipe_names.get(key, key) for key in self.keys}
        return self if self.names or not record.keys() >= {*names.values()} else replace(self, names=names)

    def read(self, source: Source, *, structured: bool) -> Iterator[Input]:
        """Yield one input per line: a JSON object if `structured`, else texts separated by tabs.

        Raises:
            DataError: the first line is not text or lacks required keys, so the whole file is in the wrong
                format; or the source cannot be read further.
        """
        from heedful.data.encodings import looks_like_utf16
        from heedful.data.lines import Location, decoded

        input_format, file = None if structured else self, source.file
        for number, raw in enumerate(source.raw, 1):
            location = Location(source.name, number)
            try:
                line = decoded(raw, location, file)
            except DataError as error:
                if number == 1 and (looks_like_utf16(raw) or raw.startswith(b"\x1f\x8b")):  # or gzip
                    raise
                file = None  # the first message suggests an encoding
                yield Input({}, str(error))
            else:
                input_format = input_format or self._named_as(line)
                yield (input_format or self)._input(line, location, structured)

    def _input(self, line: str, location: "Location", structured: bool) -> Input:
        """Parse one line.

        Raises:
            DataError: it is the first line and lacks required keys.
        """
        try:
            parsed = self._in_object(line, location) if structured else self._in_fields(line, location)
        except _ValueRefusedError as error:
            return Input({}, str(error))
        except DataError as error:
            parsed = Input({}, str(error))
        if location.line == 1 and not parsed.record.keys() >= {self._name(key) for key in self.keys}:
            raise DataError(parsed.error)
        return parsed

    def _in_fields(self, line: str, location: "Location") -> Input:
        keys = (*self.keys, *self.optional_keys)
        texts = line.split("\t") if len(keys) > 1 else [line]
        for key, text in zip(keys, texts, strict=False):
            if problem := too_large(text, self.longest):
                raise _ValueRefusedError(f"{location}: {key} {problem}")
        if len(self.keys) <= len(texts) <= len(keys):
            return Input(dict(zip(keys, texts, strict=False)))
        expected = f"{len(self.keys)} or {len(keys)}" if self.optional_keys else str(len(self.keys))
        raise DataError(
            f"{location}: expected {expected} texts separated by tabs ({', '.join(keys)}), got {len(texts)}"
        )

    def _in_object(self, line: str, location: "Location") -> Input:
        try:
            record = _parse(line)
        except _ValueRefusedError as error:
            raise _ValueRefusedError(f"{location}: {error}") from None
        except ValueError as error:
            reason = str(error)
            if isinstance(error, json.JSONDecodeError):
                reason = f"{error.msg} at column {error.colno}"
            example = {self._name(self.keys[0]): "cat.png" if self.keys[0] == "image" else "A man sleeps."}
            hint = f"with --jsonl every line must be an object such as {json.dumps(example)}"
            raise DataError(f"{location}: not JSON ({reason}); {hint}") from None
        if not isinstance(record, dict):
            expected = self._expected(self._name(self.keys[0]))
            raise DataError(f"{location}: {expected}, got {_type_name(record)}")
        optional = (key for key in self.optional_keys if key in self.names or key in record)
        fields = {key: self._name(key) for key in (*self.keys, *optional)}
        for name in fields.values():
            if problem := self._problem(record, name):
                return Input(record, f"{location}: {problem}")
        return Input(record, fields={key: name for key, name in fields.items() if key != name})

    def _name(self, key: str) -> str:
        return self.names.get(key, key)

    def _problem(self, record: JsonMapping, key: str) -> str | None:
        """Return why the value of `key` is not usable text, or None if it is."""
        if key not in record:
            return f"{self._expected(key)}, got no such key{nearest(key, record)}"
        value = record[key]
        is_list = self.accepts_list and isinstance(value, list)
        for text in value if is_list else [value]:
            if not isinstance(text, str):
                return f"{self._expected(key)}, got {_type_name(text)}{' in the list' * is_list}"
            if not is_unicode(text):
                return f'the value of "{key}" must be valid Unicode, got an unpaired surrogate'
        problem = too_large(value, self.longest)
        return f'the value of "{key}" {problem}' if problem else None

    def _expected(self, key: str) -> str:
        return f'expected an object with a string{" or a list of strings" * self.accepts_list} under "{key}"'


def names_of(chosen: Sequence[str], keys: Sequence[str]) -> dict[str, str]:
    """Return the fields that ``--column`` names: ``KEY=NAME``, or ``NAME`` for the next key.

    Raises:
        RequestError: there are more names than keys.
    """
    names: dict[str, str] = {}
    for text in chosen:
        key, separator, name = text.partition("=")
        if not separator or key not in keys:
            key, name = next((key for key in keys if key not in names), ""), text
        if not key or key in names:
            raise RequestError(f"--column {text}: expected one name for each of {', '.join(keys)}")
        names[key] = name
    return names


def _type_name(value: object) -> str:
    """Return the JSON name of the type of `value`."""
    names = {str: "a string", type(None): "null", bool: "a boolean", int: "a number", float: "a number"}
    return {**names, list: "a list"}.get(type(value), "an object")


# JSON that can be written back ------------------------------------------------------------------------------


def _parse(line: str) -> object:
    """Parse JSON.

    Raises:
        _ValueRefusedError: it has a number that is out of range, a duplicate key, or is nested too deeply.
        ValueError: it is not JSON.
    """
    nested = _ValueRefusedError(f"lists and objects must be nested at most {DEEPEST} deep")
    try:
        value = json.loads(
            line, parse_constant=_constant, parse_float=_float, parse_int=_integer, object_pairs_hook=_unique
        )
    except RecursionError:
        raise nested from None
    if line.count("[") + line.count("{") > DEEPEST and _depth(value) > DEEPEST:
        raise nested
    return value


def _constant(literal: str) -> None:
    """Reject NaN and infinities, which Python's parser accepts."""
    raise ValueError(f"{literal} is not a JSON number")


def _float(literal: str) -> float:
    if not math.isfinite(number := float(literal)):
        raise _ValueRefusedError(f"value out of range: {_short(literal)}")
    return number


def _integer(literal: str) -> int:
    try:
        return int(literal)
    except ValueError:  # more digits than Python converts
        max_digits = sys.get_int_max_str_digits()
        digits = len(literal.removeprefix("-"))
        reason = f"integers must have at most {max_digits:,} digits, got {digits:,}"
        raise _ValueRefusedError(f"value out of range: {reason}") from None


def _unique(pairs: list[tuple[str, object]]) -> JsonObject:
    """Build a JSON object; refuse duplicate keys, since one of their values would be lost."""
    record = dict(pairs)
    if len(record) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        quoted = json.dumps(_short(key), ensure_ascii=False)
        raise _ValueRefusedError(f"duplicate key {quoted} in an object; keep one of them")
    return record


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _depth(value: object) -> int:
    """Return the nesting depth of lists and objects."""
    depth, level = 0, [value]
    while level := [container for container in level if isinstance(container, list | dict)]:
        depth += 1
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
        ]
    return depth
