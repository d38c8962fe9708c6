"""Inputs as they stand in a file or come through standard input.

bytes -> lines     `lines_of`, `decoded`
lines -> records   `fields` (a text a line, or several with tabs between), `records` (JSON lines)
      -> blocks    `blocks`, which are answered together
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heedful.cli.output import standard_input
from heedful.errors import DataError
from heedful.files import is_unicode

# What stands under a key in messages, where it is no text.
_EXAMPLES = {"picture": "cat.png"}

BLOCK = 2048
"""Inputs that are read, sorted by length, and answered together."""


def lines_of(file: str) -> Iterator[str]:
    """Lines without their ends; only a newline ends a line."""
    from heedful.data.lines import find, lines

    if file == "-":
        return decoded(standard_input())
    found = find(file, Path())
    # A data file without a line is a mistake, but nothing to predict is no reason to fail.
    is_empty = found.path.is_file() and found.path.stat().st_size == 0
    return iter(()) if is_empty else lines(found)


def text_of(file: str) -> str:
    """All of a file."""
    from heedful.data.lines import find, read_text

    return read_text(find(file, Path()))


def decoded(stream: Iterable[bytes]) -> Iterator[str]:
    """The lines of standard input, without their ends."""
    for number, raw in enumerate(stream, 1):
        try:
            line = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            place = f"standard input:{number}: byte {error.start + 1} of the line"
            raise DataError(f"{place} is not UTF-8; convert it to UTF-8") from None
        yield line.removeprefix("\ufeff") if number == 1 else line


def fields(
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


def records(
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


def blocks(
    records: Iterable[dict[str, Any]], size: int, ready: Callable[[], bool]
) -> Iterator[list[dict[str, Any]]]:
    """The records, up to ``size`` together: fewer where the next one is not ``ready``."""
    records = iter(records)
    for record in records:
        block = [record]
        while len(block) < size and ready() and (another := next(records, None)) is not None:
            block.append(another)
        yield block


def _named(file: str) -> str:
    return "standard input" if file == "-" else file


def _texts(value: Any, listed: bool) -> list[str] | None:
    """The text, or with ``listed`` the texts of a list; None for what is neither."""
    if isinstance(value, str):
        return [value]
    is_list = listed and isinstance(value, list) and all(isinstance(part, str) for part in value)
    return value if is_list else None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
