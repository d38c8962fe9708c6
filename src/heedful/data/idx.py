"""IDX files, the format of MNIST and similar data sets: arrays of bytes after a short header.

    two zero bytes, the data type (8: unsigned bytes), the number of axes, the size of each axis (4 bytes,
    big-endian), the data

Source: LeCun's MNIST page.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from pydantic import Field

from heedful.data.images import LazyImage
from heedful.data.lines import LocatedRow, Location, Row, TextFile, find, read_bytes
from heedful.data.range import Ranged
from heedful.errors import DataError

UNSIGNED_BYTES = 8
N_AXES = {1: "labels", 3: "images"}


class IdxSource(Ranged):
    """Item n of every file belongs to row n.

    Args:
        columns: the file of each column; plain or ``.gz``. A file with three axes contains images, one with
            one axis labels.
        names: the label names, in the order of their indices; null: the indices are the names.
    """

    kind: Literal["idx"] = "idx"
    columns: dict[str, str] = Field(min_length=1)
    names: list[str] | None = Field(default=None, min_length=1)


def open_idx(config: IdxSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """Yield the rows of IDX files. Missing files are reported at once, other errors when reached.

    Raises:
        DataError: if a file is missing, damaged or not an IDX file, the files have different numbers of
            items, or a label has no name.
    """
    return _rows({column: find(path, root) for column, path in config.columns.items()}, config.names)


def read_idx(file: TextFile) -> UInt8[np.ndarray, "..."]:
    """Read the array of a file.

    Raises:
        DataError: if it is not an IDX file of unsigned bytes, or its length does not match its header.
    """
    content = read_bytes(file)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(f"{file.name}: not an IDX file: it begins with {content[:4].hex(' ') or 'nothing'}")
    kind, n_axes = content[2], content[3]
    if kind != UNSIGNED_BYTES or n_axes not in N_AXES:
        raise DataError(
            f"{file.name}: must contain unsigned bytes (0x08) with one axis (labels) or three (images), got "
            f"type {kind:#04x} with {n_axes} axes"
        )
    start = 4 + 4 * n_axes
    shape = tuple(np.frombuffer(content[4:start].ljust(start - 4, b"\0"), dtype=">u4").tolist())
    found, wanted = max(0, len(content) - start), math.prod(shape)
    if found != wanted or len(content) < start:
        raise DataError(
            f"{file.name}: its header announces {wanted:,} values, got {found:,}; it is truncated or damaged"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _rows(files: dict[str, TextFile], names: list[str] | None) -> Iterator[LocatedRow[Row]]:
    held = {column: read_idx(file) for column, file in files.items()}
    if len({len(items) for items in held.values()}) > 1:
        counts = ", ".join(f"{files[column].name} has {len(items):,}" for column, items in held.items())
        raise DataError(f"the files must have the same number of items: {counts}")
    first = next(iter(files.values())).name
    for number, items in enumerate(zip(*held.values(), strict=True), 1):
        where = Location(first, number)
        row = {column: _item(item, names, where) for column, item in zip(held, items, strict=True)}
        yield LocatedRow(row, where)


def _item(item: Any, names: list[str] | None, where: Location) -> LazyImage | str:
    if np.ndim(item) == 2:
        return LazyImage(item, str(where))
    if names is None:
        return str(item)
    if item >= len(names):
        raise DataError(f"{where}: label {item} has no name: `names` has {len(names)}")
    return names[item]
