"""A hash of the rows themselves, so that a run can say what it was trained on."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from heedful.data.lines import LocatedRow, Row

_PICTURE, _LIST = 1 << 63, 1 << 62
"""Added to the length of a picture, and to that of a list of texts."""


class RowDigest:
    """SHA-256 over a stream of rows: their order, their columns and every character count.

    How the rows were stored (files, compression, line ends) does not; of a picture's file, every byte does.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, row: Row) -> None:
        """Take in one row. The order in which its columns are listed does not matter."""
        parts = [len(row).to_bytes(8, "little")]
        for column in sorted(row):
            content, mark = _content(row[column])
            name = _utf8(column)
            parts += [len(name).to_bytes(8, "little"), name]
            parts += [(len(content) + mark).to_bytes(8, "little"), content]
        self._hash.update(b"".join(parts))

    def through(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[LocatedRow[Row]]:
        """Pass rows on, taking in each of them."""
        for located in rows:
            self.update(located.row)
            yield located

    def hexdigest(self) -> str:
        """The hash of the rows so far, 64 hexadecimal digits."""
        return self._hash.hexdigest()


def _content(value: Any) -> tuple[bytes, int]:
    """The bytes of a column, and what tells its type: a picture is no text of the same bytes."""
    if isinstance(value, str):
        return _utf8(value), 0
    if isinstance(value, list):
        return _utf8(json.dumps(value, ensure_ascii=False)), _LIST
    return value.encoded(), _PICTURE


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
