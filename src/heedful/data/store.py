"""A tokenised corpus for random access, in memory or in a folder that may be larger than memory.

A folder holds ``header.json`` and, for each column, its ids one row after another (little-endian,
1 or 2 bytes where the vocabulary allows, else 4) and ``rows + 1`` offsets (8 bytes). It is written under
another name, synced and renamed, so that a folder under its own name is whole.
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
"""Ids of a column held back before they are written."""


class TokenStore:
    """Rows of ids, by number. Make one with `build` or `open`."""

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
        """Take in a stream of rows.

        Args:
            rows: each with an entry for every column; read once, never held together.
            columns: which entries to keep.
            path: the folder to write, replacing an older store there; None keeps everything in memory.
            key: says what the ids were made from and with (data and tokenizer, say); see `open`.
            n_ids: ids are 0 to ``n_ids - 1``, in all columns or by column; up to 256 they take 1 byte
                each, up to 65536 they take 2.

        Raises:
            WorkError: the folder cannot be written (a full disk, say); nothing of it is left.
            RequestError: ``path`` is taken by something that is not a store.
            ValueError: an id outside the range, or no columns.
        """
        if not columns:
            raise ValueError("a store needs at least one column")
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
        """Open a folder that `build` wrote; ids stay on disk until they are asked for.

        Raises:
            RequestError: there is no store, it was built with another ``key``, or by another version.
            DamagedError: a file is missing or not what was written (every hash is checked).
        """
        header = store_folder.read_header(path)
        if header.key != key:
            raise RequestError(
                f"{path}: was made from other data or with another tokenizer; build it anew "
                f"(its key is {header.key!r}, wanted is {key!r})"
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
        """Rows."""
        return self._n_rows

    def __getitem__(self, row: int) -> dict[str, Ids]:
        """The ids of one row, copied, as int64."""
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return {column: self._read(column, int(row) % len(self)) for column in self._ids}

    def gather(self, rows: Iterable[int]) -> dict[str, list[Ids]]:
        """For each column, the ids of some rows, in the order asked for."""
        gathered = [self[row] for row in rows]
        return {column: [row[column] for row in gathered] for column in self._ids}

    def stream(self, column: str) -> np.ndarray:
        """``[tokens]``, the ids of all rows in ``column``, one row after another; not to be written to."""
        ids = self._ids[column].view()
        ids.flags.writeable = False
        return ids

    def lengths(self, column: str) -> Ids:
        """``[rows]``, how many ids each row has in ``column``."""
        return np.diff(self._offsets[column])

    def _read(self, column: str, row: int) -> Ids:
        start, end = self._offsets[column][row : row + 2]
        return np.array(self._ids[column][start:end], dtype=np.int64)


def _type(n_ids: int) -> np.dtype:
    return np.dtype("|u1" if n_ids <= 1 << 8 else "<u2" if n_ids <= 1 << 16 else "<i4")


def _stream(
    rows: Iterable[EncodedRow], ranges: Mapping[str, int], write: Callable[[str, np.ndarray], None]
) -> dict[str, Ids]:
    """Hand the ids on in large pieces; return the offsets."""
    held = {column: _Held(n_ids) for column, n_ids in ranges.items()}
    lengths = {column: array("q") for column in ranges}
    for row in rows:
        for column, ids in held.items():
            lengths[column].append(ids.take(row[column]))
            if ids.count >= _FLUSH:
                write(column, ids.give())
    for column, ids in held.items():
        write(column, ids.give())
    return {column: _offsets(counts) for column, counts in lengths.items()}


class _Held:
    """Ids of one column that are not written yet."""

    def __init__(self, n_ids: int) -> None:
        self.n_ids, self.count = n_ids, 0
        self._parts: list[np.ndarray] = []

    def take(self, ids: Sequence[int] | np.ndarray) -> int:
        """Hold the ids of one more row; how many they are."""
        part = ids if isinstance(ids, np.ndarray) else np.array(ids, dtype=np.int64)
        self._parts.append(part)
        self.count += len(part)
        return len(part)

    def give(self) -> np.ndarray:
        """All that were held, checked, in the type that they are kept in."""
        values = np.concatenate([np.zeros(0, _type(self.n_ids)), *self._parts])
        if len(values) and not (values.min() >= 0 and values.max() < self.n_ids):
            raise ValueError(f"ids {values.min()} to {values.max()}, but they must be 0 to {self.n_ids - 1}")
        self._parts, self.count = [], 0
        return values.astype(_type(self.n_ids), copy=False)


def _offsets(lengths: array) -> Ids:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(np.frombuffer(lengths, dtype=np.int64), out=offsets[1:])
    return offsets
