"""Exceptions: invalid requests (exit status 2) and failed work (exit status 1).

Messages are written for the user: they name the file, line or key, the value found, and if possible the
remedy. The command prints them without a traceback, and IPython with the caller's part of it.
"""

import difflib
import re
import sys
from collections.abc import Iterable
from itertools import islice
from types import TracebackType

from heedful.identifiers import difference, similar_form

LONGEST_MESSAGE_LINE = 1000
"""Characters of a line of a message; the middle of a longer one is left out."""

MOST_MESSAGE_LINES = 40
"""Lines of a message; of more, the middle ones are left out."""

LONGEST_MESSAGE = MOST_MESSAGE_LINES * (LONGEST_MESSAGE_LINE + 1)
"""Characters of any message."""

LONGEST_QUOTE = 60
"""Characters of a text that a message quotes."""


def quoted(text: object) -> str:
    """Return the ``repr`` of a value, shortened, for a message."""
    if isinstance(text, str) and len(text) > LONGEST_QUOTE:
        return f"{text[:LONGEST_QUOTE] + '…'!r} ({len(text):,} characters)"
    return _without_middle(repr(text), 2 * LONGEST_QUOTE)


def shortened(message: str) -> str:
    """Return a message without the middle of long lines, and without the middle of many lines.

    Messages begin with the place and end with the remedy, so both are kept.
    """
    if len(message) <= LONGEST_MESSAGE_LINE and message.count("\n") < MOST_MESSAGE_LINES:
        return message
    lines = message.split("\n")
    if len(lines) > MOST_MESSAGE_LINES:
        first = lines[: MOST_MESSAGE_LINES - 2]
        lines = [*first, f"… {len(lines) - len(first) - 1:,} more lines …", lines[-1]]
    return "\n".join(_without_middle(line, LONGEST_MESSAGE_LINE) for line in lines)


def _without_middle(line: str, limit: int) -> str:
    """Return a line, of a longer one the beginning and the end."""
    if len(line) <= limit:
        return line
    kept = limit - len(" … 1,000,000,000,000 more characters … ")
    end = kept // 3
    return f"{line[: kept - end]} … {len(line) - kept:,} more characters … {line[len(line) - end :]}"


class HeedfulError(Exception):
    """Base class of all exceptions that heedful raises; no message is longer than `LONGEST_MESSAGE`."""

    exit_status = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(shortened(each) if isinstance(each, str) else each for each in args))

    def _render_traceback_(self) -> list[str]:
        """Return the traceback that IPython shows: the frames above heedful's, and no other exceptions."""
        shell = sys.modules["IPython"].get_ipython()
        shown = HeedfulError(*self.args)
        lines: list[str] = shell.InteractiveTB.structured_traceback(
            type(self), shown, _above_package(self.__traceback__)
        )
        return lines


def _above_package(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback above the first frame of this package."""
    if trace is None or trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        return None
    return TracebackType(_above_package(trace.tb_next), trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


class RequestError(HeedfulError):
    """The request is invalid: a wrong option, recipe, path or input."""

    exit_status = 2


class DataError(RequestError):
    """A data file is missing, unreadable or does not match the recipe."""


class WorkError(HeedfulError):
    """The request is valid, but the work failed: a full disk, a NaN loss."""


class DamagedError(WorkError):
    """A file of a run is damaged: its hash, size or content differs from what was written."""


# Characters that control a terminal or reorder its text: control characters other than tab and newline
# (C0, DEL, C1), Bidi_Control characters, and surrogates (bytes of file names that are not UTF-8).
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    r"""Escape terminal control characters as in JSON (``\u001b``), except tabs and newlines."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def type_name(value: object) -> str:
    """Describe the type of a value in messages: "None", "a text", "a list of 3", "an int"."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return "a text"
    name = type(value).__name__
    named = f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
    return f"{named} of {len(value)}" if isinstance(value, list | tuple) else named


MOST_COMPARED = 2000
"""Names that `nearest` compares, which takes some milliseconds for a hundred."""


def nearest(name: object, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest of ``names``, or an empty string.

    If both look alike, it says in what they differ. Of many names the first are compared; long ones are
    texts, which nobody misspelt.

    Args:
        name: what was given.
        names: what was expected.
        cutoff: the least similarity, from 0 to 1.
    """
    if not isinstance(name, str) or len(name) > LONGEST_QUOTE:
        return ""
    known = [other for other in islice(names, MOST_COMPARED) if len(other) <= LONGEST_QUOTE]
    same = [known_name for known_name in known if similar_form(known_name) == similar_form(name)]
    close = same or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    if not close:
        return ""
    differs = difference(name, close[0])
    is_visible = not differs or name.strip().casefold() == close[0].strip().casefold()
    return (
        f" (did you mean {close[0]!r}?)"
        if is_visible
        else f" (did you mean {close[0]!r}, which differs {differs}?)"
    )
