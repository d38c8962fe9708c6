"""What can go wrong, in two kinds: the request was wrong (exit status 2), or the work failed (1).

Every message is written for the person who made the request: it names the file, line or key, says
what was found there, and where possible what to do. The command prints it without a traceback.
"""

import difflib
import re
from collections.abc import Iterable


class HeedfulError(Exception):
    """Base of every error that heedful raises on purpose."""

    exit_status = 1


class RequestError(HeedfulError):
    """The request cannot be carried out as it stands: a wrong option, recipe, path or input."""

    exit_status = 2


class DataError(RequestError):
    """A data file is missing, unreadable or not what the recipe says it is."""


class WorkError(HeedfulError):
    """The request was sound, and the work failed: a full disk, a loss that is no number."""


class DamagedError(WorkError):
    """A file of a run is not what was written (its hash, size or content differs)."""


# What steers a terminal, or reorders what it shows: controls other than tab and newline (C0, DEL, C1), all
# controls of the direction of text (Bidi_Control), and bytes of file names that are not UTF-8 (surrogates).
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    r"""Write characters that steer a terminal as ``\u001b``, as JSON does; tabs and newlines stay."""
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest of ``names``, or an empty string."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
