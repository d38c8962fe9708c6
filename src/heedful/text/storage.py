"""Store a tokenizer as one JSON file: format, version, SHA-256 and content."""

import json
from pathlib import Path

from heedful.errors import DamagedError, RequestError
from heedful.files import json_sha256 as sha256
from heedful.files import parse_json, require_end, write_text
from heedful.typing import JsonObject

FORMAT = "heedful-tokenizer"
VERSION = 1


def write_content(path: Path, content: JsonObject) -> None:
    """Write the content with its hash atomically.

    Raises:
        WorkError: if the file cannot be written.
    """
    record = {"format": FORMAT, "version": VERSION, "sha256": sha256(content), "content": content}
    write_text(path, json.dumps(record, ensure_ascii=False) + "\n")


def read_content(path: Path) -> JsonObject:
    """Read content written by `write_content`.

    Raises:
        RequestError: if the file is missing, or is not a tokenizer of a supported version.
        DamagedError: if the content does not match its hash.
    """
    record = _record(path)
    content = record.get("content")
    if not isinstance(content, dict) or sha256(content) != record.get("sha256"):
        raise DamagedError(
            f"{path}: the tokenizer is damaged: its SHA-256 does not match the one in the file"
        )
    return content


def _record(path: Path) -> JsonObject:
    require_end(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot read the tokenizer: {error.strerror}") from error
    try:
        record = parse_json(raw)
    except ValueError as error:
        if FORMAT.encode() in raw[:100]:
            raise DamagedError(f"{path}: the tokenizer is damaged: {error}") from error
        raise RequestError(f"{path}: not a heedful tokenizer (not JSON)") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise RequestError(f"{path}: not a heedful tokenizer")
    if record.get("version") != VERSION:
        raise RequestError(
            f"{path}: unsupported tokenizer version {record.get('version')!r}; expected version {VERSION}"
        )
    return record
