"""A hash of the rows themselves, so that a run can say what it was trained on."""

import hashlib
from collections.abc import Iterable, Iterator

from heedful.data.lines import Located, Row

_PICTURE = 1 << 63
"""Added to the length of a picture."""


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
            value = row[column]
            # A picture is no text of the same bytes.
            content, mark = (_utf8(value), 0) if isinstance(value, str) else (value.encoded(), _PICTURE)
            name = _utf8(column)
            parts += [len(name).to_bytes(8, "little"), name]
            parts += [(len(content) + mark).to_bytes(8, "little"), content]
        self._hash.update(b"".join(parts))

    def through(self, rows: Iterable[Located[Row]]) -> Iterator[Located[Row]]:
        """Pass rows on, taking in each of them."""
        for located in rows:
            self.update(located.row)
            yield located

    def hexdigest(self) -> str:
        """The hash of the rows so far, 64 hexadecimal digits."""
        return self._hash.hexdigest()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
