"""Parquet files as a user's tables; training data are read by `heedful.data.hub.DatasetsSource`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from heedful.data.file_hints import listed
from heedful.data.hub import DatasetsSource
from heedful.data.lines import HeaderError
from heedful.data.parquet_rows import parquet_schema


def is_parquet(file: str) -> bool:
    """Whether a file is in the format Parquet by its name."""
    return file.lower().endswith(".parquet")


def parquet_source(
    path: Path, namings: Sequence[Mapping[str, str]], stored: Path, remedy: str = ""
) -> DatasetsSource:
    """Return the source for a file, with the first naming of columns whose fields it has.

    Args:
        path: the file.
        namings: the field of each column.
        stored: its path in the source.
        remedy: the end of the message if it has other fields.

    Raises:
        DataError: the file cannot be read.
        HeaderError: it has the fields of no naming.
    """
    fields = list(parquet_schema(path).names)
    for naming in namings:
        if all(name in fields or name.split(".")[0] in fields for name in naming.values()):
            return DatasetsSource(path="parquet", data_files=str(stored), columns={**naming}, streaming=True)
    expected = " and ".join(namings[0].values())
    raise HeaderError(f"{path}: expected the fields {expected}, got {listed(fields)}{remedy}")
