"""A tokenised corpus for random access, in a folder that may be larger than memory.

It is a cache: a folder that is damaged, or that was built from other data, is rebuilt. A folder contains
``header.json`` and, for each column, the concatenated ids of all rows (little-endian, 1 or 2 bytes if the
vocabulary is small enough, else 4) and ``rows + 1`` offsets (8 bytes). It is written under a temporary name,
synced and renamed, so that a folder under its final name is complete.
"""

import glob
import hashlib
import json
import shutil
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from heedful.config import Config
from heedful.data.images import LazyImage
from heedful.data.lines import LocatedRow, Row
from heedful.files import os_errors_raised, sha256, sync, temporary_beside

Ids = NDArray[np.int64]
EncodedRow = Mapping[str, Sequence[int] | np.ndarray]

HEADER = "header.json"
OFFSET_TYPE = np.dtype("<i8")

_FLUSH = 1 << 18
"""The number of buffered ids at which a column is written."""


class Column(Config):
    """One column: column n has its ids in ``n.ids`` and its offsets in ``n.offsets``."""

    name: str
    dtype: str = Field(pattern=r"^(\|u1|<u2|<i4)$")
    tokens: int = Field(ge=0)
    ids_sha256: str
    offsets_sha256: str


class Header(Config):
    """The content of ``header.json``."""

    format: Literal["heedful token store"] = "heedful token store"
    version: Literal[1] = 1
    key: str
    rows: int = Field(ge=0)
    columns: list[Column] = Field(min_length=1)


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
        path: Path,
        key: str = "",
        *,
        n_ids: int | Mapping[str, int] = 2**31,
    ) -> "TokenStore":
        """Build a store from a stream of rows.

        Args:
            rows: the rows, each with an entry for every column; read once and not kept in memory.
            columns: the entries to store.
            path: the folder to write, replacing whatever is there.
            key: identifies what the ids were made from (for example data and tokenizer); see `open`.
            n_ids: the number of distinct ids, 0 to ``n_ids - 1``, for all columns or by column; up to 256
                they take 1 byte each, up to 65536 they take 2.

        Raises:
            WorkError: if the folder cannot be written (for example a full disk); it is removed.
            ValueError: if an id is out of range, or there are no columns.
        """
        if not columns:
            raise ValueError("a store must have at least one column")
        ranges = {column: n_ids if isinstance(n_ids, int) else n_ids[column] for column in columns}
        with _replacing(path) as folder:
            buffers = {c: _Buffer(n, folder / f"{i}.ids", path) for i, (c, n) in enumerate(ranges.items())}
            _fill(buffers, rows)
            with os_errors_raised(path):
                stored = [buffer.finish(column) for column, buffer in buffers.items()]
                header = Header(key=key, rows=len(buffers[columns[0]].lengths), columns=stored)
                (folder / HEADER).write_text(header.model_dump_json(indent=1), encoding="utf-8")
                sync(folder / HEADER)
        return cls._of(header, path)

    @classmethod
    def open(cls, path: Path, key: str = "", n_ids: Mapping[str, int] | None = None) -> "TokenStore | None":
        """Open a folder written by `build`; ids stay on disk until they are read.

        Args:
            path: the folder.
            key: what `build` was given.
            n_ids: the columns that it must have, with their numbers of distinct ids; None: do not check.

        Returns:
            The store. None if there is none, it was built with another ``key`` or by another version, a file
            is missing or does not match its hash (all are checked), or columns or ids are not as expected.
        """
        with suppress(OSError, ValueError):
            header = Header.model_validate_json((path / HEADER).read_bytes())
            if header.key == key and _is_intact(header, path):
                store = cls._of(header, path)
                return store if n_ids is None or store._fits(n_ids) else None
        return None

    def _fits(self, n_ids: Mapping[str, int]) -> bool:
        """Return whether the columns are these, the ids below their numbers, and the rows in order."""
        return self._ids.keys() == n_ids.keys() and all(
            offsets[0] == 0
            and offsets[-1] == len(self._ids[column])
            and (np.diff(offsets) >= 0).all()
            and (len(ids := self._ids[column]) == 0 or (ids.min() >= 0 and ids.max() < n_ids[column]))
            for column, offsets in self._offsets.items()
        )

    @classmethod
    def _of(cls, header: Header, path: Path) -> "TokenStore":
        ids: dict[str, np.ndarray] = {}
        offsets: dict[str, Ids] = {}
        for number, column in enumerate(header.columns):
            dtype, file = np.dtype(column.dtype), path / f"{number}.ids"
            ids[column.name] = np.memmap(file, dtype, mode="r") if column.tokens else np.zeros(0, dtype)
            file = path / f"{number}.offsets"
            offsets[column.name] = np.fromfile(file, dtype=OFFSET_TYPE).astype(np.int64, copy=False)
        return cls(ids, offsets)

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


class _Buffer:
    """The ids of one column while a store is built: checked, and stored in large chunks.

    Args:
        n_ids: see `TokenStore.build`.
        file: the file for the ids.
        path: the path of the store, for messages.
    """

    def __init__(self, n_ids: int, file: Path, path: Path) -> None:
        self.n_ids, self.file, self.path = n_ids, file, path
        self.dtype = np.dtype("|u1" if n_ids <= 1 << 8 else "<u2" if n_ids <= 1 << 16 else "<i4")
        self.lengths = array("q")
        self._hash = hashlib.sha256()
        self._parts: list[np.ndarray] = []
        self._n_buffered = 0

    @property
    def offsets(self) -> Ids:
        """The start of each row, and the end of the last, ``[rows + 1]``."""
        return np.concatenate([[0], np.cumsum(np.frombuffer(self.lengths, np.int64), dtype=np.int64)])

    def append(self, ids: Sequence[int] | np.ndarray) -> None:
        """Add the ids of a row."""
        part = ids if isinstance(ids, np.ndarray) else np.array(ids, dtype=np.int64)
        self._parts.append(part)
        self.lengths.append(len(part))
        self._n_buffered += len(part)
        if self._n_buffered >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Check and store the buffered ids."""
        values = np.concatenate([np.zeros(0, self.dtype), *self._parts])
        if len(values) and not (values.min() >= 0 and values.max() < self.n_ids):
            raise ValueError(f"ids must be 0 to {self.n_ids - 1}, got {values.min()} to {values.max()}")
        self._parts, self._n_buffered = [], 0
        content = values.astype(self.dtype, copy=False).tobytes()
        self._hash.update(content)
        with os_errors_raised(self.path), self.file.open("ab") as stream:
            stream.write(content)

    def finish(self, name: str) -> Column:
        """Write the offsets, sync both files to disk and describe them for the header."""
        content, file = self.offsets.astype(OFFSET_TYPE).tobytes(), self.file.with_suffix(".offsets")
        file.write_bytes(content)
        sync(self.file)
        sync(file)
        return Column(
            name=name,
            dtype=self.dtype.str,
            tokens=sum(self.lengths),
            ids_sha256=self._hash.hexdigest(),
            offsets_sha256=hashlib.sha256(content).hexdigest(),
        )


def _fill(buffers: Mapping[str, _Buffer], rows: Iterable[EncodedRow]) -> None:
    for row in rows:
        for column, buffer in buffers.items():
            buffer.append(row[column])
    for buffer in buffers.values():
        buffer.flush()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder that replaces the folder ``path`` on exit, or is removed on an error.

    Raises:
        WorkError: if it cannot be written.
    """
    folder, former = temporary_beside(path), temporary_beside(path)
    try:
        with os_errors_raised(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            for stale in path.parent.glob(f".{glob.escape(path.name)}.*"):  # of a killed process
                shutil.rmtree(stale, ignore_errors=True)
            folder.mkdir()
        yield folder
        with os_errors_raised(path):
            sync(folder)
            if path.exists():
                path.rename(former)
            folder.rename(path)
            sync(path.parent)
            shutil.rmtree(former, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_intact(header: Header, path: Path) -> bool:
    """Return whether every file has the size and the hash that the header gives.

    Raises:
        OSError: a file is missing, or cannot be read.
    """
    return all(
        file.stat().st_size == size and sha256(file) == digest
        for number, column in enumerate(header.columns)
        for file, size, digest in (
            (path / f"{number}.ids", column.tokens * np.dtype(column.dtype).itemsize, column.ids_sha256),
            (path / f"{number}.offsets", (header.rows + 1) * OFFSET_TYPE.itemsize, column.offsets_sha256),
        )
    )


_IMAGE, _LIST = 1 << 63, 1 << 62
"""Added to the length of an image, and to the length of a list of texts."""


class RowDigest:
    """SHA-256 over a stream of rows: row order, column names and every character affect it.

    How rows are stored (files, compression, line ends) does not. For images, every byte of the file does.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.row_hashes = array("q")
        """A hash of each row, 8 bytes, to find equal rows; different in every process. Rows whose image is
        missing have none."""

    def update(self, row: Row) -> None:
        """Add one row. The order of its columns does not matter."""
        cells = {column: _content(row[column]) for column in row}
        content = _joined(cells)
        self._hash.update(content)
        if (b"", _IMAGE) not in cells.values():
            self.row_hashes.append(hash(content))

    def through(self, rows: Iterable[LocatedRow[Row]]) -> Iterator[LocatedRow[Row]]:
        """Add each row and pass it on."""
        for located in rows:
            self.update(located.row)
            yield located

    def hexdigest(self) -> str:
        """Return the hash of the rows so far as 64 hexadecimal digits."""
        return self._hash.hexdigest()


def row_bytes(row: Row) -> bytes:
    """Return bytes that identify the content of a row; the order of its columns does not matter."""
    return _joined({column: _content(row[column]) for column in row})


def _joined(cells: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Join the cells of a row, each with its column and its length."""
    parts = [len(cells).to_bytes(8, "little")]
    for column in sorted(cells):
        (content, mark), name = cells[column], _utf8(column)
        parts += [len(name).to_bytes(8, "little"), name]
        parts += [(len(content) + mark).to_bytes(8, "little"), content]
    return b"".join(parts)


def _content(value: str | list[str] | LazyImage) -> tuple[bytes, int]:
    """Return the bytes of a value and a type mark, so that an image never equals a text of the same bytes."""
    if isinstance(value, str):
        return _utf8(value), 0
    if isinstance(value, list):
        return _utf8(json.dumps(value, ensure_ascii=False)), _LIST
    return value.encoded(), _IMAGE


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
