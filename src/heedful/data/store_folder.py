"""The folder of a `store.TokenStore`: written atomically, and verified when opened."""

import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from pydantic import Field, ValidationError

from heedful.config import Config
from heedful.errors import DamagedError, RequestError, WorkError
from heedful.files import parse_json, sync

HEADER = "header.json"
FORMAT = "heedful token store"
VERSION = 1
OFFSET_TYPE = np.dtype("<i8")


class Column(Config):
    """One column: column n has its ids in ``n.ids`` and its offsets in ``n.offsets``."""

    name: str
    dtype: str = Field(pattern=r"^(\|u1|<u2|<i4)$")
    tokens: int = Field(ge=0)
    ids_sha256: str
    offsets_sha256: str


class Header(Config):
    """The content of ``header.json``."""

    format: str = FORMAT
    version: int = VERSION
    key: str
    rows: int = Field(ge=0)
    columns: list[Column] = Field(min_length=1)


class HashedFile:
    """A file that is written sequentially, and the hash of its content."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def append(self, values: np.ndarray) -> None:
        """Write the bytes of an array."""
        content = values.tobytes()
        self._hash.update(content)
        self._stream.write(content)

    def finish(self) -> str:
        """Sync the file to disk and close it; return the SHA-256."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        return self._hash.hexdigest()


class FolderWriter:
    """Writes a folder under a temporary name until `publish`."""

    def __init__(self, path: Path, types: Mapping[str, np.dtype], key: str) -> None:
        self.path, self._columns, self._types, self._key = path, list(types), types, key
        self._folder = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        self._streams = ExitStack()
        self._ids: dict[str, HashedFile] = {}

    def start(self) -> None:
        """Create the folder and the files of ids."""
        with reporting(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for stale in self.path.parent.glob(f".{glob.escape(self.path.name)}.*"):  # of a killed process
                shutil.rmtree(stale, ignore_errors=True)
            self._folder.mkdir()
            self._ids = {name: self._open(f"{number}.ids") for number, name in enumerate(self._columns)}

    def append(self, column: str, ids: np.ndarray) -> None:
        """Write the next ids of a column."""
        with reporting(self.path):
            self._ids[column].append(ids)

    def publish(self, offsets: dict[str, np.ndarray]) -> None:
        """Write the offsets and the header, and move the folder to its final name."""
        with reporting(self.path):
            columns = [self._finish(number, offsets[name]) for number, name in enumerate(self._columns)]
            rows = len(offsets[self._columns[0]]) - 1
            header = Header(key=self._key, rows=rows, columns=columns)
            file = self._open(HEADER)
            file.append(np.frombuffer(header.model_dump_json(indent=1).encode(), dtype=np.uint8))
            file.finish()
            sync(self._folder)
            self._move_to_path()

    def discard(self) -> None:
        """Remove the temporary folder (no effect after `publish`)."""
        with suppress(OSError):  # closing fails too if the files cannot be written
            self._streams.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self, name: str) -> HashedFile:
        return HashedFile(self._streams.enter_context((self._folder / name).open("wb")))

    def _finish(self, number: int, offsets: np.ndarray) -> Column:
        name = self._columns[number]
        file = self._open(f"{number}.offsets")
        file.append(offsets.astype(OFFSET_TYPE))
        return Column(
            name=name,
            dtype=self._types[name].str,
            tokens=int(offsets[-1]),
            ids_sha256=self._ids[name].finish(),
            offsets_sha256=file.finish(),
        )

    def _move_to_path(self) -> None:
        former = self._folder.with_name(self._folder.name + ".former")
        if self.path.exists():
            self.path.rename(former)
        self._folder.rename(self.path)
        sync(self.path.parent)
        shutil.rmtree(former, ignore_errors=True)


@contextmanager
def writing(path: Path, types: Mapping[str, np.dtype], key: str) -> Iterator[FolderWriter]:
    """Open a writer whose files are removed unless `FolderWriter.publish` is reached.

    Args:
        path: the folder.
        types: the type of the ids of each column.
        key: see `heedful.data.store.TokenStore.open`.

    Raises:
        RequestError: if ``path`` exists and is not a store.
        WorkError: if it cannot be written.
    """
    is_other = path.exists() and not (path / HEADER).is_file()
    if is_other and (not path.is_dir() or any(path.iterdir())):
        raise RequestError(f"{path}: already exists and is not a token store; use another folder")
    writer = FolderWriter(path, types, key)
    try:
        writer.start()
        yield writer
    finally:
        writer.discard()


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Convert errors of the operating system, such as a full disk, to `WorkError`."""
    try:
        yield
    except OSError as error:
        raise WorkError(f"{path}: cannot be written ({error.strerror or error})") from error


def read_header(path: Path) -> Header:
    """Read the header of a folder.

    Raises:
        RequestError: if it is not a store, or of another version.
        DamagedError: if the header cannot be read.
    """
    if not (path / HEADER).is_file():
        raise RequestError(f"{path}: not a token store (no {HEADER})")
    try:
        content = (path / HEADER).read_bytes()
        record = parse_json(content)
        if isinstance(record, dict) and record.get("version", VERSION) != VERSION:
            raise RequestError(
                f"{path}: unsupported token store version {record['version']}; expected version {VERSION}"
            )
        header = Header.model_validate_json(content)
    except (OSError, ValueError, ValidationError) as error:
        raise DamagedError(f"{path / HEADER}: is damaged; delete the folder and rebuild the store") from error
    if header.format != FORMAT:
        raise RequestError(f"{path}: not a token store: its format is {header.format!r}")
    return header


def read_ids(path: Path, number: int, column: Column) -> np.ndarray:
    """Map the ids of a column into memory, without loading them."""
    dtype = np.dtype(column.dtype)
    file = path / f"{number}.ids"
    _check(file, column.tokens * dtype.itemsize, column.ids_sha256)
    return np.memmap(file, dtype=dtype, mode="r") if column.tokens else np.zeros(0, dtype)


def read_offsets(path: Path, number: int, column: Column, rows: int) -> np.ndarray:
    """Load the offsets of a column."""
    file = path / f"{number}.offsets"
    _check(file, (rows + 1) * OFFSET_TYPE.itemsize, column.offsets_sha256)
    return np.fromfile(file, dtype=OFFSET_TYPE).astype(np.int64, copy=False)


def _check(file: Path, size: int, sha256: str) -> None:
    try:
        found = file.stat().st_size
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest() if found == size else ""
    except OSError as error:
        raise DamagedError(f"{file}: cannot be read ({error.strerror}); rebuild the store") from None
    if found != size:
        raise DamagedError(f"{file}: expected {size} bytes, got {found}; rebuild the store")
    if digest != sha256:
        raise DamagedError(f"{file}: its content does not match its SHA-256; rebuild the store")
