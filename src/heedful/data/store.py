"""A tokenised corpus for random access, in memory or in a folder that may be larger than memory.

A folder contains ``header.json`` and, for each column, the concatenated ids of all rows (little-endian,
1 or 2 bytes if the vocabulary is small enough, else 4) and ``rows + 1`` offsets (8 bytes). It is written
under a temporary name, synced and renamed, so that a folder under its final name is complete.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heedful.data import store_folder
from heedful.errors import RequestError

Ids = NDArray[np.int64]
EncodedRow = Mapping[str, Sequence[int] | np.ndarray]

_FLUSH = 1 << 18
"""The number of buffered ids at which a column is written."""


class TokenStore:
    """Rows of ids by row number. Use `build` or `open` to create one."""

    def __init__(self, ids: Mapping[str, np.ndarray], offsets: Mapping[str, Ids]) -> None:
        self._ids = dict(ids)
        self._offsets = dict(offsets)
        self._n_rows = len(next(iter(self._offsets.values()))) - 1

    @classmethod
    def build(
        cls,
        rows: Iterable[EncodedRow],
        columns: Sequence[str],
        path: Path | None = None,
        key: str = "",
        *,
        n_ids: int | Mapping[str, int] = 2**31,
    ) -> "TokenStore":
        """Build a store from a stream of rows.

        Args:
            rows: the rows, each with an entry for every column; read once and not kept in memory.
            columns: the entries to store.
            path: the folder to write, replacing an older store there; None keeps everything in memory.
            key: identifies what the ids were made from (for example data and tokenizer); see `open`.
            n_ids: the number of distinct ids, 0 to ``n_ids - 1``, for all columns or by column; up to 256
                they take 1 byte each, up to 65536 they take 2.

        Raises:
            WorkError: if the folder cannot be written (for example a full disk); it is removed.
            RequestError: if ``path`` exists and is not a store.
            ValueError: if an id is out of range, or there are no columns.
        """
        if not columns:
            raise ValueError("a store must have at least one column")
        ranges = {column: n_ids if isinstance(n_ids, int) else n_ids[column] for column in columns}
        if path is None:
            chunks = {column: [np.zeros(0, _type(n))] for column, n in ranges.items()}
            offsets = _stream(rows, ranges, lambda column, ids: chunks[column].append(ids))
            return cls({column: np.concatenate(parts) for column, parts in chunks.items()}, offsets)
        types = {column: _type(n) for column, n in ranges.items()}
        with store_folder.writing(path, types, key) as folder:
            folder.publish(_stream(rows, ranges, folder.append))
        return cls.open(path, key)

    @classmethod
    def open(cls, path: Path, key: str = "") -> "TokenStore":
        """Open a folder written by `build`; ids stay on disk until they are read.

        Raises:
            RequestError: if there is no store, or it was built with another ``key`` or by another version.
            DamagedError: if a file is missing or does not match its hash (all are checked).
        """
        header = store_folder.read_header(path)
        if header.key != key:
            raise RequestError(
                f"{path}: built from other data or with another tokenizer (expected key {key!r}, got "
                f"{header.key!r}); rebuild it"
            )
        columns = list(enumerate(header.columns))
        return cls(
            {column.name: store_folder.read_ids(path, n, column) for n, column in columns},
            {column.name: store_folder.read_offsets(path, n, column, header.rows) for n, column in columns},
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._ids)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._n_rows

    def __getitem__(self, row: int) -> dict[str, Ids]:
        """Return a copy of the ids of one row, as int64."""
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} is out of range for a store of {len(self)} rows")
        return {column: self._read(column, int(row) % len(self)) for column in self._ids}

    def gather(self, rows: Iterable[int]) -> dict[str, list[Ids]]:
        """Return the ids of some rows for each column, in the given order."""
        gathered = [self[row] for row in rows]
        return {column: [row[column] for row in gathered] for column in self._ids}

    def stream(self, column: str) -> np.ndarray:
        """Return the concatenated ids of all rows in ``column``, ``[tokens]``, as a read-only view."""
        ids = self._ids[column].view()
        ids.flags.writeable = False
        return ids

    def lengths(self, column: str) -> Ids:
        """Return the number of ids of each row in ``column``, ``[rows]``."""
        return np.diff(self._offsets[column])

    def _read(self, column: str, row: int) -> Ids:
        start, end = self._offsets[column][row : row + 2]
        return np.array(self._ids[column][start:end], dtype=np.int64)


def _type(n_ids: int) -> np.dtype:
    return np.dtype("|u1" if n_ids <= 1 << 8 else "<u2" if n_ids <= 1 << 16 else "<i4")


def _stream(
    rows: Iterable[EncodedRow], ranges: Mapping[str, int], write: Callable[[str, np.ndarray], None]
) -> dict[str, Ids]:
    """Write the ids in large chunks; return the offsets."""
    buffers = {column: _Buffer(n_ids) for column, n_ids in ranges.items()}
    lengths = {column: array("q") for column in ranges}
    for row in rows:
        for column, buffer in buffers.items():
            lengths[column].append(buffer.append(row[column]))
            if buffer.count >= _FLUSH:
                write(column, buffer.flush())
    for column, buffer in buffers.items():
        write(column, buffer.flush())
    return {column: _offsets(counts) for column, counts in lengths.items()}


class _Buffer:
    """Ids of one column that are not written yet."""

    def __init__(self, n_ids: int) -> None:
        self.n_ids, self.count = n_ids, 0
        self._parts: list[np.ndarray] = []

    def append(self, ids: Sequence[int] | np.ndarray) -> int:
        """Add the ids of a row; return their number."""
        part = ids if isinstance(ids, np.ndarray) else np.array(ids, dtype=np.int64)
        self._parts.append(part)
        self.count += len(part)
        return len(part)

    def flush(self) -> np.ndarray:
        """Return all buffered ids, checked, in the type that they are stored in."""
        values = np.concatenate([np.zeros(0, _type(self.n_ids)), *self._parts])
        if len(values) and not (values.min() >= 0 and values.max() < self.n_ids):
            raise ValueError(f"ids must be 0 to {self.n_ids - 1}, got {values.min()} to {values.max()}")
        self._parts, self.count = [], 0
        return values.astype(_type(self.n_ids), copy=False)


def _offsets(lengths: array) -> Ids:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(np.frombuffer(lengths, dtype=np.int64), out=offsets[1:])
    return offsets
