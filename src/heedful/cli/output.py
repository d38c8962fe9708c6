"""Where output goes: results to standard output, everything else to standard error."""

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from heedful import files
from heedful.errors import RequestError, WorkError, escaped


def log(line: str) -> None:
    """A line about the work, to standard error; what would steer a terminal is escaped."""
    print(escaped(line), file=sys.stderr, flush=True)


def result(line: str) -> None:
    """A line of the result, to standard output."""
    write_result(f"{line}\n")


def json_result(value: Any) -> None:
    """One JSON object, alone on standard output."""
    result(json_text(value))


def result_in_pieces(pieces: Iterable[str]) -> None:
    """A line of the result that is never held as a whole."""
    for piece in pieces:
        sys.stdout.write(_shown(piece))
    result("")


def write_result(text: str) -> None:
    """A part of the result, to standard output, at once."""
    sys.stdout.write(_shown(text))
    sys.stdout.flush()


# A coloured cell of a heat map: the only escape sequences that heedful writes into results.
_CELL = re.compile(r"(\x1b\[48;5;\d{1,3}m +\x1b\[0m)")


def _shown(text: str) -> str:
    """The text as standard output is given it: at a terminal, what would steer that is escaped."""
    if not sys.stdout.isatty():
        return text
    return "".join(part if n % 2 else escaped(part) for n, part in enumerate(_CELL.split(text)))


def json_text(value: Any) -> str:
    """JSON on one line; escaped to ASCII only where UTF-8 cannot hold it (half of a surrogate pair)."""
    return files.json_text(value, allow_nan=False)


def standard_input() -> IO[bytes]:
    """The bytes of standard input.

    Raises:
        RequestError: it is closed.
    """
    if sys.stdin is None:
        raise RequestError("standard input is closed: there is nothing to read")
    return sys.stdin.buffer


def check_out(out: Path | None, suffixes: Sequence[str], what: str = "the name") -> None:
    """See before any work that a file can be of the name that ``--out`` gives it.

    Raises:
        RequestError: it cannot; ``what`` should end in one of the suffixes.
    """
    if out is None:
        return
    if out.suffix.lower() not in suffixes:
        raise RequestError(f"--out {out}: {what} ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    if not out.parent.is_dir():
        raise RequestError(f"--out {out}: cannot be written: {out.parent} is not a folder")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """Yield a text file to write, which takes its name when all is written and on the disk.

    See `heedful.files.replacing`.

    Raises:
        RequestError: there can be no file of that name.
        WorkError: writing failed (a full disk, say); what was there before is kept.
    """
    if path.is_dir():
        raise RequestError(f"{path}: is a folder, not a file")
    with ExitStack() as stack:
        try:
            temporary = stack.enter_context(files.replacing(path))
            file = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        except (WorkError, OSError) as error:
            why = error if isinstance(error, WorkError) else f"{path}: cannot be written ({error.strerror})"
            raise RequestError(str(why)) from None
        yield file


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """The rows as lines, their cells under each other; those of the columns in ``right`` end together."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def one_line(text: str) -> str:
    r"""The text on one line: ``\n``, ``\r`` and ``\\`` stand for newline, carriage return and backslash.

    A text that has no newline, no carriage return and none of these three pairs is unchanged, so every line
    can be read back exactly, and most backslashes stay as they are.
    """
    if not _AMBIGUOUS.search(text):
        return text
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


_AMBIGUOUS = re.compile(r"[\n\r]|\\[nr\\]")
