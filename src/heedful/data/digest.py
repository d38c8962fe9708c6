"""A hash of the rows, so that a run can record its training data."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from heedful.data.lines import LocatedRow, Row

_IMAGE, _LIST = 1 << 63, 1 << 62
"""Added to the length of an image, and to the length of a list of texts."""


class RowDigest:
    """SHA-256 over a stream of rows: row order, column names and every character affect it.

    How rows are stored (files, compression, line ends) does not. For images, every byte of the file does.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, row: Row) -> None:
        """Add one row. The order of its columns does not matter."""
        parts = [len(row).to_bytes(8, "little")]
        for column in sorted(row):
            content, mark = _content(row[column])
            name = _utf8(column)
            parts += [len(name).to_bytes(8, "little"), name]
            parts += [(len(content) + mark).to_bytes(8, "little"), content]
        self._hash.update(b"".join(parts))

    def through(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[LocatedRow[Row]]:
        """Add each row and pass it on."""
        for located in rows:
            self.update(located.row)
            yield located

    def hexdigest(self) -> str:
        """Return the hash of the rows so far as 64 hexadecimal digits."""
        return self._hash.hexdigest()


def _content(value: Any) -> tuple[bytes, int]:
    """Return the bytes of a value and a type mark, so that an image never equals a text of the same bytes."""
    if isinstance(value, str):
        return _utf8(value), 0
    if isinstance(value, list):
        return _utf8(json.dumps(value, ensure_ascii=False)), _LIST
    return value.encoded(), _IMAGE


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
