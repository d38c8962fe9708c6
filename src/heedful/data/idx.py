"""IDX files, in which MNIST and its kin are published: arrays of bytes behind a short header.

    two zero bytes, the type of the numbers (8: unsigned bytes), how many axes, the axes' sizes (4 bytes each,
    the highest first), the numbers

Source: LeCun's page of MNIST.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from pydantic import Field

from heedful.data.lines import LocatedRow, Location, Row, TextFile, find, read_bytes
from heedful.data.pictures import Picture
from heedful.data.range import Ranged
from heedful.errors import DataError

UNSIGNED_BYTES = 8
N_AXES = {1: "labels", 3: "pictures"}


class IdxSource(Ranged):
    """Item n of every file belongs to row n.

    Args:
        columns: for each column, a file; plain or ``.gz``. One of three axes holds pictures, one of one
            axis labels.
        names: the labels' names, in the order of their numbers; without, the numbers are the names.
    """

    kind: Literal["idx"] = "idx"
    columns: dict[str, str] = Field(min_length=1)
    names: list[str] | None = Field(default=None, min_length=1)


def open_idx(config: IdxSource, root: Path) -> Iterator[LocatedRow[Row]]:
    """The rows of IDX files. Missing files are reported at once, all else when reached.

    Raises:
        DataError: a file is missing, damaged or no IDX file, the files differ in their number of items, or a
            label has no name.
    """
    return _rows({column: find(path, root) for column, path in config.columns.items()}, config.names)


def read_idx(file: TextFile) -> UInt8[np.ndarray, "..."]:
    """The numbers of a file.

    Raises:
        DataError: it is no IDX file of unsigned bytes, or not as long as its header says.
    """
    content = read_bytes(file)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(
            f"{file.name}: is not an IDX file: it begins with {content[:4].hex(' ') or 'nothing'}"
        )
    kind, n_axes = content[2], content[3]
    if kind != UNSIGNED_BYTES or n_axes not in N_AXES:
        raise DataError(
            f"{file.name}: holds numbers of type {kind:#04x} on {n_axes} axes; what can be read are unsigned "
            "bytes (0x08) on one axis (labels) or three (pictures)"
        )
    start = 4 + 4 * n_axes
    shape = tuple(np.frombuffer(content[4:start].ljust(start - 4, b"\0"), dtype=">u4").tolist())
    found, wanted = max(0, len(content) - start), math.prod(shape)
    if found != wanted or len(content) < start:
        raise DataError(
            f"{file.name}: has {found:,} numbers, and its header says {wanted:,}: it is cut off or damaged"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _rows(files: dict[str, TextFile], names: list[str] | None) -> Iterator[LocatedRow[Row]]:
    held = {column: read_idx(file) for column, file in files.items()}
    if len({len(items) for items in held.values()}) > 1:
        counts = ", ".join(f"{files[column].name} has {len(items):,}" for column, items in held.items())
        raise DataError(f"the files do not hold equally many items: {counts}")
    first = next(iter(files.values())).name
    for number, items in enumerate(zip(*held.values(), strict=True), 1):
        where = Location(first, number)
        row = {column: _item(item, names, where) for column, item in zip(held, items, strict=True)}
        yield LocatedRow(row, where)


def _item(item: Any, names: list[str] | None, where: Location) -> Picture | str:
    if np.ndim(item) == 2:
        return Picture(item, str(where))
    if names is None:
        return str(item)
    if item >= len(names):
        raise DataError(f"{where}: the label {item} has no name: `names` has {len(names)}")
    return names[item]
