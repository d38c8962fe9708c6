"""Inputs as they stand in a file or come through standard input.

file -> lines      `Source`
lines -> records   `fields` (a text a line, or several with tabs between), `records` (JSON lines)
      -> blocks    `Source.blocks`, which are answered together
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from heedful.cli.output import standard_input
from heedful.cli.pipes import Piped
from heedful.errors import DataError
from heedful.files import is_unicode

# What stands under a key in messages, where it is no text.
_EXAMPLES = {"picture": "cat.png"}

BLOCK = 2048
"""Inputs that are read, sorted by length, and answered together."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Source:
    """The lines of a file or of standard input, read as they are asked for.

    Args:
        name: what messages call it.
        raw: its lines, with their ends.
        size: how many are answered together, at most.
        ready: whether there is another, so that nobody waits for it.
    """

    name: str
    raw: Iterable[bytes]
    size: int = BLOCK
    ready: Callable[[], bool] = lambda: True

    @classmethod
    def of(cls, file: str) -> "Source":
        """The file, or standard input where it is called ``-``; at a terminal every line is for itself.

        Raises:
            RequestError: there is no such file, or standard input is closed.
        """
        if file != "-":
            from heedful.data.lines import find, raw_lines

            found = find(file, Path())
            return cls(found.name, raw_lines(found))
        stream, name = standard_input(), "standard input"
        if (piped := Piped.of(stream)) is not None:
            return cls(name, piped, ready=piped.ready)
        return cls(name, stream, size=1 if sys.stdin.isatty() else BLOCK)

    def lines(self) -> Iterator[str]:
        """Without their ends; only a newline ends a line.

        Raises:
            DataError: one is not UTF-8, or the file cannot be read.
        """
        from heedful.data.lines import Where, decoded

        return (decoded(raw, Where(self.name, number)) for number, raw in enumerate(self.raw, 1))

    def text(self) -> str:
        """All of it, without the last line's end."""
        return "\n".join(self.lines())

    def blocks(self, items: Iterator[Item]) -> Iterator[list[Item]]:
        """What is made of the lines, one of each, as it is to be answered together."""
        for item in items:
            block = [item]
            while len(block) < self.size and self.ready() and (another := next(items, None)) is not None:
                block.append(another)
            yield block


def text_of(file: str) -> str:
    """All of a file.

    Raises:
        DataError: it is empty, or cannot be read.
    """
    from heedful.data.lines import find, read_text

    return read_text(find(file, Path()))


def fields(
    lines: Iterable[str], name: str, keys: Sequence[str], more: Sequence[str] = ()
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
                f"{name}:{number}: {len(texts)} texts, but this run reads {wanted} "
                f"({', '.join(every)}) with a tab between them"
            )
        yield dict(zip(every, texts, strict=False))


def records(
    lines: Iterable[str], name: str, keys: Sequence[str], more: Sequence[str] = (), listed: bool = False
) -> Iterator[dict[str, Any]]:
    """One JSON object a line, with a text under each of ``keys``; other keys are handed through.

    Under those of ``more`` there is a text or nothing. With ``listed``, a list of texts may stand for a text.
    """
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


def _texts(value: Any, listed: bool) -> list[str] | None:
    """The text, or with ``listed`` the texts of a list; None for what is neither."""
    if isinstance(value, str):
        return [value]
    is_list = listed and isinstance(value, list) and all(isinstance(part, str) for part in value)
    return value if is_list else None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
