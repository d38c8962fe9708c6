"""Parquet files as a user's tables; training data are read by `heedful.data.hub.DatasetsSource`."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from heedful.data.hub import DatasetsSource
from heedful.data.parquet_rows import opened_parquet, rows_at_once
from heedful.errors import DataError


def is_parquet(file: str) -> bool:
    """Whether a file is in the format Parquet by its name."""
    return file.lower().endswith(".parquet")


def parquet_source(path: Path, namings: Sequence[Mapping[str, str]]) -> DatasetsSource:
    """Return the source for a file, with the first naming of columns whose fields it has.

    Args:
        path: the file.
        namings: the field of each column.

    Raises:
        DataError: the file cannot be read, or it has the fields of no naming.
    """
    fields = field_names(path)
    for naming in namings:
        if all(name in fields or name.split(".")[0] in fields for name in naming.values()):
            return DatasetsSource(
                path="parquet", data_files=str(path.resolve()), columns={**naming}, streaming=True
            )
    expected = " and ".join(namings[0].values())
    raise DataError(f"{path}: expected the fields {expected}, got {', '.join(fields)}; rename them")


def field_names(path: Path) -> list[str]:
    """Return the names of the fields of a file.

    Raises:
        DataError: the file cannot be read.
    """
    with opened_parquet(path) as file:
        return list(file.schema_arrow.names)


def parquet_lines(path: Path) -> Iterator[bytes]:
    """Yield the rows of a file as JSON lines; fields with bytes, such as images, are left out.

    Dates, times and decimal numbers become text, and numbers that are not finite null.

    Raises:
        DataError: the file cannot be read.
    """
    n_rows = rows_at_once(path)
    with opened_parquet(path) as file:
        fields = [field.name for field in file.schema_arrow if "binary" not in str(field.type)]
        for batch in file.iter_batches(n_rows, columns=fields):
            for record in batch.to_pylist():
                yield f"{json.dumps(_finite(record), ensure_ascii=False, default=str)}\n".encode()


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
