"""Parse input lines: one text, several texts separated by tabs, or a JSON object."""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heedful.cli.source import Source
from heedful.errors import DataError, nearest
from heedful.files import is_unicode
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.data.lines import Location
    from heedful.runs.run import Run

# Example values in messages for keys that do not hold plain text.
_EXAMPLES = {"image": "cat.png"}
LONGEST = 60
"""Maximum characters of a key or number quoted in messages."""
DEEPEST = 200
"""Maximum nesting of lists and objects in a line, safely below the limit of Python's parser."""
_NESTED = f"lists and objects must be nested at most {DEEPEST} deep"
_GZIP = b"\x1f\x8b"
# JSON names of values that are not strings.
_NAMES = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", list: "a list"}


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
    """

    record: JsonMapping
    error: str | None = None


@dataclass(frozen=True)
class InputFormat:
    """Keys that an input line must have.

    Args:
        keys: required keys.
        more: optional keys.
        listed: whether JSON may give a list of strings instead of a string.
    """

    keys: tuple[str, ...]
    more: tuple[str, ...] = ()
    listed: bool = False

    @classmethod
    def by(cls, run: "Run") -> "InputFormat":
        """Return the input format of a run."""
        columns = run.task.columns
        return cls(columns.inputs, columns.optional_inputs, columns.input_lists)

    def read(self, source: Source, *, structured: bool) -> Iterator[Input]:
        """Yield one input per line: a JSON object if `structured`, else texts separated by tabs.

        Raises:
            DataError: the first line is not text or lacks required keys, so the whole file is in the wrong
                format; or the source cannot be read further.
        """
        from heedful.data.lines import Location, decoded, looks_like_utf16

        for number, raw in enumerate(source.raw, 1):
            location = Location(source.name, number)
            try:
                line = decoded(raw, location)
            except DataError as error:
                if number == 1 and (looks_like_utf16(raw) or raw.startswith(_GZIP)):
                    raise
                yield Input({}, str(error))
            else:
                yield self._input(line, location, structured)

    def _input(self, line: str, location: "Location", structured: bool) -> Input:
        """Parse one line.

        Raises:
            DataError: it is the first line and lacks required keys.
        """
        try:
            found = self._in_object(line, location) if structured else self._in_fields(line, location)
        except _ValueRefusedError as error:
            return Input({}, str(error))
        except DataError as error:
            found = Input({}, str(error))
        if location.line == 1 and not found.record.keys() >= {*self.keys}:
            raise DataError(found.error)
        return found

    def _in_fields(self, line: str, location: "Location") -> Input:
        every = (*self.keys, *self.more)
        texts = line.split("\t") if len(every) > 1 else [line]
        if len(self.keys) <= len(texts) <= len(every):
            return Input(dict(zip(every, texts, strict=False)))
        expected = f"{len(self.keys)} or {len(every)}" if self.more else str(len(self.keys))
        raise DataError(
            f"{location}: expected {expected} texts separated by tabs ({', '.join(every)}), got {len(texts)}"
        )

    def _in_object(self, line: str, location: "Location") -> Input:
        record = self._object(line, location)
        for key in (*self.keys, *(key for key in self.more if key in record)):
            if why := self._problem(record, key):
                return Input(record, f"{location}: {why}")
        return Input(record)

    def _object(self, line: str, location: "Location") -> JsonObject:
        """Parse a line as a JSON object with any keys.

        Raises:
            DataError: it is not a JSON object, or has values that cannot be written back.
        """
        try:
            record = json.loads(
                line,
                parse_constant=_constant,
                parse_float=_float,
                parse_int=_integer,
                object_pairs_hook=_unique,
            )
        except _ValueRefusedError as error:
            raise _ValueRefusedError(f"{location}: {error}") from None
        except RecursionError:
            raise _ValueRefusedError(f"{location}: {_NESTED}") from None
        except ValueError as error:
            key = self.keys[0]
            example = f'{{"{key}": "{_EXAMPLES.get(key, "A man sleeps.")}"}}'
            hint = f"with --jsonl every line must be an object such as {example}"
            raise DataError(f"{location}: not JSON ({_why(error)}); {hint}") from None
        if line.count("[") + line.count("{") > DEEPEST and _depth(record) > DEEPEST:
            raise _ValueRefusedError(f"{location}: {_NESTED}")
        if not isinstance(record, dict):
            raise DataError(f"{location}: {self._expected(self.keys[0])}, got {_name(record)}")
        return record

    def _problem(self, record: JsonMapping, key: str) -> str | None:
        """Return why the value of `key` is not usable text, or None if it is."""
        if key not in record:
            return f"{self._expected(key)}, got no such key{nearest(key, record)}"
        value = record[key]
        is_list = self.listed and isinstance(value, list)
        texts = value if is_list else [value]
        for text in texts:
            if not isinstance(text, str):
                return f"{self._expected(key)}, got {_name(text)}{' in the list' * is_list}"
            if not is_unicode(text):
                return f'the value of "{key}" must be valid Unicode, got an unpaired surrogate'
        return None

    def _expected(self, key: str) -> str:
        return f'expected an object with a string{" or a list of strings" * self.listed} under "{key}"'


def _name(value: Any) -> str:
    """Return the JSON name of the type of `value`."""
    return "a string" if isinstance(value, str) else _NAMES.get(type(value), "an object")


def _why(error: Exception) -> str:
    """Describe a JSON parsing error."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def _constant(written: str) -> None:
    """Reject NaN and infinities, which Python's parser accepts."""
    raise ValueError(f"{written} is not a JSON number")


def _float(written: str) -> float:
    """Parse a finite float.

    Raises:
        _ValueRefusedError: it is too large.
    """
    if not math.isfinite(number := float(written)):
        raise _ValueRefusedError(f"value out of range: {_short(written)}")
    return number


def _integer(written: str) -> int:
    """Parse an integer.

    Raises:
        _ValueRefusedError: it has more digits than Python converts.
    """
    try:
        return int(written)
    except ValueError:
        most = sys.get_int_max_str_digits()
        digits = len(written.removeprefix("-"))
        why = f"integers must have at most {most:,} digits, got {digits:,}"
        raise _ValueRefusedError(f"value out of range: {why}") from None


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    """Build a JSON object.

    Raises:
        _ValueRefusedError: a key is duplicated, so one of its values would be lost.
    """
    record = dict(pairs)
    if len(record) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        quoted = json.dumps(_short(key), ensure_ascii=False)
        raise _ValueRefusedError(f"duplicate key {quoted} in an object; keep one of them")
    return record


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _depth(value: Any) -> int:
    """Return the nesting depth of lists and objects."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, list | dict)]:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth
