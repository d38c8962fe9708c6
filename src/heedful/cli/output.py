"""Where output goes: results to standard output, everything else to standard error."""

import json
import sys
from typing import Any


def say(line: str) -> None:
    """A line about the work, to standard error."""
    print(line, file=sys.stderr, flush=True)


def result(line: str) -> None:
    """A line of the result, to standard output."""
    print(line, flush=True)


def json_result(value: Any) -> None:
    """One JSON object, alone on standard output."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False), flush=True)


def one_line(text: str) -> str:
    r"""The text on one line: a backslash is written ``\\``, a newline ``\n``, a carriage return ``\r``."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") if _breaks(text) else text


def _breaks(text: str) -> bool:
    return "\n" in text or "\r" in text
