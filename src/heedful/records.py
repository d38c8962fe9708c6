"""Read the small files of runs: their JSON is parsed strictly and checked against a schema before it is used.

A file may have been changed by a broken disk, by another program or by whoever sent the run. So a reader gets
either a value of its schema or a `DamagedError` that names the file and the key.
"""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, model_validator

from heedful.config import LARGEST_WHOLE
from heedful.errors import DamagedError, RequestError
from heedful.files import is_intact, require_end
from heedful.typing import JsonObject

R = TypeVar("R", bound="Record")

RESTORE = "restore it from a copy"
"""The remedy for a file that heedful does not write again."""

MAX_SHOWN = 60
"""The most characters of a value in a message."""

Text = InstanceOf[str]
"""Text that may contain surrogates, as names of files that are not UTF-8 do."""

Count = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal."""


class Record(BaseModel):
    """Schema of a JSON object in a file of a run; unknown keys and values of another type are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, protected_namespaces=(), allow_inf_nan=False
    )


class StampedRecord(Record):
    """Schema of an object that contains the hash of its other entries (`heedful.files.stamped`)."""

    sha256: Digest

    @model_validator(mode="before")
    @classmethod
    def _is_unchanged(cls, value: Any) -> Any:
        if isinstance(value, dict) and "sha256" in value and not is_intact(value):
            raise ValueError("its content does not match its SHA-256")
        return value


class Versioned(Record):
    """Schema of an object of which only the format version is read."""

    model_config = ConfigDict(extra="ignore")

    version: int


def read_text(path: Path) -> str:
    """Read a text file of a run.

    Raises:
        RequestError: the file does not exist.
        DataError: it is a device.
        DamagedError: it cannot be read, or is not UTF-8.
    """
    require_end(path)
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise RequestError(f"{path}: no such file") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DamagedError(f"{path}: damaged: line {line} is not UTF-8; {RESTORE}") from error
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from error


def read_record(path: Path, schema: type[R], remedy: str = RESTORE) -> R:
    """Read a JSON file of a run.

    Args:
        path: the file.
        schema: what it must contain.
        remedy: what to do if it is damaged.

    Raises:
        RequestError: the file does not exist.
        DataError: it is a device.
        DamagedError: it cannot be read or parsed, or does not fit the schema.
    """
    text = read_text(path)
    try:
        return checked(parse_strictly(text), schema)
    except ValueError as error:
        raise DamagedError(f"{path}: damaged: {error}; {remedy}") from None


def checked(value: object, schema: type[R]) -> R:
    """Check a parsed JSON value against a schema.

    Raises:
        ValueError: names the first key that does not fit, what was expected and what was found.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise ValueError(_problem(error, value)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_strictly(text: str) -> Any:
    """Parse JSON that heedful wrote: each key once, finite numbers, whole numbers of at most 64 bits.

    Raises:
        ValueError: the text is malformed, nested too deeply, or contains something else.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_with_each_key_once,
            parse_int=_in_64_bits,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _with_each_key_once(pairs: list[tuple[str, Any]]) -> JsonObject:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {_shown(key)} occurs twice")
    return entries


def _in_64_bits(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > LARGEST_WHOLE:
        raise ValueError(f"expected a whole number of at most 64 bits, got {_shown(digits)}")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"expected a finite number, got {_shown(digits)}")
    return number


def _problem(error: ValidationError, value: Any) -> str:
    """Describe the first problem of a value, with its key."""
    first = error.errors(include_url=False)[0]
    key = ""
    for part in first["loc"]:  # it also names the members of unions
        if isinstance(value, dict) and (part in value or first["type"] == "missing"):
            key, value = f"{key}.{part}".strip("."), value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            key, value = f"{key}[{part}]", value[part]
    match first["type"]:
        case "value_error":
            problem = str(first["ctx"]["error"])
        case "missing":
            problem = "missing"
        case "extra_forbidden":
            problem = "unknown key"
        case _:
            expected = first["msg"].removeprefix("Input should be ")
            problem = f"expected {expected[0].lower()}{expected[1:]}, got {_shown(first['input'])}"
    return f"{key[:MAX_SHOWN]}: {problem}" if key else problem


def _shown(value: object) -> str:
    """Return a value for a message, shortened."""
    text = value if isinstance(value, str) else type(value).__name__
    if isinstance(value, int | float | None):
        text = json.dumps(value)
    return repr(text[:MAX_SHOWN]) if isinstance(value, str) else text
