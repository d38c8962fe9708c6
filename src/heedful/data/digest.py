"""A hash of the rows themselves, so that a run can say what it was trained on."""

import hashlib
from collections.abc import Iterable, Iterator

from heedful.data.lines import Located, Row


class RowDigest:
    """SHA-256 over a stream of rows: their order, their columns and every character count.

    How the rows were stored (files, compression, line ends) does not.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, row: Row) -> None:
        """Take in one row. The order in which its columns are listed does not matter."""
        parts = [len(row).to_bytes(8, "little")]
        for column in sorted(row):
            for text in (column, row[column]):
                encoded = text.encode("utf-8", "surrogatepass")
                parts += [len(encoded).to_bytes(8, "little"), encoded]
        self._hash.update(b"".join(parts))

    def through(self, rows: Iterable[Located[Row]]) -> Iterator[Located[Row]]:
        """Pass rows on, taking in each of them."""
        for located in rows:
            self.update(located.row)
            yield located

    def hexdigest(self) -> str:
        """The hash of the rows so far, 64 hexadecimal digits."""
        return self._hash.hexdigest()
