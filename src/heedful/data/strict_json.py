"""JSON that can be written back unchanged: no duplicate keys, no numbers out of range, bounded nesting."""

import json
import math
import sys
from collections import Counter
from typing import Any

from heedful.data.lines import ValueRefusedError
from heedful.typing import JsonObject

MAX_SHOWN = 60
"""Maximum characters of a key or number quoted in messages."""

MAX_DEPTH = 200
"""Maximum nesting of lists and objects, safely below the limit of Python's parser."""


def parse_strictly(text: str) -> object:
    """Parse JSON, with NaN and infinities, which JSON does not have but many programs write.

    Raises:
        ValueRefusedError: it has a number that is out of range, a duplicate key, or is nested too deeply.
        json.JSONDecodeError: it is not JSON.
    """
    nested = ValueRefusedError(f"lists and objects must be nested at most {MAX_DEPTH} deep")
    try:
        value = json.loads(
            text,
            parse_float=_float,
            parse_int=_integer,
            object_pairs_hook=_unique,
        )
    except RecursionError:
        raise nested from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise nested
    return value


def without_nan(value: object) -> Any:
    """Return the value with None in place of numbers that are not finite, which JSON cannot represent."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    return [without_nan(item) for item in value] if isinstance(value, list) else value


def _float(literal: str) -> float:
    if not math.isfinite(number := float(literal)):
        raise ValueRefusedError(f"value out of range: {_short(literal)}")
    return number


def _integer(literal: str) -> int:
    try:
        return int(literal)
    except ValueError:  # more digits than Python converts
        max_digits = sys.get_int_max_str_digits()
        digits = len(literal.removeprefix("-"))
        reason = f"integers must have at most {max_digits:,} digits, got {digits:,}"
        raise ValueRefusedError(f"value out of range: {reason}") from None


def _unique(pairs: list[tuple[str, object]]) -> JsonObject:
    """Build a JSON object; refuse duplicate keys, since one of their values would be lost."""
    record = dict(pairs)
    if len(record) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        quoted = json.dumps(_short(key), ensure_ascii=False)
        raise ValueRefusedError(f"duplicate key {quoted} in an object; keep one of them")
    return record


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


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
