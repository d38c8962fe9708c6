"""Inputs as they stand in lines: a text each, several with tabs between, or JSON objects."""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heedful.cli.source import Source
from heedful.errors import DataError, nearest
from heedful.files import is_unicode

if TYPE_CHECKING:
    from heedful.data.lines import Location
    from heedful.runs.run import Run

# What stands under a key in messages, where it is no text.
_EXAMPLES = {"picture": "cat.png"}
LONGEST = 60
"""Characters of a key or number that messages quote."""
DEEPEST = 200
"""Lists and objects that may be nested in a line; Python reads and writes more, but not without limit."""
_NESTED = f"lists and objects are nested more than {DEEPEST} deep"
_GZIP = b"\x1f\x8b"
# What JSON calls what is no text.
_NAMES = {type(None): "null", bool: "true or false", int: "a number", float: "a number", list: "a list"}


class _ValueRefusedError(DataError):
    """A line is JSON, and has a value that cannot be read or written again: the fault of this line alone."""


@dataclass(frozen=True)
class Input:
    """What a run is asked in one line.

    Args:
        record: its texts by their keys, and whatever else stands beside them; as much as there is of both,
            where it cannot be read.
        error: why it cannot be read.
    """

    record: Mapping[str, Any]
    error: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What an input must have.

    Args:
        keys: what its texts are called.
        more: what texts are called that may be left out.
        listed: whether a list of texts may stand for a text, in JSON.
    """

    keys: tuple[str, ...]
    more: tuple[str, ...] = ()
    listed: bool = False

    @classmethod
    def by(cls, run: "Run") -> "Wanted":
        """What the run reads."""
        kind, recipe = run.kind, run.recipe
        return cls(kind.inputs(recipe), kind.optional(recipe), kind.reads_words)

    def read(self, source: Source, *, structured: bool) -> Iterator[Input]:
        """An input for each line: a JSON object, where they are structured, else texts with tabs between.

        Raises:
            DataError: the first is not text at all, or has not even the keys, so it is the request that is
                wrong; or the source cannot be read any further.
        """
        from heedful.data.lines import Location, decoded, looks_like_utf16

        for number, raw in enumerate(source.raw, 1):
            where = Location(source.name, number)
            try:
                line = decoded(raw, where)
            except DataError as error:
                if number == 1 and (looks_like_utf16(raw) or raw.startswith(_GZIP)):
                    raise
                yield Input({}, str(error))
            else:
                yield self._input(line, where, structured)

    def _input(self, line: str, where: "Location", structured: bool) -> Input:
        """The input of one line.

        Raises:
            DataError: it is the first, and has not the keys.
        """
        try:
            found = self._in_object(line, where) if structured else self._in_fields(line, where)
        except _ValueRefusedError as error:
            return Input({}, str(error))
        except DataError as error:
            found = Input({}, str(error))
        if where.line == 1 and not found.record.keys() >= {*self.keys}:
            raise DataError(found.error)
        return found

    def _in_fields(self, line: str, where: "Location") -> Input:
        every = (*self.keys, *self.more)
        texts = line.split("\t") if len(every) > 1 else [line]
        if len(self.keys) <= len(texts) <= len(every):
            return Input(dict(zip(every, texts, strict=False)))
        wanted = f"{len(self.keys)} or {len(every)}" if self.more else str(len(self.keys))
        raise DataError(
            f"{where}: {len(texts)} texts, but this run reads {wanted} ({', '.join(every)}) with a tab "
            "between them"
        )

    def _in_object(self, line: str, where: "Location") -> Input:
        record = self._object(line, where)
        for key in (*self.keys, *(key for key in self.more if key in record)):
            if why := self._problem(record, key):
                return Input(record, f"{where}: {why}")
        return Input(record)

    def _object(self, line: str, where: "Location") -> dict[str, Any]:
        """The object that a line is, whatever its keys are.

        Raises:
            DataError: it is none, or has values that cannot be written again.
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
            raise _ValueRefusedError(f"{where}: {error}") from None
        except RecursionError:
            raise _ValueRefusedError(f"{where}: {_NESTED}") from None
        except ValueError as error:
            key = self.keys[0]
            example = f'{{"{key}": "{_EXAMPLES.get(key, "A man sleeps.")}"}}'
            hint = f"with --jsonl every line is an object such as {example}"
            raise DataError(f"{where}: not JSON ({_why(error)}); {hint}") from None
        if line.count("[") + line.count("{") > DEEPEST and _depth(record) > DEEPEST:
            raise _ValueRefusedError(f"{where}: {_NESTED}")
        if not isinstance(record, dict):
            raise DataError(f"{where}: {self._expected(self.keys[0])}: this is {_name(record)}")
        return record

    def _problem(self, record: Mapping[str, Any], key: str) -> str | None:
        """Why there is no text under the key; None where there is."""
        if key not in record:
            return f"{self._expected(key)}: there is no such key{nearest(key, record)}"
        value = record[key]
        is_list = self.listed and isinstance(value, list)
        texts = value if is_list else [value]
        for text in texts:
            if not isinstance(text, str):
                return f"{self._expected(key)}: there is {_name(text)}{' in the list' * is_list}"
            if not is_unicode(text):
                return f'the text under "{key}" has half of a surrogate pair'
        return None

    def _expected(self, key: str) -> str:
        return f'expected an object with a text under "{key}"{", or a list of texts" * self.listed}'


def _name(value: Any) -> str:
    """What JSON calls the value."""
    return "a text" if isinstance(value, str) else _NAMES.get(type(value), "an object")


def _why(error: Exception) -> str:
    """What is wrong with a line of JSON."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def _constant(written: str) -> None:
    """Refuse NaN and infinities, which Python reads."""
    raise ValueError(f"{written} is not a JSON number")


def _float(written: str) -> float:
    """A number that can be written again.

    Raises:
        _ValueRefusedError: it is too large.
    """
    if not math.isfinite(number := float(written)):
        raise _ValueRefusedError(f"number out of range: {_short(written)}")
    return number


def _integer(written: str) -> int:
    """A whole number that can be written again.

    Raises:
        _ValueRefusedError: it has more digits than Python converts.
    """
    try:
        return int(written)
    except ValueError:
        most = sys.get_int_max_str_digits()
        digits = len(written.removeprefix("-"))
        why = f"it has {digits:,} digits, at most {most:,} are read"
        raise _ValueRefusedError(f"number out of range: {why}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON.

    Raises:
        _ValueRefusedError: a key appears twice, so one of its values would be lost.
    """
    record = dict(pairs)
    if len(record) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        quoted = json.dumps(_short(key), ensure_ascii=False)
        raise _ValueRefusedError(f"the key {quoted} appears twice in an object; keep one of them")
    return record


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _depth(value: Any) -> int:
    """How deeply lists and objects are nested."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, list | dict)]:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth
