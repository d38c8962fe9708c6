"""Parquet files as a user's tables; training data are read by `heedful.data.hub.DatasetsSource`.

The library (pyarrow, which ``datasets`` needs too) is imported when a file is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.data.file_hints import listed
from heedful.data.hub import DatasetsSource
from heedful.data.lines import HeaderError
from heedful.errors import DataError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

ROWS = 1024
"""Number of rows that are in memory at one time."""


def is_parquet(file: str) -> bool:
    """Whether a file is in the format Parquet by its name."""
    return file.lower().endswith(".parquet")


def parquet_source(path: Path, namings: Sequence[Mapping[str, str]], stored: Path) -> DatasetsSource:
    """Return the source for a file, with the first naming of columns whose fields it has.

    Args:
        path: the file.
        namings: the field of each column.
        stored: its path in the source.

    Raises:
        DataError: the file cannot be read.
        HeaderError: it has the fields of no naming.
    """
    with _opened(path) as file:
        fields = file.schema_arrow.names
    for naming in namings:
        if all(name in fields or name.split(".")[0] in fields for name in naming.values()):
            return DatasetsSource(path="parquet", data_files=str(stored), columns={**naming}, streaming=True)
    expected = " and ".join(namings[0].values())
    raise HeaderError(f"{path}: expected the fields {expected}, got {listed(fields)}; rename them")


@contextmanager
def _opened(path: Path) -> Iterator["ParquetFile"]:
    """Open a file; convert the library's errors to `DataError`."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            yield file
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {' '.join(str(error).split())}") from None
