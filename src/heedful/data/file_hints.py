"""Hints about a file that is not as its source says: the names that it has, or its likely format."""

import re
import shlex
from collections.abc import Collection, Sequence

from heedful.data.lines import Location
from heedful.errors import nearest

MOST_NAMES = 20
"""Names of fields that are listed in a message."""

NOT_JSON_LINES = 'not JSON lines, which have an object such as {"text": "…"} on each line'
"""What is wrong with lines of text or a table in place of JSON lines."""

WORDS_OF_DATA = 5
"""A field of more words than this is text and not the name of a field."""

_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def names_hint(field: str, header: Sequence[str]) -> str:
    """Return the names that a header has, or a hint if it looks like a row."""
    if looks_like_data(header):
        return (
            "; this line looks like a row: if the file has no header, set `header: false`, and use numbers "
            "for the fields (from 0)"
        )
    return f"{nearest(field, header)}; it has {listed(header)}"


def looks_like_data(header: Sequence[str]) -> bool:
    """Whether the first record of a file is a row rather than names: it has a number, or a sentence."""
    return any(_NUMBER.fullmatch(name) or name.count(" ") >= WORDS_OF_DATA for name in header)


def listed(names: Collection[str]) -> str:
    """Return names for a message, the first of many."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(list(names)[:MOST_NAMES]) + more


def other_format(line: str, location: Location) -> str:
    """Return why the first line shows that a file has another format; empty if it does not."""
    if location.line != 1 or line.lstrip().startswith("{"):
        return ""
    if line.lstrip().startswith("["):
        command = f"jq -c '.[]' {shlex.quote(location.name)} > NEW.jsonl"
        return (
            f"{location}: the file is one JSON array; JSON lines have one object on each line; convert it: "
            f"{command}"
        )
    return f"{location}: {NOT_JSON_LINES}; for CSV, use kind: csv, or on the command line, name the file .csv"
